"""Convert a treebank to sentences or trees, one per line, or weights of the authors' code to a checkpoint.

    fast-r2d2 convert treebank ptb/wsj --split train --to sentences > train.txt
    fast-r2d2 convert weights --config config.json --weights model.bin --output folder

Sentences and trees are written to standard output.
"""

import argparse

from .. import convert_original_checkpoint
from .evaluate import add_gold_arguments, read_gold


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    kinds = parser.add_subparsers(dest="kind", required=True)
    treebank = kinds.add_parser("treebank", help="print gold trees or their sentences, one per line")
    add_gold_arguments(treebank)
    treebank.add_argument("--to", choices=["sentences", "trees"], default="sentences", help="what to print")
    convert_original_checkpoint.add_arguments(kinds.add_parser("weights", help="convert weights of the authors' code"))


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.kind == "weights":
        convert_original_checkpoint.run(options)
        return
    for tree in read_gold(options):
        print(" ".join(tree.words) if options.to == "sentences" else tree.brackets())
