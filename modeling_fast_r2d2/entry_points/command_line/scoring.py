"""The work of `fast-r2d2 evaluate`: trees from files, models and baselines are read, made and scored."""

import argparse
import contextlib
from pathlib import Path

from tqdm import tqdm
from transformers.utils import logging

from modeling_fast_r2d2.checkpoints import find_checkpoint, load_tokenizer
from modeling_fast_r2d2.grammar_induction import (
    LabelledTree,
    TreebankPreprocessing,
    align,
    comparison,
    read_predicted_trees,
    read_treebank,
    score_trees,
    systems,
)
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.parsing_pipeline import METHODS
from modeling_fast_r2d2.text_files import write_text

from .model import use_threads


def run(options: argparse.Namespace) -> None:
    """Compare as the options say, which are checked already."""
    logging.disable_progress_bar()
    written = read_written(options)
    gold = read_gold(options, written)
    predictions = [
        (name, [read_predicted(path, gold)]) for name, path in _names(options.predicted, options.systems).items()
    ]
    predictions += [(name, system_trees(name, gold, written, options)) for name in options.systems]
    results = [
        comparison.Result(name, [score_trees(trees, gold, options.granularity, options.max_length) for trees in runs])
        for name, runs in predictions
    ]
    show = comparison.as_markdown if options.markdown else comparison.as_text
    print(f"{show(comparison.overview(results))}\n\n{show(comparison.lengths(results))}")
    if options.output:
        settings = {name: value for name, value in vars(options).items() if name != "run"}
        comparison.write_results(results, options.output, settings)
        _write_trees(predictions, options.output / "trees")


def read_written(options: argparse.Namespace) -> list[LabelledTree] | None:
    """The gold trees with their punctuation, or None if models do not see it."""
    if not options.as_written:
        return None
    preprocessing = TreebankPreprocessing(keep_punctuation=True, lowercase=options.lowercase)
    return read_treebank(options.gold, preprocessing, options.split, options.skip_bad)


def read_gold(options: argparse.Namespace, written: list[LabelledTree] | None = None) -> list[LabelledTree]:
    """The gold trees that the options name; of those with punctuation, if there are, so that both are of the same."""
    preprocessing = TreebankPreprocessing(options.keep_punctuation, options.lowercase, options.punctuation_tags)
    if written is not None:
        return [preprocessing.apply(tree) for tree in written]
    return read_treebank(options.gold, preprocessing, options.split, options.skip_bad)


def system_trees(
    name: str, gold: list[LabelledTree], written: list[LabelledTree] | None, options: argparse.Namespace
) -> list[list[LabelledTree]]:
    """The trees of every run of a system. A run is a checkpoint of a model, or a seed of the random baseline.

    Args:
        written: the gold trees with punctuation, as from `read_written`.
    """
    if name in METHODS:
        return [trees_by(checkpoint, name, gold, written, options) for checkpoint in options.checkpoint]
    sentences = gold
    if options.granularity == "pieces":
        sentences = systems.over_pieces(gold, load_tokenizer(find_checkpoint(options.checkpoint[0], is_model=False)))
    if name == "best_binary":
        return [systems.best_binary_trees(sentences)]
    return [systems.baseline_trees(sentences, name, seed) for seed in range(options.seeds if name == "random" else 1)]


def trees_by(
    checkpoint: str,
    method: str,
    gold: list[LabelledTree],
    written: list[LabelledTree] | None,
    options: argparse.Namespace,
) -> list[LabelledTree]:
    parser = TreeParser.from_pretrained(
        checkpoint, method, pieces=options.granularity == "pieces", keep_words=not options.no_keep_words
    )
    use_threads(options.threads, parser.model)
    with tqdm(total=len(gold), desc=method, unit=" sentences", delay=1, disable=None) as bar:
        trees = systems.model_trees(parser, written or gold, bar.update)
    if written is None:
        return trees
    pairs = zip(trees, written, strict=True)
    return [systems.without_punctuation(tree, shown, options.punctuation_tags) for tree, shown in pairs]


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


def _names(paths: list[Path], others: list[str]) -> dict[str, Path]:
    """The files under their names, or under their paths if another file or a system has the same name."""
    names = [_stem(path.name) for path in paths] + others
    return {path.name if names.count(_stem(path.name)) == 1 else str(path): path for path in paths}


def _stem(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".txt")


def _write_trees(predictions: list[tuple[str, list[list[LabelledTree]]]], folder: Path) -> None:
    """Write one file per run, with one more ``_`` where that of another one has its name. Other files in the folder
    stay."""
    folder.mkdir(exist_ok=True)
    written: set[str] = set()
    for name, runs in predictions:
        for number, trees in enumerate(runs):
            file = _stem(name).replace("/", "_") + (f"-{number}" if len(runs) > 1 else "")
            while file in written:
                file += "_"
            written.add(file)
            write_text(folder / f"{file}.txt", "".join(tree.brackets() + "\n" for tree in trees))
