"""The ops' references are what the model computes in its own code. On CPU tensors ops compute their references."""

import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

import fast_r2d2_kernels as kernels
from modeling_fast_r2d2 import FastR2D2Config, choice
from modeling_fast_r2d2.composition import Composition


@pytest.fixture(scope="module")
def composition() -> Composition:
    """One layer, in float64, with weights that are not near zero."""
    config = FastR2D2Config(hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=40)
    torch.manual_seed(0)
    return Composition(config).double().eval()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def role_bias(layer, num_tasks: int) -> torch.Tensor:
    """What adding a token's role to the input of its queries and keys adds to them, and the projection's bias."""
    task, left, right = layer.role_embeddings.weight
    roles = torch.stack([task] * num_tasks + [left, right])
    projected = roles @ layer.query_key_value.weight.T
    projected[:, 2 * roles.shape[1] :] = 0
    return projected + layer.query_key_value.bias


def attend(layer, hidden: torch.Tensor) -> torch.Tensor:
    projected, bias = hidden @ layer.query_key_value.weight.T, role_bias(layer, len(hidden) - 2)
    torch.testing.assert_close(bias, layer.role_bias(len(hidden) - 2))
    return kernels.composition_attention(projected, bias, layer.num_heads)


@pytest.mark.parametrize("num_tasks", [0, 1, 2])
def test_attention(composition, num_tasks):
    layer, hidden = composition.stack.layers[0], draw(num_tasks + 2, 5, 24)
    torch.testing.assert_close(
        attend(layer, hidden), layer._attend(layer._project(hidden, role_bias(layer, num_tasks), None))
    )


@pytest.mark.parametrize("num_tasks", [1, 2])
def test_a_whole_composition(composition, num_tasks):
    layer, eps = composition.stack.layers[0], composition.eps
    nodes, tasks = draw(7, 24), draw(num_tasks, 24)
    left, right = torch.tensor([0, 2, 2, 6]), torch.tensor([1, 5, 3, 0])

    hidden = kernels.gather_children(nodes, tasks, left, right)
    update = F.linear(attend(layer, hidden), layer.attention_output.weight)
    hidden = kernels.residual_norm(update, layer.attention_output.bias, hidden, eps)
    expanded = kernels.bias_gelu(F.linear(hidden, layer.intermediate.weight), layer.intermediate.bias)
    update = F.linear(expanded, layer.output.weight)
    *_, summed, of_left, of_right = kernels.residual_norm(update, layer.output.bias, hidden, eps)
    parent = kernels.blend_norm(composition.blend(summed), of_left, of_right, eps)

    torch.testing.assert_close(parent, composition(composition.prepare(tasks), nodes[torch.stack([left, right])])[0])


def test_choice():
    inputs = [draw(6, 4, 8).requires_grad_(), draw(6, 4).requires_grad_()]
    forbidden = torch.arange(4) == torch.tensor([0, 1, 2, 3, 0, 0])[:, None]
    ours = kernels.choose(*inputs, torch.zeros(6, 4).masked_fill(forbidden, float("-inf")))
    expected = choice.choose(*inputs, choice.choice_offsets(inputs[1], 0.0, forbidden))
    assert ours[2].equal(expected[2])
    for a, b in zip(ours[:2], expected[:2], strict=True):
        assert a.equal(b)
        grads = [torch.autograd.grad(x.square().sum(), inputs, retain_graph=True, allow_unused=True) for x in (a, b)]
        torch.testing.assert_close(*grads)


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch, fast_r2d2_kernels as kernels
assert not kernels.is_available()
x = torch.ones(2, 8, requires_grad=True)
kernels.bias_gelu(x, x[0], 0.5, seed=1).sum().backward()
assert x.grad.isfinite().all()
"""


@pytest.mark.slow
def test_references_run_where_triton_cannot_be_installed():
    run = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_TRITON], capture_output=True, text=True)
    assert run.returncode == 0 and not run.stderr, run.stderr
