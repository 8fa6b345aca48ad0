"""What is private in torch, taken away one by one: public operations give the same."""

import pytest
import torch

from modeling_fast_r2d2 import FastR2D2ForPreTraining, cpu_operations, torch_internals
from modeling_fast_r2d2.cpu_operations import linear
from modeling_fast_r2d2.encoder import is_unchanged
from modeling_fast_r2d2.node_rows import NodeRows, PlainNodeRows, rows_of_nodes

PRIVATE = {
    "_C._current_graph_task_id": lambda: torch_internals.backward_pass() is None,
    "_C._functorch.peek_interpreter_stack": torch_internals.is_transformed,
    "autograd.forward_ad._current_level": torch_internals.is_transformed,
    "nn.modules.module": torch_internals.has_global_hooks,
    "ops.mkldnn._linear_pointwise": lambda: not torch_internals.has_onednn(torch.float32),
    "ops.mkldnn._is_mkldnn_bf16_supported": lambda: not torch_internals.has_onednn(torch.bfloat16),
}


def without(name: str, monkeypatch) -> None:
    find = torch_internals._find
    monkeypatch.setattr(torch_internals, "_find", lambda path: None if path == name else find(path))


@pytest.fixture(autouse=True)
def _served(monkeypatch):
    """Small products by oneDNN, too, and no result from a torch that has everything."""
    monkeypatch.setattr(cpu_operations, "MIN_MULTIPLICATIONS", 1)
    monkeypatch.setattr(cpu_operations, "HAS_WIDE_INSTRUCTIONS", True)
    look = torch_internals.has_onednn.__wrapped__
    for module in (torch_internals, cpu_operations):
        monkeypatch.setattr(module, "has_onednn", look)


def loss_and_gradients(model, batch: dict) -> list[torch.Tensor]:
    output = model(**batch)
    output.loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return [output.loss, *gradients]


@pytest.mark.parametrize("name", PRIVATE)
def test_a_torch_without_it_gives_the_same(tiny_model, a_batch, monkeypatch, name):
    expected = loss_and_gradients(tiny_model, a_batch)
    without(name, monkeypatch)
    assert PRIVATE[name]()
    torch.testing.assert_close(loss_and_gradients(tiny_model, a_batch), expected, rtol=1e-4, atol=1e-6)
    inputs, weight = torch.randn(3, 8), torch.randn(5, 8)
    torch.testing.assert_close(linear(inputs, weight), inputs @ weight.t())
    torch.testing.assert_close(torch.vmap(lambda x: linear(x, weight))(inputs[:, None])[:, 0], inputs @ weight.t())


@pytest.mark.parametrize("name", [name for name in PRIVATE if not name.startswith("ops.")])
def test_what_is_looked_up_is_there_today(name):
    assert torch_internals._find(name) is not None and torch_internals._find(f"{name}.nothing") is None


def test_rows_are_plain_where_backward_passes_are_not_told_apart(monkeypatch):
    assert type(rows_of_nodes(torch.ones(1), 2)) is NodeRows
    without("_C._current_graph_task_id", monkeypatch)
    assert type(rows_of_nodes(torch.ones(1), 2)) is PlainNodeRows


@pytest.mark.parametrize("name", [*torch_internals.HOOKS, "_compiled_call_impl"])
def test_modules_that_cannot_say_whether_they_are_watched_count_as_watched(tiny_config, name):
    composition = FastR2D2ForPreTraining(tiny_config).model.composition
    assert is_unchanged(composition)

    class Silent(type(composition.stack)):
        def __getattribute__(self, attribute):
            if attribute == name:
                raise AttributeError(attribute)
            return super().__getattribute__(attribute)

    composition.stack.__class__ = Silent
    assert not is_unchanged(composition)
