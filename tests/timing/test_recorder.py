"""The matrix products of a training step, those inside larger operations included."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from modeling_fast_r2d2 import cpu_linear
from modeling_fast_r2d2.cpu_linear import linear
from timing.recorder import ProductRecorder
from timing.replay import largest_operand, operations, replay


def recorded(function) -> list:
    with ProductRecorder() as recorder:
        function()
    return recorder.products


@pytest.mark.parametrize("least", [1, 1e12])
def test_products_of_linear_layers_are_written_down(least, monkeypatch):
    """By oneDNN or not, of the backward pass as well."""
    monkeypatch.setattr(cpu_linear, "MIN_MULTIPLICATIONS", least)
    inputs, weight = (torch.randn(*shape, requires_grad=True) for shape in ((5, 3, 8), (16, 8)))
    found = recorded(lambda: linear(inputs, weight).sum().backward())
    assert operations(found) == 3 * 2 * 15 * 8 * 16
    assert {(left[0], right[0]) for left, right in found} == {
        ((15, 8), (8, 16)), ((15, 16), (16, 8)), ((16, 15), (15, 8)),
    }  # fmt: skip
    replay(found, torch.randn(largest_operand(found)))


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="a newer torch has it")
@pytest.mark.parametrize("learns", [(True, True), (False, True), (True, False)])
def test_products_in_a_chunked_cross_entropy_are_written_down(learns):
    shapes = (600, 16), (50, 16)
    inputs, weight = (torch.randn(*shape, requires_grad=of) for shape, of in zip(shapes, learns, strict=True))
    labels = torch.randint(50, (600,))
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=256, allow_retain_graph=True)
    chunked = recorded(lambda: F.linear_cross_entropy(inputs, weight, labels, options=options).backward())
    whole = recorded(lambda: F.cross_entropy(F.linear(inputs, weight), labels).backward())
    assert operations(chunked) == operations(whole) == (1 + sum(learns)) * 2 * 600 * 16 * 50
    assert len(chunked) == 3 * len(whole) and {left[0][0] for left, _ in chunked} >= {256, 88}
    replay(chunked, torch.randn(largest_operand(chunked)))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_products_in_an_lstm_of_onednn_are_written_down(layers, bidirectional):
    lstm = nn.LSTM(8, 16, layers, bidirectional=bidirectional)
    inputs = torch.randn(7, 3, 8, requires_grad=True)
    states = [torch.randn(layers * (1 + bidirectional), 3, 16, requires_grad=True) for _ in range(2)]

    def step() -> None:
        lstm(inputs, states)[0].sum().backward()

    hidden = recorded(step)
    with torch.backends.mkldnn.flags(enabled=False):
        plain = recorded(step)
    assert operations(hidden) == operations(plain) > 0
    forward = [pair for pair in hidden if pair[0][0] == (21, 8) and pair[1][0] == (8, 64)]
    assert len(forward) == 1 + bidirectional  # the first layer's, for all steps at once
    replay(hidden, torch.randn(largest_operand(hidden)))
