"""Trees of any arity with labels, as treebanks have them and as any parser may predict them."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..punctuation import as_character
from ..trees import escaped

Span = tuple[int, int]

TRACE_TAGS = frozenset({"-NONE-"})
# What the Penn and the Chinese Treebank tag as punctuation, and currency signs, which the field leaves out with it.
PUNCTUATION_TAGS = frozenset({",", ".", ":", "-LRB-", "-RRB-", "''", "``", "$", "#", "PU"})


class Constituent(NamedTuple):
    """``first`` and ``last`` leaf, inclusive, at least two of them."""

    first: int
    last: int
    label: str


@dataclass(frozen=True)
class LabelledTree:
    """A sentence and its constituents.

    Attributes:
        words: the leaves.
        tags: one a leaf, empty where a tree has none.
        constituents: those of two or more leaves, children before parents and left before right. A unary chain gives
            one for each of its labels.
        parents: for each leaf a number that leaves below the same bracket share.
        place: where the tree comes from, for messages.
        word_ids: for leaves that are pieces of words, the number of each one's word, where that is known.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    constituents: tuple[Constituent, ...]
    parents: tuple[int, ...]
    place: str = field(default="", compare=False)
    word_ids: tuple[int, ...] | None = field(default=None, compare=False)

    @property
    def num_leaves(self) -> int:
        return len(self.words)

    @property
    def spans(self) -> frozenset[Span]:
        """Without labels; the whole sentence among them, if the tree has a bracket around it."""
        return frozenset((first, last) for first, last, _ in self.constituents)

    def brackets(self) -> str:
        """Such as ``(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))``; what has no label or tag is an ``X``. Single-word
        constituents are not among those kept, and words with blanks or brackets are escaped. A tree without words is a
        trace, which readers leave out again."""
        if not self.words:
            return "(-NONE- *)"
        opened: list[list[str]] = [[] for _ in self.words]
        closed = [0] * self.num_leaves
        for first, last, label in self.constituents:  # children before parents
            opened[first].append(f"({label or 'X'} ")
            closed[last] += 1
        leaves = (f"({tag or 'X'} {escaped(word)})" for tag, word in zip(self.tags, self.words, strict=True))
        rows = zip(opened, leaves, closed, strict=True)
        return " ".join("".join(reversed(labels)) + leaf + ")" * ends for labels, leaf, ends in rows)

    def expand(self, pieces: Sequence[Sequence[str]]) -> "LabelledTree":
        """Every word becomes a constituent, labelled ``WD``, of its pieces (paper, Section 4.1.1).

        Args:
            pieces: the pieces of each word, at least one. A word of one piece stays a leaf.
        """
        starts = [0]
        for word_pieces in pieces:
            starts.append(starts[-1] + len(word_pieces))
        outer = [Constituent(starts[i], starts[j + 1] - 1, label) for i, j, label in self.constituents]
        words = [
            Constituent(starts[word], starts[word + 1] - 1, "WD")
            for word in range(len(pieces))
            if len(pieces[word]) > 1
        ]
        word_ids = tuple(word for word, word_pieces in enumerate(pieces) for _ in word_pieces)
        return LabelledTree(
            words=tuple(piece for word_pieces in pieces for piece in word_pieces),
            tags=tuple(self.tags[word] for word in word_ids),
            constituents=tuple(words + outer),
            parents=tuple(self.parents[word] for word in word_ids),
            place=self.place,
            word_ids=word_ids,
        )

    def to_words(self, word_ids: Sequence[int], words: Sequence[str]) -> "LabelledTree":
        """The tree over words of one over their pieces: constituents that begin and end with a word stay.

        Args:
            word_ids: for each leaf the number of its word, from 0, never decreasing.
        """
        begins = {leaf for leaf in range(len(word_ids) + 1) if leaf in (0, len(word_ids))}
        begins |= {leaf for leaf in range(1, len(word_ids)) if word_ids[leaf] != word_ids[leaf - 1]}
        kept = [
            Constituent(word_ids[i], word_ids[j], label)
            for i, j, label in self.constituents
            if i in begins and j + 1 in begins and word_ids[i] != word_ids[j]
        ]
        first_leaf = [leaf for leaf in range(len(word_ids)) if leaf in begins]
        tags, parents = ([row[leaf] for leaf in first_leaf] for row in (self.tags, self.parents))
        return LabelledTree(tuple(words), tuple(tags), tuple(kept), tuple(parents), self.place)


