"""What encodes the levels of a chart is chosen once, and is the definition where anything else has a part in it."""

import pytest
import torch
from torch import nn

import fast_r2d2_kernels
from modeling_fast_r2d2 import fused
from modeling_fast_r2d2.children_apart import NodesApart
from modeling_fast_r2d2.choice import Nodes
from modeling_fast_r2d2.composition import Composition
from modeling_fast_r2d2.encoder import nodes_for, read_out
from modeling_fast_r2d2.fused import FusedNodes


def kind(composition: Composition, dtype: torch.dtype = torch.float32, **options) -> type:
    vectors = torch.randn(4, composition.stack.config.hidden_size, dtype=dtype)
    return type(nodes_for(composition.to(dtype), vectors, vectors[:2], 7, **options))


@pytest.fixture
def composition(tiny_config) -> Composition:
    return Composition(tiny_config)


CHANGES = {
    "a hook on a layer": lambda c: c.stack.layers[0].register_forward_hook(lambda *_: None),
    "a hook on a linear layer": lambda c: c.stack.layers[1].output.register_forward_pre_hook(lambda *_: None),
    "a replaced forward pass": lambda c: setattr(c.stack.layers[0], "forward", c.stack.layers[0].forward),
    "an adapter": lambda c: setattr(c.stack.layers[0], "output", nn.Sequential(c.stack.layers[0].output)),
    "a compiler": lambda c: c.stack.layers[0].compile(backend="eager"),
    "a subclass": lambda c: setattr(c, "__class__", type("Other", (Composition,), {})),
}


@pytest.mark.parametrize("kernels", ["torch", "triton"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_gets_the_definition(composition, change, kernels, monkeypatch):
    monkeypatch.setattr(fast_r2d2_kernels, "runs_fused", lambda tensor: True)
    monkeypatch.setattr(fused, "_find_fault", lambda *_: None)
    composition.stack.config.composition_kernels = kernels
    faster, without_choice = (FusedNodes, FusedNodes) if kernels == "triton" else (NodesApart, Nodes)
    assert kind(composition) is faster and kind(composition, has_choice=False) is without_choice
    assert kind(composition, torch.float64) is NodesApart and kind(composition.float()) is faster
    CHANGES[change](composition)
    assert kind(composition) is Nodes and kind(composition, has_choice=False) is Nodes


def test_hooks_on_all_modules_and_checkpoints_get_the_definition(composition):
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert kind(composition) is Nodes
    handle.remove()
    composition.stack.layers[0].gradient_checkpointing = True
    assert kind(composition.train()) is Nodes and kind(composition.eval()) is NodesApart


def test_one_tasks_output_is_that_of_the_whole_stack(composition):
    stack, children = composition.eval().stack, torch.randn(2, 5, composition.stack.config.hidden_size)
    task, calls = torch.randn(1, children.shape[2]), []
    expected = stack(stack.prepare(task), children)[0]
    torch.testing.assert_close(read_out(stack, task, children), expected)
    stack.register_forward_hook(lambda *given: calls.append(given))
    torch.testing.assert_close(read_out(stack, task, children), expected)
    assert len(calls) == 1
