"""Compare predicted trees with gold trees in an HTML report: one file, which a browser opens without a network.

    fast-r2d2 report gold.mrg --predicted mine.txt --output report.html
    fast-r2d2 report gold.mrg --output report.html          # the bundled model's trees

The options that read and compare trees are those of `fast-r2d2 evaluate`.
"""

import argparse
from pathlib import Path

from . import options as shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_gold_arguments(parser)
    shared.add_comparison_arguments(parser)
    add = parser.add_argument
    add("--predicted", type=Path, help="file of predicted trees, one per line; by default a model parses the sentences")
    add("--checkpoint", default=shared.DEFAULT_CHECKPOINT, help="the model's folder, Hub name or bundled name")
    add("--method", choices=shared.METHODS, default="parser", help="where the model's trees come from")
    add("--output", type=Path, default=Path("report.html"), help="the file to write; default: report.html")
    add("--title", help="the title of the report; by default the names of the files")


def run(options: argparse.Namespace) -> None:
    shared.check_model_options([options.checkpoint], options.threads)
    shared.check_comparison(options)
    if options.output.is_dir():
        raise ValueError(f"--output {options.output} is a folder; give a file")
    if options.output.resolve() in {path.resolve() for path in [*options.gold, options.predicted] if path}:
        raise ValueError(f"--output {options.output} is a file that is read; give another one")
    shared.check_can_be_written(options.output)
    from transformers.utils import logging  # this and the library take seconds to import

    from modeling_fast_r2d2.pictures import write_report

    from .scoring import read_gold, read_predicted, read_written, trees_by

    logging.disable_progress_bar()
    written = read_written(options)
    gold = read_gold(options, written)
    if options.predicted:
        predicted, name = read_predicted(options.predicted, gold), options.predicted.name
    else:
        name = f"{Path(options.checkpoint).name}, {options.method}"
        predicted = trees_by(options.checkpoint, options.method, gold, written, options)
    title = options.title or f"{name} against {', '.join(path.name for path in options.gold)}"
    limits = {"granularity": options.granularity, "max_length": options.max_length}
    scores = write_report(options.output, gold, predicted, title=title, **limits)
    sentences = shared.counted(len(scores.rows), "sentence")
    print(f"sentence F1 {scores.sentence_f1:.1f} over {sentences}; wrote {options.output}")
