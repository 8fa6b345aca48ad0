"""Labelled trees of any arity, from treebanks and from parsers."""

import re
import unicodedata
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import NamedTuple

from tokenization_fast_r2d2.language import are_marks, as_character
from tokenization_fast_r2d2.tree_shape import escaped
from tokenization_fast_r2d2.trees import Span

EMPTY_TAGS = frozenset({"-NONE-", "CODE"})  # traces in the Penn Treebank; notes in those of its tradition
EMPTY_WORD = re.compile(r"\*\w+\*(-\d+)?|\*-\d+")  # traces elsewhere: *pro*, *T*-1, *-2, *0*
# Punctuation in the Penn and the Chinese Treebank, and currency signs, which the field removes as well; TIGER, also as
# `brackets` writes it; UD.
PUNCTUATION_TAGS = frozenset(", . : -LRB- -RRB- '' `` $ # PU $, $. $( $-LRB- PUNCT".split())
WORD_TAGS = frozenset({"POS", "SYM", "LS"})  # in the same treebanks, of words that may look like punctuation


class LabelledSpan(NamedTuple):
    """A constituent of at least two leaves; ``first`` and ``last`` are its outer leaves, inclusive."""

    first: int
    last: int
    label: str


@dataclass(frozen=True)
class LabelledTree:
    """A sentence and its constituents.

    Attributes:
        words: the leaves.
        tags: one per leaf; empty strings if the tree has no tags.
        constituents: those of two or more leaves, children before parents and left before right. A unary chain is one
            constituent per label.
        parents: a number per leaf; leaves directly below the same bracket share it.
        place: the source of the tree, for messages.
        word_ids: if the leaves are pieces of words, the word number of each leaf, or None if it is not known.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    constituents: tuple[LabelledSpan, ...]
    parents: tuple[int, ...]
    place: str = field(default="", compare=False)
    word_ids: tuple[int, ...] | None = field(default=None, compare=False)

    @property
    def num_leaves(self) -> int:
        return len(self.words)

    @property
    def spans(self) -> frozenset[Span]:
        """The spans of the constituents. The whole sentence is one of them if the tree has a bracket around it."""
        return frozenset((first, last) for first, last, _ in self.constituents)

    def are_punctuation(self, tags: Set[str] | None = None) -> list[bool]:
        """Whether each leaf is punctuation.

        Args:
            tags: the tags of punctuation. With None, a leaf is punctuation if its tag is one of `PUNCTUATION_TAGS`, or
                if Unicode says so of all its characters, whatever the language.
        """
        if tags is not None:
            return [tag in tags for tag in self.tags]
        rows = zip(self.tags, are_marks(self.words), strict=True)
        return [tag in PUNCTUATION_TAGS or (is_mark and tag not in WORD_TAGS) for tag, is_mark in rows]

    def are_empty(self) -> list[bool]:
        """Whether each leaf is a trace, a null subject, a missing ``that`` or a note, which nobody says."""
        return [
            tag in EMPTY_TAGS
            or EMPTY_WORD.fullmatch(word) is not None
            or (word == "0" and (tag == "C" or tag.startswith("W")))  # the number 0 has another tag
            for word, tag in zip(self.words, self.tags, strict=True)
        ]

    def without(self, are_removed: Sequence[bool]) -> "LabelledTree":
        """The tree without some of its leaves, and without constituents that have less than two others."""
        if not any(are_removed):
            return self
        before = list(accumulate((not removed for removed in are_removed), initial=0))  # leaves that stay
        spans = [(before[first], before[last + 1] - 1, label) for first, last, label in self.constituents]
        kept = [leaf for leaf, removed in enumerate(are_removed) if not removed]
        word_ids = None if self.word_ids is None else [self.word_ids[leaf] for leaf in kept]
        constituents = [LabelledSpan(*span) for span in spans if span[0] < span[1]]
        return self._over([self.words[leaf] for leaf in kept], kept, constituents, word_ids)

    def brackets(self) -> str:
        """The tree as a string, such as ``(S (NP (DT the) (NN cat)) (VBZ sleeps))``.

        ``X`` stands for a missing label or tag, and for the root of a sentence whose parts have none. Constituents of a
        single word are not written, and words with blanks or brackets are escaped. A tree without words is written as a
        trace, which readers of treebanks remove again.
        """
        if not self.words:
            return "(-NONE- *)"
        opened: list[list[str]] = [[] for _ in self.words]
        closed = [0] * self.num_leaves
        whole = (0, self.num_leaves - 1)
        root = () if self.num_leaves == 1 or whole in self.spans else (LabelledSpan(*whole, "X"),)
        for first, last, label in (*self.constituents, *root):  # children before parents
            opened[first].append(f"({escaped(label or 'X')} ")
            closed[last] += 1
        leaves = (f"({escaped(tag or 'X')} {escaped(word)})" for tag, word in zip(self.tags, self.words, strict=True))
        rows = zip(opened, leaves, closed, strict=True)
        return " ".join("".join(reversed(labels)) + leaf + ")" * ends for labels, leaf, ends in rows)

    def expand(self, pieces: Sequence[Sequence[str]]) -> "LabelledTree":
        """Turn every word into a constituent over its pieces, with the label ``WD`` (paper, Section 4.1.1).

        Args:
            pieces: the pieces of each word, at least one per word. A word of one piece stays a leaf.
        """
        starts = list(accumulate(map(len, pieces), initial=0))
        outer = [LabelledSpan(starts[i], starts[j + 1] - 1, label) for i, j, label in self.constituents]
        words = [
            LabelledSpan(starts[word], starts[word + 1] - 1, "WD")
            for word in range(len(pieces))
            if len(pieces[word]) > 1
        ]
        word_ids = [word for word, word_pieces in enumerate(pieces) for _ in word_pieces]
        return self._over(chain.from_iterable(pieces), word_ids, words + outer, word_ids)

    def to_words(self, word_ids: Sequence[int], words: Sequence[str]) -> "LabelledTree":
        """The tree over words, from this tree over their pieces. It keeps the constituents of two or more whole words.

        Args:
            word_ids: the word number of each leaf, from 0, never decreasing.
            words: the text of each word.
        """
        first_leaf = [leaf for leaf, word in enumerate(word_ids) if leaf == 0 or word != word_ids[leaf - 1]]
        begins = {*first_leaf, len(word_ids)}
        kept = [
            LabelledSpan(word_ids[i], word_ids[j], label)
            for i, j, label in self.constituents
            if i in begins and j + 1 in begins and word_ids[i] != word_ids[j]
        ]
        return self._over(words, first_leaf, kept)

    def _over(
        self,
        words: Iterable[str],
        leaves: Sequence[int],
        constituents: Iterable[LabelledSpan],
        word_ids: Sequence[int] | None = None,
    ) -> "LabelledTree":
        """A tree over other words; each has the tag and the parent of one of the leaves of this tree."""
        tags, parents = tuple(self.tags[leaf] for leaf in leaves), tuple(self.parents[leaf] for leaf in leaves)
        word_ids = None if word_ids is None else tuple(word_ids)
        return LabelledTree(tuple(words), tags, tuple(constituents), parents, self.place, word_ids)


def from_spans(
    words: Sequence[str], spans: Iterable[Span], place: str = "", word_ids: Sequence[int] | None = None
) -> LabelledTree:
    """Make a tree without labels or tags.

    Args:
        words: the leaves.
        spans: as first and last leaf, inclusive. Repeated spans, and spans of one leaf, are ignored.
        place, word_ids: as for `LabelledTree`.
    """
    ordered = sorted({span for span in spans if span[0] < span[1]}, key=lambda span: (span[1], -span[0]))
    constituents = tuple(LabelledSpan(first, last, "") for first, last in ordered)
    leaves = tuple(words), ("",) * len(words), constituents, tuple(range(len(words)))
    return LabelledTree(*leaves, place, None if word_ids is None else tuple(word_ids))


def check_spans(spans: Sequence[Span], num_leaves: int, place: str) -> None:
    """Raise a ValueError that names the place if a span lies outside the leaves, or if two spans cross."""
    around: list[Span] = []  # the spans that begin at or before the current one and go on, outermost first
    for first, last in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not 0 <= first <= last < num_leaves:
            raise ValueError(f"{place}: the span {(first, last)} lies outside the leaves 0 ... {num_leaves - 1}")
        while around and around[-1][1] < first:
            around.pop()
        if around and last > around[-1][1]:
            raise ValueError(f"{place}: the spans {around[-1]} and {(first, last)} cross")
        around.append((first, last))


def parse_brackets(text: str, has_labels: bool = True, place: str = "") -> LabelledTree:
    """Read a tree from a bracketed string, without recursion.

    Args:
        text: the string.
        has_labels: whether the first token of a bracket is a label, as in ``(NP (DT the) (NN cat))``. Otherwise every
            token is a word, as in ``((the cat) (sat down))``.
        place: the source of the string, for messages.

    Raises:
        ValueError: if the string is not one balanced tree; the message names ``place``.
    """
    return _Reader(has_labels, place or f"{text[:60]!r}").read(text)


@dataclass
class _Bracket:
    number: int
    label: str
    first: int  # its first leaf
    children: int = 0  # leaves and brackets directly below it
    has_word: bool = False


class _Reader:
    """Builds a tree from the tokens of its string, from left to right."""

    def __init__(self, has_labels: bool, place: str):
        self.has_labels, self.place = has_labels, place
        self.leaves: list[tuple[str, str, int]] = []  # word, tag, and the number of the bracket around it
        self.constituents: list[LabelledSpan] = []
        self.open: list[_Bracket] = []
        self.brackets = 0

    def read(self, text: str) -> LabelledTree:
        if self.has_labels and text.strip() and text.lstrip()[0] not in "()":
            self.refuse("it does not begin with a bracket")
        previous, finished = "", False
        for token in re.findall(r"[()]|[^() \t\r\n\f\v]+", text):  # other kinds of blanks may be part of a word
            if finished:
                self.refuse(f"{token!r} after the tree has ended")
            if token == "(":
                self.brackets += 1
                self.open.append(_Bracket(self.brackets, "", len(self.leaves)))
            elif token == ")":
                self.close(previous)
            elif previous == "(" and self.has_labels:
                self.open[-1].label = token
            else:
                self.add_word(token)
            previous, finished = token, not self.open
        if self.open:
            self.refuse(f"unclosed brackets: {len(self.open)}")
        if not previous:
            self.refuse("it is empty")
        words, tags, parents = zip(*self.leaves, strict=True) if self.leaves else ((), (), ())
        return LabelledTree(words, tags, tuple(self.constituents), parents, self.place)

    def add_word(self, word: str) -> None:
        if self.open:
            self.open[-1].children += 1
            self.open[-1].has_word = True
        self.add_leaf(word, "")

    def add_leaf(self, word: str, tag: str) -> None:
        self.leaves.append((word, tag, self.open[-1].number if self.open else 0))

    def last_words(self) -> str:
        return repr(" ".join(word for word, *_ in self.leaves[-3:]))

    def close(self, previous: str) -> None:
        if not self.open:
            self.refuse(f"one ')' too many after {self.last_words()}")
        if previous == "(" or (self.has_labels and not self.open[-1].children):
            self.refuse(f"a bracket without children after {self.last_words()}")
        bracket = self.open.pop()
        if self.open:
            self.open[-1].children += 1
        if bracket.children == 1 and bracket.has_word:
            word, *_ = self.leaves.pop()
            self.add_leaf(word, bracket.label)
        elif len(self.leaves) - bracket.first > 1 and (bracket.label or bracket.children > 1):
            self.constituents.append(LabelledSpan(bracket.first, len(self.leaves) - 1, plain_label(bracket.label)))

    def refuse(self, problem: str) -> None:
        raise ValueError(f"{self.place}: not a bracketed tree: {problem}")


def plain_label(label: str) -> str:
    """The label without function tags and indices: ``NP`` for ``NP-SBJ-1``, ``NP=2`` and ``NP|PRN``."""
    return re.split(r"[-=|]", label)[0] or label


def spelling(word: str) -> str:
    """A spelling by which leaves of different sources are compared.

    It has no case, accents and backslashes; ``-LRB-`` and the like become brackets, and blanks become ``_``.
    """
    plain = as_character(re.sub(r"\s", "_", word.casefold().replace("\\", "")))
    plain = plain.replace("-lrb-", "(").replace("-rrb-", ")")  # `escaped` writes these within words, too
    if plain.isascii():
        return plain
    return "".join(c for c in unicodedata.normalize("NFKD", plain) if unicodedata.category(c) not in ("Mn", "Cc", "Cf"))
