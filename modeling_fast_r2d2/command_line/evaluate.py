"""Score trees against a treebank: files that any parser wrote, models, baselines, side by side.

    fast-r2d2 evaluate gold.mrg --predicted mine.txt theirs.txt
    fast-r2d2 evaluate gold.mrg --systems right parser chart minimum_risk --checkpoint seed1 seed2 seed3
    fast-r2d2 evaluate ptb/wsj --split test --predicted mine.txt --output scores/

Gold trees may span several lines; predicted trees are one a line, over words or pieces, in the order of the gold ones.
"""

import argparse
import contextlib
from pathlib import Path

from tqdm import tqdm
from transformers import AutoTokenizer
from transformers.utils import logging

from .. import bundled_checkpoint
from ..grammar_induction import (
    LabelledTree,
    Preprocessing,
    align,
    read_predicted_trees,
    read_treebank,
    score_trees,
)
from ..grammar_induction.alignment import GRANULARITIES
from ..grammar_induction.comparison import Result, as_markdown, as_text, lengths, overview, write_results
from ..grammar_induction.systems import BASELINES, baseline_trees, best_binary_trees, model_trees, over_pieces
from ..grammar_induction.treebanks import PTB_SECTIONS
from ..parsing.tree_parser import METHODS, TreeParser
from ..text_files import write_text

SYSTEMS = (*BASELINES, *METHODS, "best_binary")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gold_arguments(parser)
    add_comparison_arguments(parser)
    add = parser.add_argument
    add("--predicted", type=Path, nargs="+", default=[], help="files of trees to score")
    add("--systems", nargs="+", choices=SYSTEMS, default=None, metavar="SYSTEM",
        help=f"{', '.join(SYSTEMS)}; by default all but heuristic, or none beside --predicted")  # fmt: skip
    add("--checkpoint", nargs="+", default=[bundled_checkpoint()],
        help="of the models, folders or Hub names; of several, such as seeds, mean and deviation")  # fmt: skip
    add("--no_keep_words", action="store_true", help="let models split words, too")
    add("--seeds", type=int, default=5, help="random trees are drawn so many times")
    add("--output", type=Path, help="folder for results.json, .md, .csv and the trees of every system")
    add("--markdown", action="store_true", help="print Markdown tables")


def add_gold_arguments(parser: argparse.ArgumentParser) -> None:
    """Which gold trees, and how they are read."""
    add = parser.add_argument
    add("gold", type=Path, nargs="+", help="files or folders of bracketed gold trees, plain or .gz")
    add("--split", choices=list(PTB_SECTIONS), help="of a folder of the Penn or the Chinese Treebank")
    add("--keep_punctuation", action="store_true", help="leave out traces alone")
    add("--lowercase", action="store_true", help="show models lower-case words")
    add("--skip_bad", action="store_true", help="leave out, and name, gold trees that cannot be read")


def add_comparison_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--granularity", choices=GRANULARITIES, default="words", help="compare trees over words or over pieces")
    add("--as_written", action="store_true", help="show models the punctuation, and leave it out of what is scored")
    add("--max_length", type=int, help="leave out sentences of more words")


def read_written(options: argparse.Namespace) -> list[LabelledTree] | None:
    """The gold sentences with their punctuation, if models are to see it."""
    if not options.as_written:
        return None
    if options.keep_punctuation:
        raise ValueError("--as_written leaves punctuation out of what is scored, --keep_punctuation leaves it in")
    return read_treebank(options.gold, Preprocessing(True, options.lowercase), options.split, options.skip_bad)


def read_gold(options: argparse.Namespace) -> list[LabelledTree]:
    preprocessing = Preprocessing(options.keep_punctuation, options.lowercase)
    return read_treebank(options.gold, preprocessing, options.split, options.skip_bad)


def run(options: argparse.Namespace) -> None:
    logging.disable_progress_bar()
    if options.seeds < 1:
        raise ValueError(f"--seeds must be >= 1, got {options.seeds}")
    if options.output:
        (options.output / "trees").mkdir(parents=True, exist_ok=True)
    gold, written = read_gold(options), read_written(options)
    systems = options.systems
    if systems is None:
        systems = [] if options.predicted else [name for name in SYSTEMS if name != "heuristic"]
    predictions = [(name, [read_predicted(path, gold)]) for name, path in _names(options.predicted, systems).items()]
    predictions += [(name, system_trees(name, gold, written, options)) for name in systems]
    results = [
        Result(name, [score_trees(trees, gold, options.granularity, options.max_length) for trees in runs])
        for name, runs in predictions
    ]
    show = as_markdown if options.markdown else as_text
    print(f"{show(overview(results))}\n\n{show(lengths(results))}")
    if options.output:
        settings = {name: _plain(value) for name, value in vars(options).items() if name != "run"}
        write_results(results, options.output, settings)
        _write_trees(predictions, options.output / "trees")


def system_trees(
    name: str, gold: list[LabelledTree], written: list[LabelledTree] | None, options: argparse.Namespace
) -> list[list[LabelledTree]]:
    """The trees of every run: a checkpoint of a model, a seed of random trees."""
    is_pieces = options.granularity == "pieces"
    if name in METHODS:
        return [_trees_by(checkpoint, name, gold, written, options) for checkpoint in options.checkpoint]
    sentences = over_pieces(gold, AutoTokenizer.from_pretrained(options.checkpoint[0])) if is_pieces else gold
    if name == "best_binary":
        return [best_binary_trees(sentences)]
    return [baseline_trees(sentences, name, seed) for seed in range(options.seeds if name == "random" else 1)]


def _trees_by(
    checkpoint: str, method: str, gold: list[LabelledTree], written: list[LabelledTree] | None, options
) -> list[LabelledTree]:
    parser = TreeParser.from_pretrained(
        checkpoint, method, pieces=options.granularity == "pieces", keep_words=not options.no_keep_words
    )
    with tqdm(total=len(gold), desc=method, unit=" sentences", delay=1) as bar:
        return model_trees(parser, gold, progress=bar.update, written=written)


def read_predicted(path: Path, gold: list[LabelledTree]) -> list[LabelledTree]:
    """Trees of a file; whether brackets begin with labels is told by the gold words, where the file leaves it open."""
    trees = read_predicted_trees(path)
    try:
        align(trees, gold)
    except ValueError as error:
        for has_labels in (True, False):
            with contextlib.suppress(ValueError):
                align(again := read_predicted_trees(path, has_labels), gold)
                return again
        raise error
    return trees


def _names(paths: list[Path], systems: list[str]) -> dict[str, Path]:
    """Files by their names, or by their paths where another file or system has the name."""
    names = [path.name for path in paths] + systems
    return {path.name if names.count(path.name) == 1 else str(path): path for path in paths}


def _plain(value):
    """As JSON can hold it."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _write_trees(predictions: list[tuple[str, list[list[LabelledTree]]]], folder: Path) -> None:
    """A file for every run, in place of those of earlier calls."""
    for leftover in folder.glob("*.txt"):
        leftover.unlink()
    for name, runs in predictions:
        for number, trees in enumerate(runs):
            suffix = f"-{number}" if len(runs) > 1 else ""
            file = f"{name.removesuffix('.gz').removesuffix('.txt')}{suffix}.txt".replace("/", "_")
            write_text(folder / file, "".join(tree.brackets() + "\n" for tree in trees))
