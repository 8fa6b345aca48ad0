"""Score trees against a treebank: trees from files, models and baselines, side by side.

    fast-r2d2 evaluate gold.mrg --predicted mine.txt theirs.txt
    fast-r2d2 evaluate gold.mrg --systems right parser chart minimum_risk --checkpoint seed1 seed2 seed3
    fast-r2d2 evaluate ptb/wsj --split test --predicted mine.txt --output scores/

A gold tree may span several lines. Predicted trees are one per line, over words or pieces, in the order of the gold
trees.
"""

import argparse
import contextlib
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import AutoTokenizer
from transformers.utils import logging

from .. import bundled_checkpoint
from ..checkpoints import find_checkpoint
from ..grammar_induction import (
    LabelledTree,
    TreebankPreprocessing,
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
    """Add the options of the command."""
    add_gold_arguments(parser)
    add_comparison_arguments(parser)
    add = parser.add_argument
    add("--predicted", type=Path, nargs="+", default=[], help="files of predicted trees")
    add("--systems", nargs="+", choices=SYSTEMS, default=None, metavar="SYSTEM",
        help=f"{', '.join(SYSTEMS)}; by default all but heuristic, or none with --predicted")  # fmt: skip
    add("--checkpoint", nargs="+", default=[bundled_checkpoint()],
        help="the models' folders or Hub names; several, such as seeds, give mean and deviation")  # fmt: skip
    add("--no_keep_words", action="store_true", help="allow trees in which a word is no constituent")
    add("--seeds", type=int, default=5, help="number of runs of the random baseline; default: %(default)s")
    add("--output", type=Path, help="folder for results.json, results.md, results.csv and the trees of every system")
    add("--markdown", action="store_true", help="print Markdown tables")


def add_gold_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose gold trees and tell how to read them."""
    add = parser.add_argument
    add("gold", type=Path, nargs="+", help="files or folders of bracketed gold trees, plain or .gz")
    add("--split", choices=list(PTB_SECTIONS), help="the part to read of a folder of the Penn or the Chinese Treebank")
    add("--keep_punctuation", action="store_true", help="remove only traces; by default punctuation is removed as well")
    add("--lowercase", action="store_true", help="turn words into lower case before models see them")
    add("--skip_bad", action="store_true", help="skip gold trees that cannot be read, with a warning for each")


def add_comparison_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that tell how to compare trees."""
    add = parser.add_argument
    add("--granularity", choices=GRANULARITIES, default="words", help="compare trees over words or over pieces")
    add("--as_written", action="store_true", help="let models see the punctuation, and remove it before scoring")
    add("--max_length", type=int, help="score only sentences of at most this number of words")


def read_written(options: argparse.Namespace) -> list[LabelledTree] | None:
    """The gold trees with their punctuation, or None if models do not see it."""
    if not options.as_written:
        return None
    if options.keep_punctuation:
        raise ValueError("--as_written removes punctuation before scoring, --keep_punctuation keeps it; give one")
    preprocessing = TreebankPreprocessing(keep_punctuation=True, lowercase=options.lowercase)
    return read_treebank(options.gold, preprocessing, options.split, options.skip_bad)


def read_gold(options: argparse.Namespace) -> list[LabelledTree]:
    """The gold trees that the options name."""
    preprocessing = TreebankPreprocessing(options.keep_punctuation, options.lowercase)
    return read_treebank(options.gold, preprocessing, options.split, options.skip_bad)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
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
        settings = {name: _as_json(value) for name, value in vars(options).items() if name != "run"}
        write_results(results, options.output, settings)
        _write_trees(predictions, options.output / "trees")


def system_trees(
    name: str, gold: list[LabelledTree], written: list[LabelledTree] | None, options: argparse.Namespace
) -> list[list[LabelledTree]]:
    """The trees of every run of a system. A run is a checkpoint of a model, or a seed of the random baseline.

    Args:
        written: the gold trees with punctuation, as from `read_written`.
    """
    if name in METHODS:
        return [_trees_by(checkpoint, name, gold, written, options) for checkpoint in options.checkpoint]
    sentences = gold
    if options.granularity == "pieces":
        sentences = over_pieces(
            gold, AutoTokenizer.from_pretrained(find_checkpoint(options.checkpoint[0], is_model=False))
        )
    if name == "best_binary":
        return [best_binary_trees(sentences)]
    return [baseline_trees(sentences, name, seed) for seed in range(options.seeds if name == "random" else 1)]


def _trees_by(
    checkpoint: str,
    method: str,
    gold: list[LabelledTree],
    written: list[LabelledTree] | None,
    options: argparse.Namespace,
) -> list[LabelledTree]:
    parser = TreeParser.from_pretrained(
        checkpoint, method, pieces=options.granularity == "pieces", keep_words=not options.no_keep_words
    )
    with tqdm(total=len(gold), desc=method, unit=" sentences", delay=1) as bar:
        return model_trees(parser, gold, progress=bar.update, written=written)


def read_predicted(path: Path, gold: list[LabelledTree]) -> list[LabelledTree]:
    """Read a file of predicted trees. Where the file alone does not tell whether its brackets begin with labels, the
    gold words decide."""
    trees = read_predicted_trees(path)
    try:
        align(trees, gold)
    except ValueError as error:
        for has_labels in (True, False):
            with contextlib.suppress(ValueError):
                trees = read_predicted_trees(path, has_labels)
                align(trees, gold)
                return trees
        raise error
    return trees


def _names(paths: list[Path], systems: list[str]) -> dict[str, Path]:
    """The files under their names, or under their paths if another file or system has the same name."""
    names = [path.name for path in paths] + systems
    return {path.name if names.count(path.name) == 1 else str(path): path for path in paths}


def _as_json(value: Any) -> Any:
    """The value of an option as JSON can store it."""
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    return str(value) if isinstance(value, Path) else value


def _write_trees(predictions: list[tuple[str, list[list[LabelledTree]]]], folder: Path) -> None:
    """Write one file per run. Files of earlier calls are deleted."""
    for leftover in folder.glob("*.txt"):
        leftover.unlink()
    for name, runs in predictions:
        for number, trees in enumerate(runs):
            suffix = f"-{number}" if len(runs) > 1 else ""
            file = f"{name.removesuffix('.gz').removesuffix('.txt')}{suffix}.txt".replace("/", "_")
            write_text(folder / file, "".join(tree.brackets() + "\n" for tree in trees))
