"""What is punctuation between words, what is left without it, and where constituents may end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree
from tokenization_fast_r2d2 import language, reading
from tokenization_fast_r2d2.language import are_marks, are_opening, pairs_of
from tokenization_fast_r2d2.reading import sentences_to_parse
from tokenization_fast_r2d2.trees import put_back
from tokenization_fast_r2d2.word_rules import find_words


@pytest.mark.parametrize(("words", "marks"), [
    ("the cats ' tails -LRB- 3.5 % of AT&T -RRB- '' ...", "-LRB- -RRB- '' ..."),
    ("他 說 ， 我 們 去 。 — 't ' $ C++ / -5", "， 。 — '"),
])  # fmt: skip
def test_marks_are_told_from_words(words, marks):
    words = words.split()
    assert [word for word, is_mark in zip(words, are_marks(words), strict=True) if is_mark] == marks.split()


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


@given(trees_with_marks(), st.data())
def test_brackets_and_quotes_around_a_constituent_are_one_with_it(drawn, data):
    tree, places, _ = drawn
    marks = data.draw(st.lists(st.sampled_from('()[],"'), min_size=len(places), max_size=len(places)))
    opens = are_opening(marks)
    pairs = pairs_of(marks, opens)
    constituents = tree.constituents(trivial=True) | {(0, tree.num_leaves - 1)}
    full = put_back(tree, places, opens, pairs)
    found = full.constituents(trivial=True) | {(0, full.num_leaves - 1)}
    leaf_of_word = [word + sum(place <= word for place in places) for word in range(tree.num_leaves)]
    for opening, closing in pairs:
        if (places[opening], places[closing] - 1) in constituents:
            assert (places[opening] + opening, places[closing] + closing) in found
    for i, j in constituents:  # with marks beside it, or without them
        first, last = leaf_of_word[i], leaf_of_word[j]
        most = leaf_of_word[j + 1] - 1 if j + 1 < tree.num_leaves else full.num_leaves - 1
        least = leaf_of_word[i - 1] + 1 if i else 0
        assert any((a, b) in found for a in range(least, first + 1) for b in range(last, most + 1))


@pytest.mark.parametrize(("text", "tree"), [
    ("a ( b ) c", "((a ((-LRB- b) -RRB-)) c)"),
    ("a ( b ) c .", "(((a ((-LRB- b) -RRB-)) c) .)"),
    ('a " b . " c', '((a ((" (b .)) ")) c)'),
    ('" a b c . "', '((" (((a b) c) .)) ")'),
    ("a ( [ b ] ) c", "((a ((-LRB- ((-LSB- b) -RSB-)) -RRB-)) c)"),
    ("a ( b ) ( c )", "((a ((-LRB- b) -RRB-)) ((-LRB- c) -RRB-))"),
    ("a ( ( ) b ) c", "((a ((-LRB- (-LRB- (-RRB- b))) -RRB-)) c)"),
    ("a ( b c )", "(((a (-LRB- b)) c) -RRB-)"),
    ("— a b . !", "(((— (a b)) .) !)"),  # the last mark is the highest
])  # fmt: skip
def test_known_trees_with_brackets(tokenizer, text, tree):
    """Trees of the words that branch to the left."""
    [read] = sentences_to_parse(tokenizer, [text.split()], is_split_into_words=True, set_marks_aside=True)
    count = len(read.words)
    full = read.tree([(0, k + 1) for k in range(count - 1)])
    drawn = full.brackets(read.leaves).replace("[", "-LSB-").replace("]", "-RSB-")
    assert drawn == tree


@pytest.mark.parametrize("marks", [
    "[( )", "[-LRB- -RRB-", "[`` , ''", '[" " [" "', "[“ ” [“ ”", "[「 」", "[„ , “ [„ “", "[‚ ‘", "[» « . [» «",
    "[« » , [« »", "[« [“ ” »", "” .", "» .", "[« .", "[› ‹",
])  # fmt: skip
def test_which_marks_belong_to_the_word_that_follows(marks):
    expected = [mark.startswith("[") for mark in marks.split()]
    assert are_opening([mark.removeprefix("[") for mark in marks.split()]) == expected


def test_a_new_language_replaces_this_module_alone(tokenizer, monkeypatch):
    monkeypatch.setitem(language.CUTS, "klingon", "(?<=Qapla)(?=jij)")
    assert [place for place, _ in find_words("Qaplajij ghu", "klingon")] == [(0, 5), (5, 8), (9, 12)]
    [english] = sentences_to_parse(tokenizer, ["The cats' * old Dog House"], set_marks_aside=True)
    assert english.marks == [] and len(english.names) >= 1
    monkeypatch.setattr(language, "APOSTROPHES", "")
    monkeypatch.setattr(language, "SYMBOLS", "")
    monkeypatch.setattr(language, "QUOTES", "")
    monkeypatch.setattr(reading, "begins_name", lambda word: False)
    [other] = sentences_to_parse(tokenizer, ["The cats' * old Dog House"], set_marks_aside=True)
    assert other.marks == ["'", "*"] and other.bounds and other.names == []
