"""Products by oneDNN against ``F.linear``, and dropout by a random byte per value against torch's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from modeling_fast_r2d2 import cpu_operations
from modeling_fast_r2d2.cpu_operations import apply_linear, linear

SIZES = st.integers(1, 40)


@pytest.fixture(autouse=True)
def _served(monkeypatch):
    monkeypatch.setattr(cpu_operations, "MIN_MULTIPLICATIONS", 1)  # so that small products are served, too
    monkeypatch.setattr(cpu_operations, "HAS_WIDE_INSTRUCTIONS", True)


def by_torch(inputs, weight, bias, gelu):
    product = F.linear(inputs, weight, bias)
    return F.gelu(product) if gelu else product


@pytest.mark.parametrize("frozen", ["nothing", "inputs", "weight"])
@given(st.lists(st.integers(0, 7), max_size=2), SIZES, SIZES, st.booleans(), st.booleans(), st.booleans())
def test_values_and_gradients_are_those_of_torch(frozen, batch, size, out, has_bias, gelu, strided):
    inputs = torch.randn(*batch, size, 2)[..., 0] if strided else torch.randn(*batch, size)
    inputs.requires_grad_(frozen != "inputs")
    weight, bias = torch.randn(out, size, requires_grad=frozen != "weight"), None
    if has_bias:
        bias = torch.randn(out, requires_grad=True)
    leaves = [leaf for leaf in (inputs, weight, bias) if leaf is not None and leaf.requires_grad]
    ours, theirs = linear(inputs, weight, bias, gelu), by_torch(inputs, weight, bias, gelu)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    gradient = torch.randn_like(ours)
    gradients = [torch.autograd.grad(values, leaves, gradient) for values in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-6), (torch.bfloat16, 5e-3), (torch.float64, 0)])
@pytest.mark.parametrize("gelu", [False, True])
def test_without_gradients(dtype, bound, gelu):
    inputs, weight, bias = torch.randn(3, 50, 96), torch.randn(128, 96) / 10, torch.randn(128)
    exact = by_torch(*(t.to(dtype).double() for t in (inputs, weight, bias)), gelu)
    with torch.no_grad():
        ours = linear(inputs.to(dtype), weight.to(dtype), bias.to(dtype), gelu)
    assert ours.dtype == dtype and (ours - exact).norm() <= bound * exact.norm()


def test_second_derivatives():
    inputs, weight = torch.randn(4, 6, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    found = []
    for function in (linear, F.linear):
        (first,) = torch.autograd.grad(function(inputs, weight).square().sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), weight)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-3)


def test_what_took_a_layers_place_is_called():
    class Doubled(nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    layer, inputs = Doubled(4, 4), torch.randn(3, 4)
    torch.testing.assert_close(apply_linear(layer, inputs), layer(inputs))
    torch.testing.assert_close(apply_linear(layer, inputs, gelu=True), F.gelu(layer(inputs)))


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre", "module_forward"])
def test_hooks_are_called(kind, gelu):
    """Those of a layer, and those of all modules."""
    layer, calls = nn.Linear(4, 4), []
    place = nn.modules.module if kind == "module_forward" else layer
    handle = getattr(place, f"register_{kind}_hook")(lambda *given: calls.append(given))
    apply_linear(layer, torch.randn(3, 4, requires_grad=True), gelu).sum().backward()
    handle.remove()
    assert len(calls) == 1


@pytest.mark.parametrize("frozen", [False, True])
def test_functional_derivatives(frozen):
    inputs, weight, tangent = torch.randn(3, 8), torch.randn(5, 8, requires_grad=not frozen), torch.randn(3, 8)
    for transform in (
        lambda f: torch.func.jvp(f, (inputs,), (tangent,))[1],
        lambda f: torch.func.jacrev(f)(inputs),
        lambda f: torch.vmap(f)(inputs[:, None]),
    ):
        ours, theirs = (transform(lambda x, apply=apply: apply(x, weight).sin()) for apply in (linear, F.linear))
        torch.testing.assert_close(ours, theirs)


class Subclass(torch.Tensor):
    """As that of a quantised weight: torch's operations know it, oneDNN's do not."""


@pytest.mark.parametrize("case", ["no wide instructions", "a small product", "a subclass", "autocast"])
def test_products_are_left_to_torch(case, monkeypatch):
    monkeypatch.setattr(cpu_operations, "onednn_linear", lambda *_: pytest.fail("oneDNN was called"))
    weight = torch.randn(5, 8)
    if case == "no wide instructions":
        monkeypatch.setattr(cpu_operations, "HAS_WIDE_INSTRUCTIONS", False)
    elif case == "a small product":
        monkeypatch.setattr(cpu_operations, "MIN_MULTIPLICATIONS", 3 * 8 * 5 + 1)
    elif case == "a subclass":
        weight = weight.as_subclass(Subclass)
    with torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        assert linear(torch.randn(3, 8), weight, gelu=True).shape == (3, 5)


def test_wrong_shapes_are_named_by_torch():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(torch.randn(3, 7), torch.randn(5, 8))
    with pytest.raises(RuntimeError, match="size"):
        linear(torch.randn(3, 8), torch.randn(5, 8), torch.randn(4))


@pytest.mark.parametrize("gelu", [False, True])
@torch.no_grad()
def test_a_row_in_bfloat16_is_the_same_to_the_bit_however_many_there_are(monkeypatch, gelu):
    """Many rows are served and few are left to torch, which rounds before GELU."""
    monkeypatch.setattr(cpu_operations, "MIN_MULTIPLICATIONS", 200 * 64 * 96)
    inputs, weight, bias = (torch.randn(*size).bfloat16() for size in ((200, 64), (96, 64), (96,)))
    assert torch.equal(linear(inputs[:7], weight, bias, gelu), linear(inputs, weight, bias, gelu)[:7])


def test_oneDNN_is_used_where_it_is_there(monkeypatch):
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not torch.backends.mkldnn.is_available():
        pytest.skip("oneDNN is not used here")
    calls = []
    onednn = cpu_operations.onednn_linear
    monkeypatch.setattr(cpu_operations, "onednn_linear", lambda *given: calls.append(given) or onednn(*given))
    layer = nn.Linear(8, 5)
    apply_linear(layer, torch.randn(3, 8, requires_grad=True)).sum().backward()
    assert len(calls) == 2  # forward, and the inputs' gradient
    with torch.backends.mkldnn.flags(enabled=False):
        apply_linear(layer, torch.randn(3, 8))
    assert len(calls) == 2
    monkeypatch.setattr(cpu_operations, "MIN_WEIGHT_VALUES", 1)
    apply_linear(layer, torch.randn(3, 8)).sum().backward()
    assert len(calls) == 4  # the gradient of a large weight, too
