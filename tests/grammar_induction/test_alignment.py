"""Leaves beside gold words where some are unknown, against a regular expression."""

import re

from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import align, parse_brackets, score_trees
from modeling_fast_r2d2.grammar_induction.alignment import words_of_parts
from modeling_fast_r2d2.grammar_induction.labelled_trees import from_spans

UNKNOWN = "[UNK]"
WORDS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5)
PARTS = st.lists(st.none() | st.text("ab", min_size=1, max_size=3), min_size=1, max_size=7)


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


@given(cut_words() | st.tuples(WORDS, PARTS))
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


def test_leaves_of_accents_alone_belong_to_the_word_before_them():
    """Thai and Hindi write vowels and tones so; a word may end in some."""
    gold = parse_brackets("(S (NP (N บ้าน) (D นี้)) (VP (V สวย) (ADV มาก)))")
    leaves = ["บ", "้", "า", "น", "น", "ี", "้", "ส", "ว", "ย", "ม", "า", "ก"]
    for unknown in (None, 0, 4, 12):
        tree = from_spans([UNKNOWN if leaf == unknown else text for leaf, text in enumerate(leaves)], [(0, 6), (7, 12)])
        assert score_trees([tree], [gold]).sentence_f1 == 100
    hindi = parse_brackets("(S (NP (N किताबें) (N घर)))")
    assert align([from_spans(["किताब", "##े", "##ं", "घर"], [(0, 2)])], [hindi])[0][0].words == ("किताबें", "घर")


def test_brackets_within_words_are_spelled_as_they_are_written():
    gold = parse_brackets("(S (NP (N key-LRB-s-RRB-) (N :-LRB-)) (V x))")
    written = from_spans(["key(s)", ":(", "x"], [(0, 1)])
    for one, other in ((written, gold), (parse_brackets(gold.brackets()), written)):
        assert align([one], [other])[0][0].spans == {(0, 1)} | one.spans
