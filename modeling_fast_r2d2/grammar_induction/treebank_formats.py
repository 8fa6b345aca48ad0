"""Treebanks that are no brackets: TIGER-XML, NEGRA's export format and Universal Dependencies (CoNLL-U).

Their constituents may have gaps. Such a constituent keeps its largest block of words, the first of equal ones, and what
is left belongs to the constituent above: then no two constituents cross. Punctuation alone is no gap, since these
treebanks hang it on the root.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tokenization_fast_r2d2.language import are_marks
from tokenization_fast_r2d2.lines import read_lines

from .labelled_trees import PUNCTUATION_TAGS, LabelledSpan, LabelledTree, plain_label

LINES_TO_LOOK_AT = 50
ROOT = ""  # above the highest constituents


class Node(NamedTuple):
    """A constituent, or a word."""

    label: str
    parent: str  # the name of the constituent above it, or `ROOT`


def reader_of(path: str | Path) -> "Callable[[str | Path], Iterator[LabelledTree]] | None":
    """The reader of a file's format, by its name or by what stands in its first lines; None for brackets."""
    if str(path).removesuffix(".gz").endswith(".xml"):  # which says in which encoding its lines are
        return read_tiger
    first = [line for _, line in zip(range(LINES_TO_LOOK_AT), read_lines(path), strict=False)]
    if any(re.match(r"\s*<(\?xml|corpus\b)", line) for line in first[:5]):
        return read_tiger
    if any(re.match(r"#(FORMAT|BOS) ", line) for line in first):
        return read_export
    if any(re.match(r"# (sent_id|text) =|1\t.*(\t.*){8}$", line) for line in first):
        return read_conllu
    return None


def read_tiger(path: str | Path) -> Iterator[LabelledTree]:
    """Sentences of a file in TIGER-XML. Raises ValueError naming the file if it is no XML, and the sentence if that is
    no tree."""
    try:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            for _, element in ElementTree.iterparse(file):
                if element.tag == "s":
                    yield _tiger_sentence(element, f"{path}, sentence {element.get('id')}")
                    element.clear()
    except (ElementTree.ParseError, gzip.BadGzipFile, zlib.error, EOFError, LookupError) as error:  # no such encoding
        raise ValueError(f"{path}: not XML: {error}") from error


def _tiger_sentence(sentence: ElementTree.Element, place: str) -> LabelledTree:
    parents = {edge.get("idref", ""): node.get("id", "") for node in sentence.iter("nt") for edge in node.iter("edge")}
    leaves = [(word.get("word", ""), word.get("pos", ""), word.get("id", "")) for word in sentence.iter("t")]
    nodes = {
        node.get("id", ""): Node(node.get("cat", ""), parents.get(node.get("id", ""), ROOT))
        for node in sentence.iter("nt")
    }
    words = [(word, Node(tag, parents.get(name, ROOT))) for word, tag, name in leaves]
    return tree_of_nodes(words, nodes, place)


def read_export(path: str | Path) -> Iterator[LabelledTree]:
    """Sentences of a file in NEGRA's export format, 3 or 4."""
    columns, place, is_inside = 5, str(path), False
    words: list[tuple[str, Node]] = []
    nodes: dict[str, Node] = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = re.split(r"[ \t]+", line.strip(" \t"))  # other kinds of blanks may be part of a word
        if line.startswith("#FORMAT "):
            columns = 6 if fields[1:] == ["4"] else 5  # the lemma comes second
        elif fields[:1] == ["#BOS"]:
            if is_inside:
                raise ValueError(f"{place}: the sentence has no end, so the file is cut")
            words, nodes, place, is_inside = [], {}, f"{path}, line {number}", True
        elif fields[:1] == ["#EOS"]:
            yield tree_of_nodes(words, nodes, place)
            is_inside = False
        elif is_inside and fields[0] and not line.startswith("%%"):
            if len(fields) < columns:
                raise ValueError(f"{path}, line {number}: a word or constituent has {columns} columns: {line!r:.80}")
            tag, _, _, parent = fields[columns - 4 : columns]
            node = Node(tag, ROOT if parent == "0" else f"#{parent}")
            if re.fullmatch(r"#\d{3}", fields[0]):
                nodes[fields[0]] = node
            else:
                words.append((fields[0], node))
    if is_inside:
        raise ValueError(f"{place}: the sentence has no end, so the file is cut")


