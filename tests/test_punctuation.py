"""What is punctuation between words, what is left without it, and where constituents may end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.punctuation import is_mark, is_opening, is_punctuation, put_back, set_aside


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
        (
            "Mr. Vinken, 61, isn't here (yet): the cats' tails...",
            "Mr. Vinken | 61 | isn't here | yet | the cats' tails",
        ),
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


@st.composite
def trees_with_marks(draw):
    """A tree, and marks by how many of its words stand before them and whether they open."""
    order = draw(st.lists(st.floats(0, 1), max_size=6, unique=True))
    marks = draw(st.lists(st.tuples(st.integers(0, len(order) + 1), st.booleans()), max_size=6))
    places, opens = zip(*sorted(marks, key=lambda mark: mark[0]), strict=True) if marks else ((), ())
    return BinaryTree.from_order(order), places, opens


@given(trees_with_marks())
def test_marks_are_sisters_of_the_widest_constituent_beside_them(drawn):
    tree, places, opens = drawn
    last = tree.num_leaves - 1
    leaves = sorted([(word, 1, word) for word in range(last + 1)] + [(m - 0.5, 0, n) for n, m in enumerate(places)])
    full = put_back(tree, places, opens)
    assert full.num_leaves == len(leaves)

    def words(i, j):
        inside = [number for _, is_word, number in leaves[i : j + 1] if is_word]
        return (inside[0], inside[-1]) if inside else None

    everything = {(i, j) for i, j in full.spans} | {(leaf, leaf) for leaf in range(len(leaves))}
    assert {span for i, j in everything if (span := words(i, j))} == tree.constituents(trivial=True) | {(0, last)}
    sister = {}
    for i, j, k in full:
        sister |= {(i, k): (k + 1, j), (k + 1, j): (i, k)}
    constituents = tree.constituents(trivial=True) | {(0, last)}
    has_opened = set()
    for leaf, (_, is_word, number) in enumerate(leaves):
        if is_word:
            continue
        place = places[number]
        has_opened |= {place} if opens[number] else set()
        beside = words(*sister[leaf, leaf])
        if place in (0, last + 1):
            assert beside == (0, last)
        elif place in has_opened:  # also what closes behind one that opens
            assert beside == (place, max(j for i, j in constituents if i == place))
        else:
            assert beside == (min(i for i, j in constituents if j == place - 1), place - 1)


def test_the_last_mark_is_the_highest():
    tree = put_back(BinaryTree(((0, 1),)), [0, 2, 2], [True, False, False])
    assert tree.brackets("( a b . )".split()) == "(((-LRB- (a b)) .) -RRB-)"


@pytest.mark.parametrize(
    ("mark", "before", "opens"),
    [("(", 0, True), ("-LRB-", 0, True), (")", 0, False), (",", 0, False), ("``", 0, True), ("''", 0, False),
     ('"', 0, True), ('"', 1, False), ('"', 2, True), ("“", 3, True), ("”", 3, False), ("「", 0, True)],
)  # fmt: skip
def test_which_marks_belong_to_the_word_that_follows(mark, before, opens):
    assert is_opening(mark, before) == opens
