"""Products by oneDNN against ``F.linear``."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from modeling_fast_r2d2 import FastR2D2Model, composition, products
from modeling_fast_r2d2.products import apply_linear, linear, packed_weights

SIZES = st.integers(1, 40)
needs_onednn = pytest.mark.skipif(not products._has_onednn(torch.float32), reason="oneDNN is not used here")


@pytest.fixture(autouse=True)
def _seed(monkeypatch):
    monkeypatch.setattr(products, "LEAST", 1)  # so that small products are served, too
    torch.manual_seed(0)


def by_torch(inputs, weight, bias, gelu):
    product = F.linear(inputs, weight, bias)
    return F.gelu(product) if gelu else product


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 7), max_size=2), SIZES, SIZES, st.booleans(), st.booleans(), st.booleans())
def test_values_and_gradients_are_those_of_torch(batch, size, out, has_bias, gelu, strided):
    inputs = torch.randn(*batch, size, 2)[..., 0] if strided else torch.randn(*batch, size)
    inputs, weight = inputs.requires_grad_(), torch.randn(out, size, requires_grad=True)
    leaves = [inputs, weight] + ([torch.randn(out, requires_grad=True)] if has_bias else [])
    bias = leaves[2] if has_bias else None
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


@pytest.mark.parametrize("frozen", [0, 1])
def test_only_asked_for_gradients_are_computed(frozen):
    leaves = [torch.randn(5, 8, requires_grad=frozen != 0), torch.randn(4, 8, requires_grad=frozen != 1)]
    linear(*leaves).sum().backward()
    assert [leaf.grad is None for leaf in leaves] == [frozen == 0, frozen == 1]


def test_second_derivatives():
    inputs, weight = torch.randn(4, 6, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    found = []
    for function in (linear, F.linear):
        (first,) = torch.autograd.grad(function(inputs, weight).square().sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), weight)[0])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-3)


def test_autocast_is_left_to_torch():
    inputs, weight = torch.randn(4, 8), torch.randn(6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(inputs, weight).dtype == torch.bfloat16


def test_what_took_a_layers_place_is_called():
    class Doubled(nn.Linear):
        def forward(self, inputs):
            return 2 * super().forward(inputs)

    layer, inputs = Doubled(4, 4), torch.randn(3, 4)
    torch.testing.assert_close(apply_linear(layer, inputs), layer(inputs))
    torch.testing.assert_close(apply_linear(layer, inputs, gelu=True), F.gelu(layer(inputs)))


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_are_called(kind, gelu):
    layer, calls = nn.Linear(4, 4), []
    getattr(layer, f"register_{kind}_hook")(lambda *given: calls.append(given))
    apply_linear(layer, torch.randn(3, 4, requires_grad=True), gelu).sum().backward()
    assert len(calls) == 1


def test_hooks_of_all_modules_are_called():
    calls = []
    handle = nn.modules.module.register_module_forward_hook(lambda *given: calls.append(given))
    apply_linear(nn.Linear(4, 4), torch.randn(3, 4))
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
        ours, theirs = (
            transform(lambda x, product=product: product(x, weight).sin()) for product in (linear, F.linear)
        )
        torch.testing.assert_close(ours, theirs)


class Subclass(torch.Tensor):
    """As that of a quantised weight: torch's operations know it, oneDNN's do not."""


def test_tensors_of_another_type_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(products, "_onednn", lambda *_: pytest.fail("oneDNN was called"))
    weight = torch.randn(5, 8).as_subclass(Subclass)
    assert linear(torch.randn(3, 8), weight).shape == (3, 5)


def test_wrong_shapes_are_named_by_torch():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        linear(torch.randn(3, 7), torch.randn(5, 8))
    with pytest.raises(RuntimeError, match="size"):
        linear(torch.randn(3, 8), torch.randn(5, 8), torch.randn(4))


def test_small_products_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(products, "LEAST", 3 * 8 * 5 + 1)
    monkeypatch.setattr(products, "_onednn", lambda *_: pytest.fail("oneDNN was called"))
    linear(torch.randn(3, 8), torch.randn(5, 8))


def test_a_torch_without_the_operation(monkeypatch):
    class Nothing:
        pass

    monkeypatch.setattr(products.torch.ops, "mkldnn", Nothing())
    monkeypatch.setattr(products, "_has_onednn", products._has_onednn.__wrapped__)
    inputs, weight = torch.randn(3, 8), torch.randn(5, 8)
    torch.testing.assert_close(linear(inputs, weight), F.linear(inputs, weight))


def test_oneDNN_is_used_where_it_is_there(monkeypatch):
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not torch.backends.mkldnn.is_available():
        pytest.skip("oneDNN is not used here")
    calls = []
    onednn = products._onednn
    monkeypatch.setattr(products, "_onednn", lambda *given: calls.append(given) or onednn(*given))
    layer = nn.Linear(8, 5)
    apply_linear(layer, torch.randn(3, 8, requires_grad=True)).sum().backward()
    assert len(calls) == 2  # forward, and the inputs' gradient
    with torch.backends.mkldnn.flags(enabled=False):
        apply_linear(layer, torch.randn(3, 8))
    assert len(calls) == 2
    monkeypatch.setattr(products, "LARGE", 1)
    apply_linear(layer, torch.randn(3, 8)).sum().backward()
    assert len(calls) == 4  # the gradient of a large weight, too


@pytest.fixture
def _small_is_large(monkeypatch):
    monkeypatch.setattr(products, "LARGE", 1)


def onednn_calls(monkeypatch) -> list:
    """The weights that oneDNN is given from now on."""
    weights, pointwise = [], torch.ops.mkldnn._linear_pointwise

    class Recorder:
        _linear_pointwise = staticmethod(lambda x, weight, *rest: weights.append(weight) or pointwise(x, weight, *rest))

        def __getattr__(self, name):
            return getattr(operations, name)

    operations = torch.ops.mkldnn
    monkeypatch.setattr(products.torch.ops, "mkldnn", Recorder())
    return weights


@needs_onednn
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_packed_weights_give_the_same_products(_small_is_large, rows, size, out, has_bias, gelu, dtype):
    inputs, weight = torch.randn(rows, size, dtype=dtype), torch.randn(out, size, dtype=dtype)
    bias = torch.randn(out, dtype=dtype) if has_bias else None
    with torch.no_grad():
        expected = linear(inputs, weight, bias, gelu)
        with packed_weights([weight]):
            torch.testing.assert_close(linear(inputs, weight, bias, gelu), expected)


@needs_onednn
def test_weights_are_packed_inside_and_once(_small_is_large, monkeypatch):
    inputs, first, second = torch.randn(3, 8), torch.randn(8, 8), torch.randn(8, 8)
    used = onednn_calls(monkeypatch)
    with torch.no_grad():
        with packed_weights([first]):
            linear(inputs, first), linear(inputs, first), linear(inputs, second)
        linear(inputs, first)
    assert [weight.is_mkldnn for weight in used] == [True, True, False, False]
    assert used[0] is used[1]


@needs_onednn
def test_an_error_inside_leaves_nothing_packed(_small_is_large, monkeypatch):
    inputs, weight = torch.randn(3, 8), torch.randn(8, 8)
    used = onednn_calls(monkeypatch)
    with torch.no_grad():
        with pytest.raises(KeyError), packed_weights([weight]):
            raise KeyError
        linear(inputs, weight)
    assert not used[0].is_mkldnn


@needs_onednn
def test_weights_that_need_gradients_are_not_packed(_small_is_large):
    weight = torch.randn(8, 8, requires_grad=True)
    with packed_weights([weight]):
        linear(torch.randn(3, 8), weight).sum().backward()
    assert weight.grad is not None


def test_what_onednn_does_not_serve_is_not_packed(_small_is_large, monkeypatch):
    weights = [torch.randn(8, 8).as_subclass(Subclass), torch.randn(8, 8).double(), torch.randn(8, 8, device="meta")]
    monkeypatch.setattr(products.torch.ops.mkldnn, "_reorder_linear_weight", lambda *_: pytest.fail("packed"))
    with torch.no_grad(), packed_weights(weights):
        pass
    monkeypatch.setattr(products, "LARGE", 65)
    with torch.no_grad(), packed_weights([torch.randn(8, 8)]):
        pass


@needs_onednn
@pytest.mark.parametrize("encoding", ["forced", "chart", "heuristic"])
def test_a_model_packs_its_weights_for_one_batch_and_sees_what_changes_after_it(
    _small_is_large, tiny_config, a_batch, encoding, monkeypatch
):
    """Also by a change that torch does not count."""
    model = FastR2D2Model(tiny_config).eval()
    used = onednn_calls(monkeypatch)
    for _ in range(2):
        vectors = []
        for is_packed in (True, False):
            monkeypatch.setattr(composition, "WORTH_PACKING", 0 if is_packed else 1000)
            used.clear()
            with torch.no_grad():
                vectors.append(model(**a_batch, encoding=encoding).last_hidden_state)
            assert any(weight.is_mkldnn for weight in used) == is_packed
        torch.testing.assert_close(*vectors, rtol=1e-5, atol=1e-5)
        for parameter in model.parameters():
            parameter.data.mul_(1.5)
