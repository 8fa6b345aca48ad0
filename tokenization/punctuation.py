"""Punctuation: it is set aside before parsing and put back into the trees.

Trees are scored against treebanks without punctuation, so parsers of raw text learn without it, too. But commas,
brackets and similar marks stand where constituents end (Spitkovsky et al., 2011, W11-0303). Training and parsing can
use this: see `ReadSentence.bounds`.
"""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from .trees import BinaryTree

APOSTROPHES = "'’"
QUOTES = "\"'`´“”„‟‘’‚‛«»‹›"  # a constituent may end on either side of a quote, so quotes give no bounds
SYMBOLS = "%‰&@#*/\\§†‡•·"  # Unicode calls these punctuation; we treat them as words
# How treebanks write brackets.
BRACKETS = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lcb-": "{",
    "-rcb-": "}",
    "-lsb-": "[",
    "-rsb-": "]",
}


def put_back(tree: BinaryTree, places: Sequence[int], opens: Sequence[bool]) -> BinaryTree:
    """Put marks back into a tree over the words. All constituents of the words remain.

    A mark becomes the sister of the widest constituent that ends just before it. A mark that opens becomes the sister
    of the widest constituent that begins just after it. Marks at the two ends of the sentence are attached to the whole
    sentence, first those at its beginning, then those at its end.

    Args:
        tree: the tree over the words.
        places: for each mark, in order, the number of words before it.
        opens: for each mark, whether it belongs to the words after it, as ``(`` does.

    Returns:
        The tree over words and marks.
    """
    marks: list[list[bool]] = [[] for _ in range(tree.num_leaves + 1)]
    for place, opens_here in zip(places, opens, strict=True):
        marks[place].append(opens_here)
    order: list[tuple[float, float]] = []  # one entry per split point; the smallest splits first
    for place, here in enumerate(marks):
        if place == 0:
            order += [(-1, number) for number in range(len(here))]
        elif place == tree.num_leaves:
            order += [(-2, -number) for number in range(len(here))]
        else:
            order += _around(tree.depths[place - 1], here)
    return BinaryTree.from_order(order)


def _around(depth: int, opens: list[bool]) -> list[tuple[float, float]]:
    """The order of the split points between two words: one for the words themselves, and one per mark between them."""
    closing = opens.index(True) if True in opens else len(opens)
    return [(depth, closing - number if number < closing else number - closing) for number in range(len(opens) + 1)]


def are_marks(words: Sequence[str]) -> list[bool]:
    """Whether each word of a sentence is a punctuation mark. The apostrophe of a genitive is none."""
    return [
        is_punctuation(as_character(word)) and not is_genitive(word, before)
        for before, word in pairwise(["", *words])
    ]  # fmt: skip


def is_punctuation(piece: str) -> bool:
    """Whether a piece is nothing but punctuation. Symbols such as ``%`` and ``&`` are not punctuation."""
    if not piece or piece[0].isalnum():  # nearly all words: this saves time
        return False
    return all(
        unicodedata.category(character)[0] == "P" and character not in SYMBOLS or character in QUOTES
        for character in piece
    )


def is_opening(mark: str, num_before: int = 0) -> bool:
    """Whether a mark is an opening bracket or quote, which belongs to the words after it.

    Args:
        num_before: the number of equal marks before it. Opening and closing ``"`` look the same, so they take turns.
    """
    mark = as_character(mark)
    if set(mark) == {'"'}:
        return num_before % 2 == 0
    return mark[0] == "`" or unicodedata.category(mark[0]) in ("Ps", "Pi")


def is_genitive(piece: str, before: str) -> bool:
    """Whether a piece is the apostrophe of a genitive, as in ``the cats' tails``.

    Args:
        before: the text before the piece, without blanks at its end.
    """
    return piece in APOSTROPHES and before[-1:] in ("s", "S")


def is_quote(mark: str) -> bool:
    """Whether a mark is nothing but quotes."""
    return all(character in QUOTES for character in mark)


def as_character(word: str) -> str:
    """The bracket that a treebank's word stands for: ``(`` for ``-LRB-``. Other words are returned unchanged."""
    return BRACKETS.get(word.lower(), word)


__all__ = [
    "are_marks",
    "as_character",
    "is_genitive",
    "is_opening",
    "is_punctuation",
    "is_quote",
    "put_back",
]
