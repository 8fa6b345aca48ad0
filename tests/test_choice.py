"""Scoring all candidates and building the chosen ones, against building all of them."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import children_apart
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart
from modeling_fast_r2d2.composition import Composition
from modeling_fast_r2d2.encoder import encode_chart
from modeling_fast_r2d2.heuristic_pruning import encode_heuristic


def encode(config, lengths, seed, noise):
    torch.manual_seed(seed)
    composition, size = Composition(config).eval().double(), config.hidden_size
    lengths = torch.tensor(lengths)
    leaves, tasks = torch.randn(int(lengths.sum()), size).double(), torch.randn(2, size).double()
    inputs = [leaves.requires_grad_(), tasks.requires_grad_()]
    chart = plan_chart(merge_ranks(torch.randn(len(lengths), int(lengths.max()) - 1), lengths), lengths, 3)
    encoded = encode_chart(chart, *inputs[:1], composition, tasks, noise)
    return encoded, [*inputs, *composition.parameters()]


@pytest.mark.parametrize("num_layers", [1, 2])
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3), seed=st.integers(0, 99),
    noise=st.sampled_from([0.0, 1.0]), least=st.sampled_from([0, 8]),
)  # fmt: skip
def test_vectors_probabilities_choices_and_gradients(tiny_config, num_layers, lengths, seed, noise, least):
    """With all levels scored first, or only the large ones."""
    config = copy.deepcopy(tiny_config)
    config.num_hidden_layers = num_layers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children_apart, "MIN_COMPOSITIONS_APART", least)
        ours, leaves = encode(config, lengths, seed, noise)
        patch.setattr(children_apart, "MIN_COMPOSITIONS_APART", 10**9)
        theirs, their_leaves = encode(config, lengths, seed, noise)
    assert ours.chosen.equal(theirs.chosen)
    for name in ("nodes", "log_prob", "candidate_log_prob"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-10, atol=1e-10)
    gradients = [
        torch.autograd.grad(encoded.nodes.sin().sum() + encoded.log_prob.sum(), of, materialize_grads=True)
        for encoded, of in ((ours, leaves), (theirs, their_leaves))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("encoding", ["chart", "heuristic"])
def test_small_levels_are_built_whole(tiny_config, monkeypatch, encoding):
    torch.manual_seed(0)
    composition, lengths = Composition(tiny_config).eval(), torch.tensor([9, 12])
    leaves, tasks = torch.randn(21, tiny_config.hidden_size), torch.randn(2, tiny_config.hidden_size)
    chart = plan_chart(merge_ranks(torch.randn(2, 11), lengths), lengths, 3)
    calls, vectors = [], []
    forward = Composition.forward
    monkeypatch.setattr(Composition, "forward", lambda *given: calls.append(given) or forward(*given))
    for least in (0, 10**9):
        monkeypatch.setattr(children_apart, "MIN_COMPOSITIONS_APART", least)
        calls.clear()
        with torch.no_grad():
            if encoding == "chart":
                vectors.append(encode_chart(chart, leaves, composition, tasks).nodes)
            else:
                vectors.append(encode_heuristic(lengths, leaves, composition, tasks, 3)[1].nodes)
        assert bool(calls) == bool(least)
    torch.testing.assert_close(*vectors)
