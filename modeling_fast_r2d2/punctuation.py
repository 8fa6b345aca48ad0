"""Punctuation: it is set aside before parsing and put back into the trees.

Trees are scored against treebanks without punctuation, so parsers of raw text learn without it, too. But commas,
brackets and similar marks stand where constituents end (Spitkovsky et al., 2011, W11-0303). Training and parsing can
use this: see `SetAside.bounds`.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from .trees import BinaryTree

APOSTROPHES = "'’"
QUOTES = "\"'`´“”„‟‘’‚‛«»‹›"  # a constituent may end on either side of a quote, so quotes give no bounds
SYMBOLS = "%‰&@#*/\\§†‡•·"  # Unicode calls these punctuation; we treat them as words
JOINTS = "&@/*\\"  # the symbols that join the words on both sides into one, as in AT&T, and/or
# How treebanks write brackets.
BRACKETS = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lcb-": "{",
    "-rcb-": "}",
    "-lsb-": "[",
    "-rsb-": "]",
}


class SetAside(NamedTuple):
    """The pieces of a sentence that remain without its marks.

    Attributes:
        kept: the numbers of the pieces that remain, in order.
        word_ids: the word number of each of them, from 0. ``well-known`` and ``3.5`` are one word each, even where
            the tokenizer makes three.
        bounds: split points where a mark other than a quote stood; ``k`` lies between kept pieces ``k`` and ``k + 1``.
    """

    kept: list[int]
    word_ids: list[int]
    bounds: list[int]


def set_aside(text: str, offsets: Sequence[tuple[int, int]], word_ids: Sequence[int | None]) -> SetAside:
    """Take the marks between words out of a sentence.

    Args:
        text: the sentence.
        offsets: for each piece, its first character and the one after its last.
        word_ids: the tokenizer's word number of each piece.
    """
    kept: list[int] = []
    words: list[int] = []
    bounds: list[int] = []
    for piece, (start, end) in enumerate(offsets):
        if is_mark(text, start, end):
            if kept and not is_quote(text[start:end]):
                bounds.append(len(kept) - 1)
            continue
        continues_word = bool(kept) and (
            word_ids[piece] == word_ids[kept[-1]] is not None or _are_one_word(text, offsets[kept[-1]], (start, end))
        )
        words.append(words[-1] + (not continues_word) if kept else 0)
        kept.append(piece)
    return SetAside(kept, words, sorted({bound for bound in bounds if bound < len(kept) - 1}))


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


def is_mark(text: str, start: int, end: int) -> bool:
    """Whether ``text[start:end]`` is punctuation between words.

    Punctuation within a word is no mark: ``well-known``, ``3.5``, ``don't``, ``'s``, ``cats'``. The same is true of the
    full stop in ``Mr.``, except at the end of a sentence. Scripts without blanks have no punctuation within words.
    """
    piece = text[start:end]
    if not is_punctuation(piece) or is_genitive(piece, text[max(start - 2, 0) : start].rstrip()):
        return False
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if _is_word_character(after):
        return not (_is_word_character(before) or piece in APOSTROPHES)
    may_be_abbreviation = piece == "." and _is_word_character(before) and after != "."
    return not (may_be_abbreviation and any(_is_word_character(text[place]) for place in range(end, len(text))))


def is_punctuation(piece: str) -> bool:
    """Whether a piece is nothing but punctuation. Symbols such as ``%`` and ``&`` are not punctuation."""
    return bool(piece) and all(
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


def _are_one_word(text: str, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two pieces touch and one of them is punctuation within a word."""
    return first[1] == second[0] and any(_is_within_word(text, *place) for place in (first, second))


def _is_within_word(text: str, start: int, end: int) -> bool:
    """Whether a piece that is no mark is punctuation within a word."""
    piece, around = text[start:end], (text[max(start - 1, 0) : start], text[end : end + 1])
    return is_punctuation(piece) or (piece in JOINTS and all(map(_is_word_character, around)))


def _is_word_character(character: str) -> bool:
    return character.isalnum() and unicodedata.east_asian_width(character) not in "WF"


__all__ = [
    "SetAside",
    "as_character",
    "is_genitive",
    "is_mark",
    "is_opening",
    "is_punctuation",
    "is_quote",
    "put_back",
    "set_aside",
]
