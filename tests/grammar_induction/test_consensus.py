"""Posteriors and trees of minimum risk against sums over all trees."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def all_trees(first, last):
    """Every binary tree, as {split point: span}."""
    if first == last:
        yield {}
    for split in range(first, last):
        for left in all_trees(first, split):
            for right in all_trees(split + 1, last):
                yield {split: (first, last), **left, **right}


def probability(tree, scores):
    product = 1.0
    for split, (first, last) in tree.items():
        product *= math.exp(scores[split]) / sum(math.exp(score) for score in scores[first:last])
    return product


@given(st.integers(0, 99), LENGTHS)
def test_posteriors_are_sums_over_all_trees(seed, lengths):
    torch.manual_seed(seed)
    scores = 2 * torch.randn(len(lengths), max(lengths) - 1, dtype=torch.double)
    found = span_posteriors(scores, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        expected = torch.zeros(max(lengths), max(lengths) + 1, dtype=torch.double)
        for tree in all_trees(0, length - 1):
            for first, last in tree.values():
                expected[first, last - first + 1] += probability(tree, scores[row].tolist())
        assert torch.allclose(found[row], expected)


@given(st.integers(0, 99), LENGTHS)
def test_the_tree_of_minimum_risk_is_the_best_of_all(seed, lengths):
    torch.manual_seed(seed)
    posteriors = torch.rand(len(lengths), max(lengths), max(lengths) + 1, dtype=torch.double)
    found = minimum_risk_trees(posteriors, torch.tensor(lengths))
    assert found.shape == (len(lengths), max(lengths) - 1, 2)
    for row, length in enumerate(lengths):
        worth = [
            sum(posteriors[row, first, last - first + 1].item() for first, last in tree.values())
            for tree in all_trees(0, length - 1)
        ]
        tree = BinaryTree.from_spans(found[row])
        assert tree.num_leaves == length
        own = sum(posteriors[row, first, last - first + 1].item() for first, last in tree.spans)
        assert own == pytest.approx(max(worth))
