"""Dropout by a random byte per value is torch's dropout, but for the numbers drawn."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modeling_fast_r2d2.noise import BYTE_VALUES, Dropout


@given(p=st.floats(0.004, 0.996), seed=st.integers(0, 99))
def test_the_given_share_is_dropped_and_the_expectation_kept(p, seed):
    torch.manual_seed(seed)
    inputs = torch.ones(30_001, requires_grad=True)  # not a multiple of the eight values that a word serves
    output = Dropout(p).train()(inputs)
    values = output.detach().unique().tolist()
    assert set(values) <= {0.0, max(values)} and max(values) == pytest.approx(1 / (1 - p))
    six_deviations = 6 * (p * (1 - p) / len(inputs)) ** 0.5
    assert abs((output == 0).float().mean().item() - p) < six_deviations + 1 / BYTE_VALUES
    output.sum().backward()
    assert torch.equal(inputs.grad, output.detach())  # of ones: the factors themselves


def test_probabilities_between_two_thresholds_hold_on_average():
    torch.manual_seed(0)
    module, inputs = Dropout(0.1).train(), torch.ones(4096)  # 25.6 of 256 bytes
    shares = torch.stack([(module(inputs) == 0).double().mean() for _ in range(400)])
    assert abs(shares.mean() - 0.1) < 6 * 0.5 / 256 / 20 + 6 * 0.3 / 64 / 20


def test_values_are_dropped_independently_of_each_other():
    torch.manual_seed(0)
    dropped = (Dropout(0.5).train()(torch.ones(2**18)) == 0).double() - 0.5
    for distance in (1, 2, 3, 4, 8, 64):
        assert abs((dropped[:-distance] * dropped[distance:]).mean()) < 6 * 0.25 / 2**9
    assert all(abs(dropped[first::8].mean()) < 6 * 0.5 / 2**7.5 for first in range(8))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_it_keeps_dtype_and_shape_and_repeats(dtype):
    inputs, module = torch.randn(3, 0, 5).to(dtype), Dropout(0.1).train()
    assert module(inputs).shape == inputs.shape
    inputs, draws = torch.ones(3, 7, 5, dtype=dtype), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(module(inputs))
    assert draws[0].dtype == dtype and torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("p", [0.0, 1e-6, 0.3, 1.0])
def test_where_there_is_nothing_to_draw_it_is_torchs(p):
    inputs = torch.randn(50)
    assert torch.equal(Dropout(p).eval()(inputs), inputs)
    if p != 0.3:
        torch.manual_seed(0)
        ours = Dropout(p).train()(inputs)
        torch.manual_seed(0)
        assert torch.equal(ours, nn.Dropout(p).train()(inputs))