def read_conllu(path: str | Path) -> Iterator[LabelledTree]:
    """Sentences of a file in CoNLL-U. A word and all that depends on it are a constituent, which has the name of the
    word's relation: these are no constituents that anyone has marked, but what comes nearest to them."""
    rows: list[list[str]] = []
    start = 1
    for number, line in enumerate([*read_lines(path), ""], start=1):
        fields = line.split("\t")
        if fields[0].isdecimal():  # not 1-2, a word of several, nor 1.1, a word that is not written
            rows.append(fields)
            if len(fields) != 10:
                raise ValueError(f"{path}, line {number}: a word of CoNLL-U has 10 columns, got {len(fields)}")
        elif not line.strip():
            if rows:
                yield _conllu_sentence(rows, f"{path}, line {start}")
            rows, start = [], number + 1
        elif not line.lstrip("\ufeff ").startswith("#") and not re.match(r"\d+[-.]\d+\t", line):
            raise ValueError(f"{path}, line {number}: no line of CoNLL-U, with tabs between columns: {line!r:.80}")


def _conllu_sentence(rows: list[list[str]], place: str) -> LabelledTree:
    nodes = {row[0]: Node(row[7].partition(":")[0], ROOT if row[6] == "0" else row[6]) for row in rows}
    words = [(row[1], Node(row[3], row[0])) for row in rows]  # a word is a leaf of its own constituent
    return tree_of_nodes(words, nodes, place)


def tree_of_nodes(words: Sequence[tuple[str, Node]], nodes: dict[str, Node], place: str) -> LabelledTree:
    """A tree from words and the constituents above them, whose words need not be neighbours.

    Args:
        words: in order, each with its tag and the constituent right above it.
        nodes: constituents by name.

    Raises:
        ValueError: if a constituent is missing, or above itself; the message names ``place``.
    """
    leaves: dict[str, list[int]] = {name: [] for name in nodes}
    above: dict[str, int] = {}  # the number of constituents above each
    for leaf, (_, node) in enumerate(words):
        around = list(_around(node.parent, nodes, place))
        for depth, name in enumerate(reversed(around)):
            leaves[name].append(leaf)
            above[name] = depth
    by_unicode = are_marks([word for word, _ in words])
    is_mark = [by_unicode[leaf] or node.label in PUNCTUATION_TAGS for leaf, (_, node) in enumerate(words)]
    blocks = {name: _largest_block(leaves[name], is_mark) for name in nodes if len(leaves[name]) > 1}
    # Children before parents, left before right, as brackets close.
    order = sorted(blocks, key=lambda name: (blocks[name][1], -blocks[name][0], -above[name]))
    spans = [LabelledSpan(*blocks[name], plain_label(nodes[name].label)) for name in order]
    numbers = {name: number for number, name in enumerate(nodes, start=1)}
    return LabelledTree(
        tuple(word for word, _ in words),
        tuple(node.label for _, node in words),
        tuple(span for span in spans if span.first < span.last),
        tuple(numbers.get(node.parent, 0) for _, node in words),
        place,
    )


def _around(name: str, nodes: dict[str, Node], place: str) -> Iterator[str]:
    """The names of a constituent and of all above it."""
    for _ in range(len(nodes) + 1):
        if name == ROOT:
            return
        if name not in nodes:
            raise ValueError(f"{place}: there is no constituent {name}")
        yield name
        name = nodes[name].parent
    raise ValueError(f"{place}: the constituent {name} is above itself")


def _largest_block(leaves: list[int], is_mark: list[bool]) -> tuple[int, int]:
    """The longest run of words with nothing but marks between them, and the constituent's own marks at its ends."""
    words = [leaf for leaf in leaves if not is_mark[leaf]]
    if not words:
        return leaves[0], leaves[0]
    before = list(accumulate(not mark for mark in is_mark))
    runs = [[leaf for _, leaf in run] for _, run in groupby(enumerate(words), lambda pair: before[pair[1]] - pair[0])]
    longest = max(runs, key=len)
    (first, last), own = (longest[0], longest[-1]), set(leaves)
    while first - 1 in own:
        first -= 1
    while last + 1 in own:
        last += 1
    return first, last
