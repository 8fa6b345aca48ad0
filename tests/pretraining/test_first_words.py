"""First words that stand before all that follows, against a definition on nested trees."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import batch_of, is_word

from pretraining.first_words import BEFORE_OBJECTS, MOST_OF_DETERMINERS, PRIOR_COUNT, SMOOTHING, FirstWords

TREES = st.recursive(st.sampled_from([[1], [2], [2, 3]]), lambda below: st.tuples(below, below), max_leaves=9)


def length(tree) -> int:
    return 1 if is_word(tree) else sum(map(length, tree))


def count(tree, apart: Counter, joined: Counter) -> None:
    """How often each word is apart and joined before a third part of more words, from the definition."""
    if is_word(tree):
        return
    left, right = tree
    if is_word(left) and not is_word(right) and not is_word(right[1]):
        apart[left[0]] += 1
    if not is_word(left) and is_word(left[0]) and not is_word(right):
        joined[left[0][0]] += 1
    count(left, apart, joined)
    count(right, apart, joined)


def first_of(tree) -> int:
    return tree[0] if is_word(tree) else first_of(tree[0])


def once(tree, odds: torch.Tensor, posteriors: torch.Tensor, start: int = 0):
    """The tree with joined words apart, where that is more probable."""
    if is_word(tree):
        return tree
    left, right = tree
    behind = start + length(left)
    if not is_word(left) and is_word(left[0]):
        word, rest = left
        apart, joined = posteriors[start + 1, length(rest) + length(right)], posteriors[start, length(left)]
        of_word, is_before_object = odds[word[0]], is_word(rest) and not is_word(right)
        if is_before_object and odds[first_of(right)] < MOST_OF_DETERMINERS <= of_word:
            of_word = of_word * BEFORE_OBJECTS
        if of_word * (apart + SMOOTHING) > joined + SMOOTHING:
            return word, (once(rest, odds, posteriors, start + 1), once(right, odds, posteriors, behind))
    return once(left, odds, posteriors, start), once(right, odds, posteriors, behind)


@given(st.lists(TREES, max_size=4), st.lists(TREES, min_size=1, max_size=3), st.integers(1, 30), st.integers(0, 99))
def test_trees_are_those_of_the_definition(seen, trees, times, seed):
    torch.manual_seed(seed)
    first_words, apart, joined = FirstWords(5, [batch_of(seen)] * times if seen else []), Counter(), Counter()
    for tree in seen * times:
        count(tree, apart, joined)
    share = (apart.total() + 1) / (apart.total() + joined.total() + 2)
    for piece, odds in enumerate(first_words.odds.tolist()):
        of_piece = (apart[piece] + PRIOR_COUNT * share) / (joined[piece] + PRIOR_COUNT * (1 - share))
        assert odds == pytest.approx(of_piece / (share / (1 - share)), rel=1e-5)
    spans, pieces = batch_of(trees)
    posteriors = torch.rand(len(trees), pieces.shape[1], pieces.shape[1] + 1)
    found = first_words(spans, posteriors, pieces)
    expected = []
    for tree, of_tree in zip(trees, posteriors, strict=True):
        while tree != (tree := once(tree, first_words.odds, of_tree)):
            pass
        expected.append(tree)
    assert found.equal(batch_of(expected)[0]) and spans.equal(batch_of(trees)[0])


TO, BUY, SOON, SHARES, THE = [1], [2], [3], [4], [5]
OBJECT, FEW = (THE, SHARES), ([6], [7])  # "the shares", "few shares"


def test_what_is_usual_behind_a_word_decides():
    usual, other = (TO, (BUY, FEW)), ((TO, BUY), FEW)
    close, pieces = batch_of([((TO, (BUY, SHARES)), SOON)])
    far, _ = batch_of([(TO, ((BUY, SHARES), SOON))])
    seen, even = [((SOON, BUY), FEW), (SOON, (BUY, FEW))] * 9, torch.full((1, 4, 5), 0.5)
    assert FirstWords(8, [batch_of([*seen, *[usual] * 9, other])])(close, even, pieces).equal(far)
    assert FirstWords(8, [batch_of([*seen, *[other] * 9, usual])])(close, even, pieces).equal(close)
    even[0, 0, 3], even[0, 1, 3] = 1, 0  # of "to buy shares" and of "buy shares soon": what teachers are sure of stays
    assert FirstWords(8, [batch_of([*seen, *[usual] * 9])])(close, even, pieces).equal(close)


def test_what_begins_with_a_determiner_is_an_object():
    joined, apart = ((TO, BUY), OBJECT), (TO, (BUY, OBJECT))
    spans, pieces = batch_of([joined])
    posteriors = torch.zeros(1, 4, 5)
    posteriors[0, 0, 2], posteriors[0, 1, 3] = 0.9, 0.1
    seen = [((THE, SHARES), FEW)] * 99 + [(SOON, (BUY, FEW)), ((TO, BUY), FEW), (TO, (BUY, FEW))] * 50
    assert FirstWords(8, [batch_of(seen)])(spans, posteriors, pieces).equal(batch_of([apart])[0])
    assert FirstWords(8, [batch_of(seen[99:])])(spans, posteriors, pieces).equal(spans)  # "the" is not known as one
    few, of_few = batch_of([((TO, BUY), FEW)])
    assert FirstWords(8, [batch_of(seen)])(few, posteriors, of_few).equal(few)
    two, of_two = batch_of([((THE, SHARES), OBJECT)])  # as in "the bank, the largest"
    assert FirstWords(8, [batch_of(seen)])(two, posteriors, of_two).equal(two)
    posteriors[0, 1, 2] = 0.1
    one, of_one = batch_of([((TO, BUY), THE)])
    assert FirstWords(8, [batch_of(seen)])(one, posteriors, of_one).equal(one)
