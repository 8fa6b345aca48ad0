"""Score trees against a treebank: trees from files, models and baselines, side by side.

    fast-r2d2 evaluate gold.mrg --predicted mine.txt theirs.txt
    fast-r2d2 evaluate gold.mrg --systems right parser chart minimum_risk --checkpoint seed1 seed2 seed3
    fast-r2d2 evaluate ptb/wsj --split test --predicted mine.txt --output scores/

A gold tree may span several lines. Predicted trees are one per line, over words or pieces, in the order of the gold
trees.
"""

import argparse
from pathlib import Path

from . import options as shared

SYSTEMS = (*shared.BASELINES, *shared.METHODS, "best_binary")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_gold_arguments(parser)
    shared.add_comparison_arguments(parser)
    add = parser.add_argument
    add("--predicted", type=Path, nargs="+", default=[], help="files of predicted trees")
    add("--systems", nargs="+", choices=SYSTEMS, default=None, metavar="SYSTEM",
        help=f"{', '.join(SYSTEMS)}; by default all but heuristic, or none with --predicted")  # fmt: skip
    add("--checkpoint", nargs="+", default=[shared.DEFAULT_CHECKPOINT],
        help="the models' folders or Hub names; several, such as seeds, give mean and deviation")  # fmt: skip
    add("--seeds", type=int, default=5, help="number of runs of the random baseline; default: %(default)s")
    add("--output", type=Path, help="folder for results.json, results.md, results.csv and the trees of every system")
    add("--markdown", action="store_true", help="print Markdown tables")


def run(options: argparse.Namespace) -> None:
    if options.seeds < 1:
        raise ValueError(f"--seeds must be >= 1, got {options.seeds}")
    shared.check_model_options(options.checkpoint, options.threads)
    shared.check_comparison(options)
    if options.output:
        shared.check_can_be_folder(options.output)
    if options.systems is None:
        options.systems = [] if options.predicted else [name for name in SYSTEMS if name != "heuristic"]
    from . import scoring  # the library, which takes seconds to import

    scoring.run(options)
