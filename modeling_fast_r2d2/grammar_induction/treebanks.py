"""Files of bracketed trees: treebanks as they are published, and trees as parsers write them."""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..text_files import read_lines
from .labelled_trees import PUNCTUATION_TAGS, TRACE_TAGS, LabelledTree, from_spans, parse_brackets

logger = logging.getLogger(__name__)

# Sections of the Wall Street Journal in the Penn Treebank, as the field splits them.
PTB_SECTIONS = {"train": range(2, 22), "validation": range(22, 23), "test": range(23, 24)}
# Numbers of the Chinese Treebank's files, in the usual split of its first 1,151; all others are training text.
CTB_FILES = {"validation": range(301, 326), "test": range(271, 301)}


NAMES = r"(wsj|chtb)_\d+"


@dataclass(frozen=True)
class Preprocessing:
    """How a treebank is read, by default as in grammar induction (Kim et al., 2019): without traces, punctuation and
    the constituents that are empty without them.

    Attributes:
        keep_punctuation: leave out traces alone.
        lowercase: words in lower case. Scores do not depend on it; what a model reads may.
    """

    keep_punctuation: bool = False
    lowercase: bool = False

    def read(self, text: str, place: str) -> LabelledTree:
        removed = TRACE_TAGS if self.keep_punctuation else TRACE_TAGS | PUNCTUATION_TAGS
        tree = parse_brackets(text, removed, place=place)
        if not all(label for *_, label in tree.constituents):
            raise ValueError(f"{place}: a constituent has no label; gold trees are as (NP (DT the) (NN cat))")
        return replace(tree, words=tuple(word.lower() for word in tree.words)) if self.lowercase else tree


def read_treebank(
    paths: str | Path | Iterable[str | Path],
    preprocessing: Preprocessing = Preprocessing(),
    split: str | None = None,
    skip_bad: bool = False,
) -> list[LabelledTree]:
    """Gold trees, with labels, of files or folders.

    A file has one tree a line, or trees that go on over indented lines, as the Penn and the Chinese Treebank have them;
    lines that begin with ``<`` are mark-up. Files may be ``.gz``. A folder is read with all that lies below it, in
    order of name.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``, of a folder of the Penn Treebank's sections (or of its
            ``wsj_`` files), or of the Chinese Treebank's ``chtb_`` files; None takes all files.
        skip_bad: leave out, and log, what is no tree.

    Raises:
        ValueError: naming the path, for one that is missing, has no tree, or has no file of the split; naming file
            and line, for what is no tree.
    """
    trees: list[LabelledTree] = []
    for path in _files([paths] if isinstance(paths, str | Path) else list(paths), split):
        for text, line in _split_into_trees(path):
            try:
                trees.append(preprocessing.read(text, f"{path}, line {line}"))
            except ValueError as error:
                if not skip_bad:
                    raise
                logger.warning("skipped: %s", error)
    if not trees:
        listed = [paths] if isinstance(paths, str | Path) else paths
        raise ValueError(f"no tree in {', '.join(map(str, listed))}")
    return trees


def read_predicted_trees(path: str | Path, has_labels: bool | None = None) -> list[LabelledTree]:
    """Trees that a parser wrote, one a line, and a tree of no words for a line without any.

    Args:
        has_labels: whether they are as in treebanks, ``(NP (DT the) (NN cat))``, or words and brackets alone,
            ``(the (old cat))``, where a sentence of one word may be just that; None looks which.

    Raises:
        ValueError: naming file and line, for what is no tree; naming the file, for one that is missing or empty.
    """
    if not Path(path).is_file():
        raise ValueError(f"no file of predicted trees at {str(path)!r}")
    lines = [line.strip() for line in read_lines(path)]
    if not any(lines):
        raise ValueError(f"{path} is empty; give one bracketed tree a line")
    if has_labels is None:
        has_labels = _have_labels([line for line in lines if line.startswith("(")])
    return [
        read_predicted_tree(line, has_labels, f"{path}, line {number}") for number, line in enumerate(lines, start=1)
    ]


def read_predicted_tree(line: str, has_labels: bool, place: str) -> LabelledTree:
    """A tree as a parser writes it: in brackets, a word without any, nothing, or a row of ``fast-r2d2 parse --format
    jsonl``."""
    if line.startswith("{"):
        row = json.loads(line)
        return from_spans(row["leaves"], [tuple(span) for span in row["spans"]], place)
    if not line:
        return LabelledTree((), (), (), (), place)
    return parse_brackets(line, has_labels=has_labels and line.startswith("("), place=place)


def _have_labels(lines: list[str]) -> bool:
    """Read as if they had: then every word has a tag, every constituent a label, and not all sentences are one word,
    which chains such as ``(a (b c))`` would be."""
    try:
        trees = [parse_brackets(line) for line in lines]
    except ValueError:
        return False
    is_labelled = all("" not in tree.tags and all(label for *_, label in tree.constituents) for tree in trees)
    return is_labelled and max((tree.num_leaves for tree in trees), default=0) > 1


def _files(paths: list[str | Path], split: str | None) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
            # Where there are files with the treebanks' own names, others beside them are no trees.
            files += [file for file in inside if re.match(NAMES, file.name, re.I)] or inside
        elif path.is_file():
            files.append(path)
        else:
            raise ValueError(f"no treebank at {str(path)!r}; give a file of bracketed trees, or a folder of them")
    if split is None:
        return files
    if split not in PTB_SECTIONS:
        raise ValueError(f"split must be one of {', '.join(PTB_SECTIONS)}, got {split!r}")
    chosen = [file for file in files if _split_of(file) == split]
    if not chosen:
        raise ValueError(
            f"no file of the split {split!r} in {', '.join(map(str, paths))}: sections are told by folders (22/) or "
            "names (wsj_2201.mrg), files of the Chinese Treebank by names (chtb_0301.fid)"
        )
    return chosen


def _split_of(file: Path) -> str | None:
    if match := re.match(r"chtb_(\d+)", file.name, re.I):
        return next((split for split, numbers in CTB_FILES.items() if int(match[1]) in numbers), "train")
    match = re.match(r"wsj_(\d\d)", file.name, re.I) or re.fullmatch(r"(\d\d)", file.parent.name)
    section = int(match[1]) if match else None
    return next((split for split, numbers in PTB_SECTIONS.items() if section in numbers), None)


def _split_into_trees(path: Path) -> Iterator[tuple[str, int]]:
    """Text and first line of every tree. A bracket in the first column begins a tree, whatever is still open."""
    tree: list[str] = []
    start = depth = 0
    for number, line in enumerate(read_lines(path), start=1):
        begins = depth <= 0 or line.startswith("(")
        if begins and tree:
            yield "\n".join(tree), start
            tree, depth = [], 0
        if not line.strip() or (not tree and line.startswith("<")):
            continue
        start = start if tree else number
        tree.append(line)
        depth += line.count("(") - line.count(")")
    if tree:
        yield "\n".join(tree), start
