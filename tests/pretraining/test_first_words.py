"""First words that stand before all that follows, against a definition on nested trees."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import NESTED, flat

from pretraining.first_words import PRIOR_COUNT, SMOOTHING, FirstWords

FEW_WORDS = st.recursive(st.sampled_from([[1], [2], [2, 3]]), lambda below: st.tuples(below, below), max_leaves=9)


def is_word(tree) -> bool:
    return isinstance(tree, list)


def count(tree, apart: Counter, joined: Counter) -> None:
    """Count what `FirstWords` counts, from the definition."""
    if is_word(tree):
        return
    left, right = tree
    if is_word(left) and not is_word(right):
        apart[tuple(left)] += 1
    if not is_word(left) and is_word(left[0]):
        joined[tuple(left[0])] += 1
    count(left, apart, joined)
    count(right, apart, joined)


def moved(tree, odds, posteriors: np.ndarray, start: int = 0):
    """The tree with first words apart, from the definition."""
    if is_word(tree):
        return tree
    left, right = tree
    of_left, of_right = (len(flat(part).words) for part in tree)
    if not is_word(left) and is_word(left[0]):
        word, rest = left
        apart, joined = posteriors[start + 1, of_left + of_right - 1], posteriors[start, of_left]
        if odds(tuple(word)) * (apart + SMOOTHING) > joined + SMOOTHING:
            return word, moved((rest, right), odds, posteriors, start + 1)
    return moved(left, odds, posteriors, start), moved(right, odds, posteriors, start + of_left)


@given(st.lists(FEW_WORDS, max_size=5), FEW_WORDS, st.randoms(use_true_random=False))
def test_trees_are_those_of_the_definition(seen, tree, random):
    first_words, apart, joined = FirstWords(map(flat, seen)), Counter(), Counter()
    for other in seen:
        count(other, apart, joined)
    assert (+first_words.apart, +first_words.joined) == (apart, joined)
    share = (apart.total() + 1) / (apart.total() + joined.total() + 2)
    for word in [(1,), (2,), (2, 3), (4,)]:
        expected = (apart[word] + PRIOR_COUNT * share) / (joined[word] + PRIOR_COUNT * (1 - share))
        assert first_words.odds(word) == pytest.approx(expected)
    size = len(flat(tree).words)
    posteriors = np.array([random.random() for _ in range(size * (size + 1))]).reshape(size, size + 1)
    given_tree = flat(tree)
    assert first_words(given_tree, posteriors) == flat(moved(tree, first_words.odds, posteriors))
    assert given_tree == flat(tree)


def test_what_is_usual_behind_a_word_decides():
    to, buy, shares, soon = [1], [2], [3], [4]
    usual, other = (to, (buy, shares)), ((to, buy), shares)
    close, far = flat(((to, (buy, shares)), soon)), flat((to, ((buy, shares), soon)))
    seen, even = [flat(((buy, shares), soon))] * 9, np.full((4, 5), 0.5)
    assert FirstWords([*seen, *[flat(usual)] * 9, flat(other)])(close, even) == far
    assert FirstWords([*seen, *[flat(other)] * 9, flat(usual)])(close, even) == close
    even[0, 3], even[1, 3] = 1, 0  # of "to buy shares" and of "buy shares soon": what the teachers are sure of stays
    assert FirstWords([*seen, *[flat(usual)] * 9])(close, even) == close


@given(NESTED)
def test_nothing_changes_where_no_word_is_apart(tree):
    joined = ((tree, [1]), [2]) if is_word(tree) else tree
    assert moved(joined, lambda word: 0.0, np.ones((12, 13))) == joined
    never = FirstWords([])
    never.odds = lambda word: 0.0
    assert never(flat(joined), np.ones((12, 13))) == flat(joined)
