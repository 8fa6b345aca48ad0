"""How likely the parser makes trees, against sums over single spans."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.parser import range_logsumexp, tree_label_loss


@given(values=st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_range_logsumexp_is_that_of_every_range(values):
    values = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    ranges = torch.combinations(torch.arange(len(values)), with_replacement=True)
    ours = range_logsumexp(values, *ranges.unbind(1))
    twin = torch.stack([values[first : last + 1].logsumexp(0) for first, last in ranges.tolist()])
    torch.testing.assert_close(ours, twin)
    gradients = [torch.autograd.grad(result.sin().sum(), values)[0] for result in (ours, twin)]
    torch.testing.assert_close(*gradients)


@given(st.integers(0, 99), st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_given_trees_are_as_likely_as_their_splits(seed, lengths):
    torch.manual_seed(seed)
    lengths, width = torch.tensor(lengths), max(lengths)
    scores = torch.randn(len(lengths), width, dtype=torch.double, requires_grad=True)
    is_token = torch.arange(width) < lengths[:, None]
    labels, expected = torch.full((len(lengths), width, 2), -1), 0.0
    for row, length in enumerate(lengths.tolist()):
        for split, span in enumerate(BinaryTree.from_order(torch.rand(length - 1).tolist()).spans):
            if torch.rand(()) < 0.8:
                labels[row, split] = torch.tensor(span)
                log_prob = scores[row, split] - scores[row, span[0] : span[1]].logsumexp(0)
                expected = expected - log_prob / length / len(lengths)
    loss = tree_label_loss(scores[is_token], labels[is_token], lengths)
    assert loss.item() == pytest.approx(float(expected), abs=1e-9)
    if loss.requires_grad:
        loss.backward()
        assert scores.grad.isfinite().all()
