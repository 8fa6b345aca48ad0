"""The kernels on a GPU: the interpreter's checks in all dtypes, then sizes that only a GPU can hold or finish."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fast_r2d2_kernels as kernels
from fast_r2d2_kernels.attention import composition_attention_reference
from fast_r2d2_kernels.gather import gather_children_reference
from fast_r2d2_kernels.residual_norm import residual_norm_reference
from modeling_fast_r2d2.parser import range_logsumexp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to run the kernels on")

HERE = Path(__file__).parent
NODES, SIZE, HEADS = 100_000, 768, 12


@pytest.fixture(autouse=True)
def new_memory_is_poisoned():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("file", ["ops_against_references.py", "ops_on_many_nodes.py"])
def test_ops_equal_their_references_in_all_dtypes(file):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command.append(str(HERE / file))
    run = subprocess.run(command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


def draw(*shape: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)


def largest_error(op, reference, *inputs: torch.Tensor) -> float:
    """Of values and gradients, the reference in float32 on the same rounded inputs."""
    results = []
    for function, dtype in ((op, torch.bfloat16), (reference, torch.float32)):
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        out = function(*leaves)
        out.backward(draw(*out.shape).to(dtype))
        results.append([out.detach(), *(x.grad for x in leaves)])
    errors = [(ours - exact).norm() / exact.norm() for ours, exact in zip(*results, strict=True)]
    return torch.stack(errors).nan_to_num(float("inf")).max().item()


def test_attention_among_very_many_compositions():
    inputs = draw(4, NODES, 3 * SIZE), draw(4, 3 * SIZE)
    op, reference = (
        lambda x, bias, f=f: f(x, bias, HEADS, 0.1, 5)
        for f in (kernels.composition_attention, composition_attention_reference)
    )
    assert largest_error(op, reference, *inputs) < 5e-3


def test_residual_norm_of_very_many_rows():
    inputs = draw(4, NODES, SIZE), draw(SIZE), draw(4, NODES, SIZE)
    op, reference = (lambda *x, f=f: f(*x, 1e-5, 0.1, 5) for f in (kernels.residual_norm, residual_norm_reference))
    assert largest_error(op, reference, *inputs) < 5e-3


def test_children_among_very_many_nodes_and_the_same_gradient_twice():
    left, right = torch.randint(NODES, (2, NODES), device="cuda")
    inputs = draw(NODES, SIZE), draw(2, SIZE)
    op, reference = (
        lambda nodes, tasks, f=f: f(nodes, tasks, left, right)
        for f in (kernels.gather_children, gather_children_reference)
    )
    assert largest_error(op, reference, *inputs) < 5e-3
    grads = []
    for _ in range(2):
        nodes = inputs[0].clone().requires_grad_()
        op(nodes, inputs[1]).backward(draw(4, NODES, SIZE))
        grads.append(nodes.grad)
    assert grads[0].equal(grads[1])


def test_ranges_of_a_chain():
    """A tree of 8,192 tokens that always splits off its first."""
    values = torch.randn(8192, device="cuda", requires_grad=True)
    first = torch.arange(8192, device="cuda")
    last = torch.full_like(first, 8191)
    exact = values.detach().double().requires_grad_()
    ours, expected = kernels.range_logsumexp(values, first, last), range_logsumexp(exact, first, last)
    assert (ours - expected).norm() / expected.norm() < 1e-5
    (of_ours,), (of_expected,) = (torch.autograd.grad(y.sum(), x) for y, x in ((ours, values), (expected, exact)))
    assert (of_ours - of_expected).norm() / of_expected.norm() < 1e-5


def test_compiled_ops_equal_eager_ones():
    def layer(update, bias, residual, nodes, tasks, ids):
        hidden = kernels.residual_norm(update, bias, residual, 1e-5, 0.1, 3)
        expanded = kernels.bias_gelu(hidden, bias, 0.1, 4)
        return expanded + kernels.gather_children(nodes, tasks, ids, ids)

    ids = torch.arange(64, device="cuda") % 7
    results = []
    for function in (layer, torch.compile(layer, fullgraph=True)):
        leaves = [
            x.requires_grad_() for x in (draw(4, 64, 256), draw(256), draw(4, 64, 256), draw(9, 256), draw(2, 256))
        ]
        out = function(*leaves, ids)
        out.backward(draw(*out.shape))
        results.append([out, *(x.grad for x in leaves)])
    for eager, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=2e-2, atol=2e-2)
