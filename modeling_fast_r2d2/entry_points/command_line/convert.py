"""Convert a treebank to sentences or trees, one per line, or weights of the authors' code to a checkpoint.

    fast-r2d2 convert treebank ptb/wsj --split train --to sentences > train.txt
    fast-r2d2 convert weights --config config.json --weights model.bin --output folder

Sentences and trees are written to standard output.
"""

import argparse
import re
from pathlib import Path

from .options import add_gold_arguments, check_can_be_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True)
    treebank = kinds.add_parser("treebank", help="print gold trees or their sentences, one per line")
    add_gold_arguments(treebank)
    treebank.add_argument("--to", choices=["sentences", "trees"], default="sentences", help="what to print")
    weights = kinds.add_parser("weights", help="convert weights of the authors' code")
    add = weights.add_argument
    add("--config", type=Path, required=True, help="the original's config.json")
    add("--weights", type=Path, nargs="+", required=True, help="one or more .bin, .pt or .safetensors files")
    add("--output", type=Path, required=True, help="the checkpoint folder to write")


def run(options: argparse.Namespace) -> None:
    if options.kind == "weights":
        check_can_be_folder(options.output)
        from modeling_fast_r2d2.checkpoints.original import convert_files  # it takes seconds to import

        convert_files(options.config, options.weights, options.output)
        return
    from .scoring import read_gold

    for tree in read_gold(options):
        words = (re.sub(r"\s", "_", word) for word in tree.words)  # so that they can be told apart again
        print(" ".join(words) if options.to == "sentences" else tree.brackets())