def from_spans(
    words: Sequence[str], spans: Iterable[Span], place: str = "", word_ids: Sequence[int] | None = None
) -> LabelledTree:
    """A tree without labels; spans of one leaf and repeated ones are left out."""
    ordered = sorted({span for span in spans if span[0] < span[1]}, key=lambda span: (span[1], -span[0]))
    constituents = tuple(Constituent(first, last, "") for first, last in ordered)
    leaves = tuple(words), ("",) * len(words), constituents, tuple(range(len(words)))
    return LabelledTree(*leaves, place, None if word_ids is None else tuple(word_ids))


def parse_brackets(
    text: str, removed_tags: frozenset[str] = frozenset(), has_labels: bool = True, place: str = ""
) -> LabelledTree:
    """A tree from a bracketed string, read from left to right without recursion.

    Args:
        removed_tags: leaves so tagged are left out, and with them constituents that have no other leaf.
        has_labels: ``(NP (DT the) (NN cat))``; otherwise every token is a word, ``((the cat) (sat down))``.

    Raises:
        ValueError: naming ``place``, for what is not one balanced tree.
    """
    return _Reader(removed_tags, has_labels, place or f"{text[:60]!r}").read(text)


@dataclass
class _Bracket:
    number: int
    label: str
    first: int  # the first of its leaves
    children: int = 0
    has_word: bool = False


class _Reader:
    def __init__(self, removed_tags: frozenset[str], has_labels: bool, place: str):
        self.removed_tags, self.has_labels, self.place = removed_tags, has_labels, place
        self.words: list[str] = []
        self.tags: list[str] = []
        self.parents: list[int] = []
        self.constituents: list[Constituent] = []
        self.open: list[_Bracket] = []
        self.brackets = 0

    def read(self, text: str) -> LabelledTree:
        previous, finished = "", False
        for token in re.findall(r"[()]|[^() \t\r\n\f\v]+", text):  # other blanks may stand in words
            if finished:
                self.refuse(f"{token!r} after the tree has ended")
            if token == "(":
                self.brackets += 1
                self.open.append(_Bracket(self.brackets, "", len(self.words)))
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
        if self.has_labels and not text.lstrip().startswith("("):
            self.refuse("it does not begin with a bracket")
        words = tuple(self.words), tuple(self.tags)
        return LabelledTree(*words, tuple(self.constituents), tuple(self.parents), self.place)

    def add_word(self, word: str) -> None:
        if self.open:
            self.open[-1].children += 1
            self.open[-1].has_word = True
        self.words.append(word)
        self.tags.append("")
        self.parents.append(self.open[-1].number if self.open else 0)

    def close(self, previous: str) -> None:
        if not self.open:
            self.refuse(f"a ')' too many after {' '.join(self.words[-3:])!r}")
        if previous == "(" or (self.has_labels and not self.open[-1].children):
            self.refuse(f"a bracket without children after {' '.join(self.words[-3:])!r}")
        bracket = self.open.pop()
        if self.open:
            self.open[-1].children += 1
        if bracket.children == 1 and bracket.has_word:
            self.close_leaf(bracket)
        elif len(self.words) - bracket.first > 1 and (bracket.label or bracket.children > 1):
            self.constituents.append(Constituent(bracket.first, len(self.words) - 1, plain_label(bracket.label)))

    def close_leaf(self, bracket: _Bracket) -> None:
        if bracket.label in self.removed_tags:
            del self.words[-1], self.tags[-1], self.parents[-1]
        else:
            self.tags[-1] = bracket.label
            self.parents[-1] = self.open[-1].number if self.open else 0

    def refuse(self, problem: str) -> None:
        raise ValueError(f"{self.place}: no bracketed tree, {problem}")


def plain_label(label: str) -> str:
    """Without function tags and indices: ``NP`` of ``NP-SBJ-1``, ``NP=2`` and ``NP|PRN``."""
    return re.split(r"[-=|]", label)[0] or label


def spelling(word: str) -> str:
    """What is compared of two leaves: no case, no accents, no backslash before ``/``, brackets as characters, blanks as
    ``_``."""
    plain = re.sub(r"\s", "_", word.casefold().replace("\\", ""))
    plain = as_character(plain)
    if plain.isascii():
        return plain
    return "".join(c for c in unicodedata.normalize("NFKD", plain) if unicodedata.category(c) not in ("Mn", "Cc", "Cf"))


__all__ = [
    "PUNCTUATION_TAGS",
    "TRACE_TAGS",
    "Constituent",
    "LabelledTree",
    "from_spans",
    "parse_brackets",
    "plain_label",
    "spelling",
]
