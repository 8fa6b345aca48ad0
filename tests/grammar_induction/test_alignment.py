"""Leaves beside gold words where some are unknown, against a regular expression."""

import re

from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import align, parse_brackets
from modeling_fast_r2d2.grammar_induction.alignment import words_of_parts

WORDS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5)


def by_expression(words, parts):
    """Unknown parts are as short as they can be; a dot matches no line end."""
    pattern = "\n?".join("(.+?)" if part is None else f"({re.escape(part)})" for part in parts)
    text = "\n".join(words)
    found = re.fullmatch(pattern, text)
    return found and [text.count("\n", 0, found.start(group)) for group in range(1, len(parts) + 1)]


@st.composite
def cut_words(draw):
    """Words, and parts of them of which some are unknown, or any other parts."""
    words = draw(WORDS)
    parts: list[str | None] = []
    for word in words:
        cuts = sorted({0, len(word), *draw(st.lists(st.integers(0, len(word)), max_size=2))})
        parts += [word[i:j] for i, j in zip(cuts, cuts[1:], strict=False)]
    return words, [None if draw(st.booleans()) else part for part in parts]


@given(
    cut_words() | st.tuples(WORDS, st.lists(st.none() | st.text("ab", min_size=1, max_size=3), min_size=1, max_size=7))
)
def test_unknown_parts_are_found_as_an_expression_finds_them(drawn):
    words, parts = drawn
    assert words_of_parts(words, parts) == by_expression(words, parts)


def test_ten_thousand_unknown_leaves_are_aligned():
    gold = parse_brackets("(S " + " ".join(["(NN abcdefgh)"] * 10_000) + ")")
    unknown = parse_brackets("(S " + " ".join(["(X [UNK])"] * 10_000) + ")")
    [found], _ = align([unknown], [gold])
    assert found.words == gold.words
    assert words_of_parts(["abcdefgh"] * 20, [None] * 21) is not None
    assert words_of_parts(["abcdefgh"] * 20, [None] * 19) is None
