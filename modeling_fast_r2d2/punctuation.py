"""Punctuation that is set aside before parsing, and what it tells about constituents.

Treebanks are scored without punctuation, and so parsers from raw text learn without it. But commas, brackets and the
like stand where constituents end (Spitkovsky et al., 2011, W11-0303), which training and parsing can use.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

APOSTROPHES = "'’"
QUOTES = "\"'`´“”„‟‘’‚‛«»‹›"  # speech ends before them or after them: they bound, but do not tell what
SYMBOLS = "%‰&@#*/\\§†‡•·"  # punctuation by their category, read as words
JOINTS = "&@/*\\"  # of these, what makes one word of those on both sides: AT&T, and/or


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
            if kept and text[start:end] not in QUOTES:
                bounds.append(len(kept) - 1)
            continue
        goes_on = bool(kept) and (
            word_ids[piece] == word_ids[kept[-1]] is not None or _are_one_word(text, offsets[kept[-1]], (start, end))
        )
        words.append(words[-1] + (not goes_on) if kept else 0)
        kept.append(piece)
    return SetAside(kept, words, sorted({bound for bound in bounds if bound < len(kept) - 1}))


def is_mark(text: str, start: int, end: int) -> bool:
    """Whether ``text[start:end]`` is punctuation that stands between words, not within one: not in ``well-known``,
    ``3.5``, ``don't``, ``'s`` or, but at the end of a sentence, ``Mr.``. Scripts without blanks have no such words."""
    piece = text[start:end]
    if not is_punctuation(piece):
        return False
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if _is_of_a_word(after):
        return not (_is_of_a_word(before) or piece in APOSTROPHES)
    is_abbreviation = piece == "." and _is_of_a_word(before) and after != "."
    return not (is_abbreviation and any(map(_is_of_a_word, text[end:])))


def is_punctuation(piece: str) -> bool:
    """Nothing but punctuation, which ``%`` and ``&`` are not."""
    return bool(piece) and all(
        unicodedata.category(character)[0] == "P" and character not in SYMBOLS or character in QUOTES
        for character in piece
    )


def _are_one_word(text: str, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Pieces side by side, one of them punctuation within a word."""
    return first[1] == second[0] and any(_is_within_word(text, *place) for place in (first, second))


def _is_within_word(text: str, start: int, end: int) -> bool:
    """Of a piece that is no mark."""
    piece, around = text[start:end], (text[max(start - 1, 0) : start], text[end : end + 1])
    return is_punctuation(piece) or (piece in JOINTS and all(map(_is_of_a_word, around)))


def _is_of_a_word(character: str) -> bool:
    return character.isalnum() and unicodedata.east_asian_width(character) not in "WF"


__all__ = ["SetAside", "is_mark", "is_punctuation", "set_aside"]
