"""Punctuation that is set aside before parsing, what it tells about constituents, and how it comes back into trees.

Treebanks are scored without punctuation, and so parsers from raw text learn without it. But commas, brackets and the
like stand where constituents end (Spitkovsky et al., 2011, W11-0303), which training and parsing can use.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from .trees import BinaryTree

APOSTROPHES = "'’"
QUOTES = "\"'`´“”„‟‘’‚‛«»‹›"  # speech ends before them or after them: they bound, but do not tell what
SYMBOLS = "%‰&@#*/\\§†‡•·"  # punctuation by their category, read as words
JOINTS = "&@/*\\"  # of these, what makes one word of those on both sides: AT&T, and/or
BRACKETS = {
    "-lrb-": "(",
    "-rrb-": ")",
    "-lcb-": "{",
    "-rcb-": "}",
    "-lsb-": "[",
    "-rsb-": "]",
}  # as treebanks have them


class SetAside(NamedTuple):
    """What is left of a sentence's pieces without its marks.

    Attributes:
        kept: which pieces stay, in order.
        word_ids: numbers of their words, from 0. A word is whole where marks inside of it, as in ``well-known`` or
            ``3.5``, are pieces of their own.
        bounds: split points between kept pieces, ``k`` behind the ``k``-th, where a mark other than a quote stood.
    """

    kept: list[int]
    word_ids: list[int]
    bounds: list[int]


def set_aside(text: str, offsets: Sequence[tuple[int, int]], word_ids: Sequence[int | None]) -> SetAside:
    """Take the marks between words out of a sentence.

    Args:
        text: the sentence.
        offsets: first character of each piece and the one behind its last.
        word_ids: as the tokenizer has them.
    """
    kept: list[int] = []
    words: list[int] = []
    bounds: list[int] = []
    for piece, (start, end) in enumerate(offsets):
        if is_mark(text, start, end):
            if kept and not is_quote(text[start:end]):
                bounds.append(len(kept) - 1)
            continue
        goes_on = bool(kept) and (
            word_ids[piece] == word_ids[kept[-1]] is not None or _are_one_word(text, offsets[kept[-1]], (start, end))
        )
        words.append(words[-1] + (not goes_on) if kept else 0)
        kept.append(piece)
    return SetAside(kept, words, sorted({bound for bound in bounds if bound < len(kept) - 1}))


def put_back(tree: BinaryTree, places: Sequence[int], opens: Sequence[bool]) -> BinaryTree:
    """The tree over words and marks of a tree over the words.

    A mark becomes the sister of the widest constituent that ends before it or, if it opens, that begins behind it; all
    other constituents stay. Marks at the ends of the sentence are sisters of all of it, those at its end the higher.

    Args:
        tree: over the words.
        places: for each mark, in order, how many words stand before it.
        opens: for each, whether it belongs to what follows, as ``(`` does.
    """
    marks = [[] for _ in range(tree.num_leaves + 1)]
    for place, is_opening in zip(places, opens, strict=True):
        marks[place].append(is_opening)
    order: list[tuple[float, float]] = []  # of the split points: the least splits first
    for place, here in enumerate(marks):
        if place == 0:
            order += [(-1, number) for number in range(len(here))]
        elif place == tree.num_leaves:
            order += [(-2, -number) for number in range(len(here))]
        else:
            order += _around(tree.depths[place - 1], here)
    return BinaryTree.from_order(order)


def _around(depth: int, opens: list[bool]) -> list[tuple[float, float]]:
    """The split points between two words with marks between them, of which one is the words' own."""
    closing = opens.index(True) if True in opens else len(opens)
    return [(depth, closing - number if number < closing else number - closing) for number in range(len(opens) + 1)]


def is_mark(text: str, start: int, end: int) -> bool:
    """Whether ``text[start:end]`` is punctuation that stands between words, not within one: not in ``well-known``,
    ``3.5``, ``don't``, ``'s``, ``cats'`` or, but at the end of a sentence, ``Mr.``. Scripts without blanks have no such
    words."""
    piece = text[start:end]
    if not is_punctuation(piece) or is_genitive(piece, text[max(start - 2, 0) : start].rstrip()):
        return False
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if _is_of_a_word(after):
        return not (_is_of_a_word(before) or piece in APOSTROPHES)
    is_abbreviation = piece == "." and _is_of_a_word(before) and after != "."
    return not (is_abbreviation and any(_is_of_a_word(text[place]) for place in range(end, len(text))))


def is_punctuation(piece: str) -> bool:
    """Nothing but punctuation, which ``%`` and ``&`` are not."""
    return bool(piece) and all(
        unicodedata.category(character)[0] == "P" and character not in SYMBOLS or character in QUOTES
        for character in piece
    )


def is_opening(mark: str, num_before: int = 0) -> bool:
    """Whether a mark belongs to what follows it: brackets and quotes that open.

    Args:
        num_before: how many equal marks stand before it. Of quotes that look alike on both sides, every other opens.
    """
    mark = as_character(mark)
    if set(mark) == {'"'}:
        return num_before % 2 == 0
    return mark[0] == "`" or unicodedata.category(mark[0]) in ("Ps", "Pi")


def is_genitive(piece: str, before: str) -> bool:
    """An apostrophe behind an s, as in ``the cats' tails``, also where a blank stands between."""
    return piece in APOSTROPHES and before[-1:] in ("s", "S")


def is_quote(mark: str) -> bool:
    return all(character in QUOTES for character in mark)


def as_character(word: str) -> str:
    """A bracket of a treebank as it is: ``(`` for ``-LRB-``."""
    return BRACKETS.get(word.lower(), word)


def _are_one_word(text: str, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Pieces side by side, one of them punctuation within a word."""
    return first[1] == second[0] and any(_is_within_word(text, *place) for place in (first, second))


def _is_within_word(text: str, start: int, end: int) -> bool:
    """Of a piece that is no mark."""
    piece, around = text[start:end], (text[max(start - 1, 0) : start], text[end : end + 1])
    return is_punctuation(piece) or (piece in JOINTS and all(map(_is_of_a_word, around)))


def _is_of_a_word(character: str) -> bool:
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
