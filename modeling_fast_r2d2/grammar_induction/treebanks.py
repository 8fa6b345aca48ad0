"""Readers of files with bracketed trees: published treebanks, and the output of parsers."""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tokenization_fast_r2d2.lines import read_lines
from tokenization_fast_r2d2.words import check_text

from .labelled_trees import LabelledTree, check_spans, from_spans, parse_brackets
from .treebank_formats import reader_of

logger = logging.getLogger(__name__)

# Sections of the Wall Street Journal in the Penn Treebank, as the field splits them.
PTB_SECTIONS = {"train": range(2, 22), "validation": range(22, 23), "test": range(23, 24)}
# File numbers of the Chinese Treebank, in the usual split of its first 1,151 files. All other files are for training.
CTB_FILES = {"validation": range(301, 326), "test": range(271, 301)}
TREEBANK_FILE = r"(wsj|chtb)_\d+"
ABOUT_TREES = r"(readme|licen[cs]e|contributing|changelog)\b|.*\.(md|log)$|stats\.xml$"


@dataclass(frozen=True)
class TreebankPreprocessing:
    """The preprocessing of gold trees.

    By default it is that of grammar induction (Kim et al., 2019): it removes traces, punctuation, and constituents that
    have no other leaf.

    Attributes:
        keep_punctuation: remove only traces.
        punctuation_tags: the tags of punctuation; by default as in `LabelledTree.are_punctuation`.
        lowercase: turn words into lower case. This changes what a model reads, but not how trees are scored.
    """

    keep_punctuation: bool = False
    lowercase: bool = False
    punctuation_tags: frozenset[str] | None = None

    def read(self, text: str, place: str) -> LabelledTree:
        """Read a gold tree from a bracketed string.

        Args:
            place: the source of the string, for messages.

        Raises:
            ValueError: if the string is not one tree with labels; the message names ``place``.
        """
        return self.apply(parse_brackets(text, place=place))

    def apply(self, tree: LabelledTree) -> LabelledTree:
        """A gold tree as it is scored; ValueError as for `read`."""
        tree = tree.without(tree.are_empty())
        tree = tree if self.keep_punctuation else tree.without(tree.are_punctuation(self.punctuation_tags))
        if not all(label for *_, label in tree.constituents):
            raise ValueError(f"{tree.place}: a constituent has no label; a gold tree looks like (NP (DT the) (NN cat))")
        return replace(tree, words=tuple(word.lower() for word in tree.words)) if self.lowercase else tree


def read_treebank(
    paths: str | Path | Iterable[str | Path],
    preprocessing: TreebankPreprocessing = TreebankPreprocessing(),
    split: str | None = None,
    skip_bad: bool = False,
) -> list[LabelledTree]:
    """Read gold trees with labels from files and folders.

    A file, plain or ``.gz``, has one tree per line, or trees that continue on indented lines as in the Penn and the
    Chinese Treebank. Lines that begin with ``<`` are mark-up and are skipped. In ``.tbf`` files (CESS, AnCora) and
    ``.psd`` files (Keyaki, IcePaHC) lemmas, codes and what is not spoken are left out. Other formats are told by their
    first lines, see `treebank_formats`. A folder is read with its subfolders, in the order of file names.

    Args:
        paths: one path or several.
        preprocessing: of the trees.
        split: ``"train"``, ``"validation"`` or ``"test"`` takes one part of the Penn Treebank, whose sections are
            folders or ``wsj_`` files, or of the Chinese Treebank with its ``chtb_`` files. None takes all files.
        skip_bad: skip brackets that cannot be read, with a warning for each; other formats are read whole or not at
            all.

    Raises:
        ValueError: if a path is missing, or if no path has a tree or a file of the split (the message names the paths);
            or if a tree cannot be read (it names the file, and the line or the sentence).
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    trees: list[LabelledTree] = []
    for path in _files(paths, split):
        if reader := reader_of(path):
            trees += map(preprocessing.apply, reader(path))
            continue
        for text, line in _split_into_trees(path):
            try:
                trees.append(preprocessing.read(_plain_brackets(text, path), f"{path}, line {line}"))
            except ValueError as error:
                if not skip_bad:
                    raise
                logger.warning("skipped: %s", error)
    if not trees:
        raise ValueError(f"no tree in {', '.join(map(str, paths))}")
    return trees


def read_predicted_trees(path: str | Path, has_labels: bool | None = None) -> list[LabelledTree]:
    """Read the trees that a parser wrote, one per line. An empty line is a tree without words.

    Args:
        path: the file, plain or ``.gz``.
        has_labels: True for trees as in treebanks, ``(NP (DT the) (NN cat))``; False for trees of words and brackets
            only, ``(the (old cat))``, where a sentence of one word needs no brackets. None finds it out.

    Raises:
        ValueError: if the file is missing or empty, or if a line is not a tree. The message names file and line.
    """
    if not Path(path).is_file():
        raise ValueError(f"no file of predicted trees at {str(path)!r}")
    lines = [line.strip() for line in read_lines(path)]
    if not any(lines):
        raise ValueError(f"{path} is empty; give one bracketed tree per line")
    if has_labels is None:
        has_labels = _have_labels([line for line in lines if line.startswith("(")])
    return [
        read_predicted_tree(line, has_labels, f"{path}, line {number}") for number, line in enumerate(lines, start=1)
    ]


def read_predicted_tree(line: str, has_labels: bool, place: str) -> LabelledTree:
    """Read one line of a parser's output: brackets, a single word, nothing, or a line of ``fast-r2d2 parse --format
    jsonl``. The arguments and errors are those of `parse_brackets`."""
    line = line.strip()
    if line.startswith("{") and line != "{":  # a word of its own
        return _read_json(line, place)
    if not line:
        return LabelledTree((), (), (), (), place)
    return parse_brackets(line, has_labels=has_labels and line.startswith("("), place=place)


def _read_json(line: str, place: str) -> LabelledTree:
    """The tree of a JSON object with ``leaves``, a list of strings, and ``flat_spans`` or ``spans``, as for
    `from_spans`."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not a line of JSON: {error}") from error
    leaves, spans = row.get("leaves"), row.get("flat_spans", row.get("spans"))
    if not isinstance(leaves, list) or not isinstance(spans, list):
        raise ValueError(f"{place}: a JSON line needs the lists leaves and spans, as fast-r2d2 parse writes them")
    for number, leaf in enumerate(leaves):
        check_text(leaf, f"{place}, leaf {number}")
    for span in spans:
        if not isinstance(span, list) or len(span) != 2 or not all(type(end) is int for end in span):
            raise ValueError(f"{place}: a span must be two whole numbers, first and last leaf, got {span!r:.80}")
    pairs = [(first, last) for first, last in spans]
    check_spans(pairs, len(leaves), place)
    return from_spans(leaves, pairs, place)


