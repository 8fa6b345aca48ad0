"""What is punctuation between words, what is left without it, and where constituents may end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.punctuation import is_mark, is_punctuation, set_aside


def pieces_of(text):
    """As a tokenizer has them: runs of letters or digits, halves of words longer than five, marks alone."""
    offsets, word_ids = [], []
    for word, match in enumerate(re.finditer(r"\w+|[^\w\s]", text)):
        start, end = match.span()
        cuts = [start, (start + end) // 2, end] if end - start > 5 else [start, end]
        offsets += list(zip(cuts, cuts[1:], strict=False))
        word_ids += [word] * (len(cuts) - 1)
    return offsets, word_ids


def shown(text):
    """Words, with a bar where punctuation tells of a constituent's end."""
    offsets, word_ids = pieces_of(text)
    kept, words, bounds = set_aside(text, offsets, word_ids)
    result = ""
    for place, piece in enumerate(kept):
        if place and words[place] != words[place - 1]:
            result += " | " if place - 1 in bounds else " "
        result += text[slice(*offsets[piece])]
    return result


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Mr. Vinken , 61 years old , will n't join .", "Mr. Vinken | 61 years old | will n't join"),
        ("Mr. Vinken, 61, isn't here (yet): the cats' tails...", "Mr. Vinken | 61 | isn't here | yet | the cats tails"),
        ("the board 's well-known , 3.5 % of U.S. firms", "the board 's well-known | 3.5 % of U.S. firms"),
        ('`` So , " he said , `` go . ""', "So | he said | go"),
        ("$ 5 and US$7 -- R&D ; x * y", "$ 5 and US $ 7 | R&D | x * y"),
        ("他說，我們去。", "他說 | 我們去"),
        (", . ! ?", ""),
        ("", ""),
    ],
)
def test_marks_between_words_are_set_aside(text, left):
    assert shown(text) == left


@given(st.text("ab1 ,.'\"-()%—他，"))
def test_what_is_left_is_in_order_and_nothing_else_is_lost(text):
    offsets, word_ids = pieces_of(text)
    kept, words, bounds = set_aside(text, offsets, word_ids)
    marks = [piece for piece, place in enumerate(offsets) if is_mark(text, *place)]
    assert sorted(kept + marks) == list(range(len(offsets))) and kept == sorted(kept)
    assert len(words) == len(kept) and words[:1] in ([], [0])
    assert all(after - before in (0, 1) for before, after in zip(words, words[1:], strict=False))
    assert all(0 <= bound < len(kept) - 1 for bound in bounds) and bounds == sorted(set(bounds))
    for bound in bounds:  # a mark lies between, and no word goes on over it
        between = text[offsets[kept[bound]][1] : offsets[kept[bound + 1]][0]]
        assert any(map(is_punctuation, between)) and words[bound] != words[bound + 1]
