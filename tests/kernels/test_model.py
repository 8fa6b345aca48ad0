"""The model chooses its kernels by its configuration; on fused ones it computes what it computes on torch's."""

import pytest
import torch

import fast_r2d2_kernels
from fast_r2d2_kernels.composition_layer import LayerOptions
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model, fused
from modeling_fast_r2d2.composition import CompositionLayer
from modeling_fast_r2d2.fused import fused_kernels


def test_a_cpu_takes_torchs_operations_unless_told_otherwise():
    vectors, sizes = torch.ones(2, 8), (8, 2, 16, 3)
    assert fused_kernels("auto", vectors, sizes) is None and fused_kernels("torch", vectors, sizes) is None
    assert fused_kernels("triton", vectors.double(), sizes) is None
    with pytest.raises(ValueError, match="composition_kernels='triton' needs a model on a GPU"):
        fused_kernels("triton", vectors, sizes)
    with pytest.raises(ValueError, match="composition_kernels must be one of auto, torch, triton, got 'cuda'"):
        FastR2D2Config(composition_kernels="cuda")


@pytest.fixture
def definitions(monkeypatch) -> None:
    """The definitions of the fused ops run for ``composition_kernels="triton"``."""
    monkeypatch.setattr(fast_r2d2_kernels, "runs_fused", lambda tensor: True)
    monkeypatch.setattr(fused, "_find_fault", lambda *_: None)


def test_a_chart_on_fused_ops_has_torchs_loss_and_gradients(tiny_config, a_batch, definitions):
    """Nodes are projected once, children are gathered with their tasks, and gradients are summed in a planned order."""
    results = []
    for tiny_config.composition_kernels in ("torch", "triton"):
        torch.manual_seed(0)
        model = FastR2D2ForPreTraining(tiny_config).eval()
        loss = model(**a_batch).loss
        loss.backward()
        results.append([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_the_first_layer_projects_each_node_of_a_chart_once(tiny_config, definitions, monkeypatch):
    tiny_config.composition_kernels, given = "triton", []
    run = fast_r2d2_kernels.layers.composition_layer
    monkeypatch.setattr(
        fast_r2d2_kernels.layers,
        "composition_layer",
        lambda *args, **options: given.append(args[3] is not None) or run(*args, **options),
    )
    with torch.no_grad():
        FastR2D2Model(tiny_config).eval()(torch.randint(20, 100, (2, 9)), encoding="chart")
    assert given == [True, False] * (len(given) // 2) and len(given) > 2


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_under_autocast_vectors_keep_one_dtype_from_layer_to_layer(tiny_config, definitions, monkeypatch, dtype, bound):
    """A chain of 60 levels, against float32; what leaves the encoder is float32."""
    tiny_config.composition_kernels = "triton"
    model, seen = FastR2D2Model(tiny_config).eval(), set()
    residual_norm = fast_r2d2_kernels.composition_layer.residual_norm
    monkeypatch.setattr(
        fast_r2d2_kernels.composition_layer,
        "residual_norm",
        lambda *args: seen.add((args[0].dtype, args[2].dtype)) or residual_norm(*args),
    )
    ids, scores, results = torch.randint(20, 100, (2, 61)), torch.arange(60.0).expand(2, -1), []
    for is_autocast in (False, True):
        seen.clear()
        with torch.autocast("cpu", dtype, enabled=is_autocast):
            vectors = model(ids, encoding="forced", split_scores=scores).last_hidden_state
        assert vectors.dtype == torch.float32
        gradients = torch.autograd.grad(vectors.square()[..., ::2].mean(), list(model.composition.stack.parameters()))
        results.append([vectors, torch.cat([each.flatten() for each in gradients])])
    assert seen == {(dtype, dtype)}
    for expected, value in zip(*results, strict=True):
        assert (value - expected).norm() < bound * expected.norm()


def test_dropout_is_seeded_by_torch_and_off_in_evaluation(tiny_config):
    tiny_config.hidden_dropout_prob = 0.25
    layer = CompositionLayer(tiny_config)
    torch.manual_seed(0)
    first = LayerOptions.of(layer)
    torch.manual_seed(0)
    assert first == LayerOptions.of(layer) and first.dropout == 0.25 and LayerOptions.of(layer) != first
    assert LayerOptions.of(layer.eval())[2:] == (0.0, 0.0, 0)
