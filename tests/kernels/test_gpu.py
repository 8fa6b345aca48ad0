"""The kernels on a GPU: the interpreter's checks in all dtypes, and what only a GPU can hold, finish or wait for."""

import os

import pytest
import torch

import fast_r2d2_kernels as kernels
from comparison import run_apart
from modeling_fast_r2d2 import FastR2D2Model
from modeling_fast_r2d2 import modeling_fast_r2d2 as modeling

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to run the kernels on")

NODES, SIZE = 100_000, 768


@pytest.mark.parametrize(
    ("file", "chosen"), [("ops_against_references.py", ""), ("model_on_kernels.py", "reference or curve")]
)
def test_ops_and_models_equal_their_references(file, chosen):
    run_apart(file, chosen, {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"})


def draw(*shape: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)


@pytest.mark.usefixtures("new_memory_is_poisoned")
def test_children_among_very_many_nodes_have_the_same_gradient_twice():
    left, right = torch.randint(NODES, (2, NODES), device="cuda")
    tensors, tasks, grads = draw(NODES, SIZE), draw(2, SIZE), []
    for _ in range(2):
        nodes = tensors.clone().requires_grad_()
        kernels.gather_children(nodes, tasks, left, right).backward(draw(4, NODES, SIZE))
        grads.append(nodes.grad)
    assert grads[0].equal(grads[1])


@pytest.mark.parametrize("operations", ["torch", "triton"])
@pytest.mark.parametrize("encoding", ["forced", "chart"])
@torch.no_grad()
def test_the_walk_over_the_levels_waits_for_nothing(encoding, operations, tiny_config, monkeypatch):
    tiny_config.composition_kernels = operations
    model = FastR2D2Model(tiny_config).eval().cuda()
    ids = torch.randint(20, tiny_config.vocab_size, (3, 30), device="cuda")
    expected = model(ids, encoding=encoding).pooler_output  # compiles the kernels
    walk = getattr(modeling, f"encode_{encoding}")

    def strict(*arguments):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return walk(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(modeling, f"encode_{encoding}", strict)
    torch.testing.assert_close(model(ids, encoding=encoding).pooler_output, expected)