def _have_labels(lines: list[str]) -> bool:
    """Whether trees have labels. If so, and if they are read with labels, every word has a tag, every constituent has a
    label, and some sentence has two words. The last condition excludes trees such as ``(a (b c))``."""
    try:
        trees = [parse_brackets(line) for line in lines]
    except ValueError:
        return False
    is_labelled = all("" not in tree.tags and all(label for *_, label in tree.constituents) for tree in trees)
    return is_labelled and max((tree.num_leaves for tree in trees), default=0) > 1


def _files(paths: list[str | Path], split: str | None) -> list[Path]:
    files = _all_files(paths)
    if split is None:
        return files
    if split not in PTB_SECTIONS:
        raise ValueError(f"split must be one of {', '.join(PTB_SECTIONS)}, got {split!r}")
    chosen = [file for file in files if _split_of(file) == split]
    if not chosen:
        raise ValueError(
            f"no file of the split {split!r} in {', '.join(map(str, paths))}: sections are found by folders (22/) or "
            "names (wsj_2201.mrg), files of the Chinese Treebank by names (chtb_0301.fid)"
        )
    return chosen


def _all_files(paths: list[str | Path]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and not _is_aside(file, path))
            # If some files have the names of a treebank's files, the others in the folder have no trees, as a rule.
            known = [file for file in inside if re.match(TREEBANK_FILE, file.name, re.I)]
            suffixes = {file.suffix for file in known}
            if others := [file for file in sorted({*inside} - {*known}) if file.suffix in suffixes]:
                logger.warning("left out %d files beside %s, such as %s; give their folders, too, to read them",
                               len(others), known[0], others[0])  # fmt: skip
            files += known or inside
        elif path.is_file():
            files.append(path)
        else:
            raise ValueError(f"no treebank at {str(path)!r}; give a file of bracketed trees, or a folder of them")
    return files


def _is_aside(file: Path, folder: Path) -> bool:
    """Whether a file in a folder is hidden, or tells about the trees, as ``README.md`` and ``LICENSE.txt`` do."""
    is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return is_hidden or re.match(ABOUT_TREES, file.name, re.I) is not None


def _split_of(file: Path) -> str | None:
    """The split of a treebank's file; None if it belongs to none."""
    if match := re.match(r"chtb_(\d+)", file.name, re.I):
        return next((split for split, numbers in CTB_FILES.items() if int(match[1]) in numbers), "train")
    match = re.match(r"wsj_(\d\d)", file.name, re.I) or re.fullmatch(r"(\d\d)", file.parent.name)
    section = int(match[1]) if match else None
    return next((split for split, numbers in PTB_SECTIONS.items() if section in numbers), None)


def _plain_brackets(text: str, path: Path) -> str:
    """The text of a tree without the lemmas and numbers that some treebanks have: ``(da0fs0 La el)`` in CESS,
    ``(N-N menn-maður)`` in IcePaHC, ``(ID 12_news;JP)`` in Keyaki."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".tbf"):
        return re.sub(r"\(([^\s()]+) ([^\s()]+) [^\s()]+\)", r"(\1 \2)", text)
    if not name.endswith(".psd"):
        return text
    text = re.sub(r"\(ID [^()]*\)", "", text)
    text = re.sub(r"\((?!NUM)[^\s()]+ (\*|0)\)", r"(-NONE- \1)", text)  # what nobody says
    leaves = re.findall(r"\((?!CODE |-NONE- )[^\s()]+ ([^\s()*]+)\)", text)
    have_lemmas = sum("-" in leaf[1:-1] for leaf in leaves) > len(leaves) / 2  # a quote has none
    return re.sub(r"(\((?!CODE )[^\s()]+ [^\s()*]+)-[^\s()]+\)", r"\1)", text) if have_lemmas else text


def _split_into_trees(path: Path) -> Iterator[tuple[str, int]]:
    """The text of every tree and the number of its first line. A bracket in the first column always begins a tree."""
    tree: list[str] = []
    start = depth = 0
    for number, line in enumerate(read_lines(path), start=1):
        begins_tree = depth <= 0 or line.startswith("(")
        if begins_tree and tree:
            yield "\n".join(tree), start
            tree, depth = [], 0
        if not line.strip() or (not tree and line.startswith("<")):
            continue
        start = start if tree else number
        tree.append(line)
        depth += line.count("(") - line.count(")")
    if tree:
        yield "\n".join(tree), start
