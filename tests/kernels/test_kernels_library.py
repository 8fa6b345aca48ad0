"""Hugging Face's `kernels` library loads the kernels from the checkout and puts their layer into a model.

On a CPU the ops compute their references, so that the layer can be compared with the model's own.
"""

import copy
from pathlib import Path

import pytest
import torch

import fast_r2d2_kernels
from kernels import LocalLayerRepository, Mode, get_local_kernel, kernelize, use_kernel_mapping
from modeling_fast_r2d2 import FastR2D2ForPreTraining

FOLDER = Path(__file__).parents[2] / "kernels"


@pytest.fixture(scope="module")
def kernel():
    return get_local_kernel(FOLDER)


def kernelized(model: FastR2D2ForPreTraining, mode: Mode = Mode.TRAINING, **options) -> FastR2D2ForPreTraining:
    """A copy of the model that runs on the library's layers."""
    layer = LocalLayerRepository(repo_path=FOLDER, layer_name="CompositionLayer")
    with use_kernel_mapping({"CompositionLayer": {"cpu": layer}}, inherit_mapping=False):
        return kernelize(copy.deepcopy(model), mode=mode, device="cpu", **options)


def loss_and_gradients(model: FastR2D2ForPreTraining, batch: dict) -> dict[str, torch.Tensor]:
    loss = model(**batch).loss
    loss.backward()
    return {"loss": loss} | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_the_folder_is_loaded_beside_the_installed_package(kernel):
    assert kernel.__all__ == fast_r2d2_kernels.__all__
    assert not any(getattr(kernel, name) is getattr(fast_r2d2_kernels, name) for name in kernel.__all__)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_the_layer_computes_what_the_models_own_does(kernel, tiny_config, a_batch, activation):
    tiny_config.hidden_act = activation
    model = FastR2D2ForPreTraining(tiny_config).eval()
    ours = kernelized(model)
    forwards = {layer.forward.__func__ for layer in ours.model.composition.stack.layers}
    assert forwards == {kernel.layers.CompositionLayer.forward}
    found, expected = (loss_and_gradients(each, a_batch) for each in (ours, model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_gradient_checkpointing_still_runs_the_layer_again(kernel, tiny_model, a_batch, monkeypatch):
    ours, runs = kernelized(tiny_model).train(), []
    bias_gelu = kernel.composition_layer.bias_gelu
    monkeypatch.setattr(kernel.composition_layer, "bias_gelu", lambda *args: runs.append(args) or bias_gelu(*args))
    results, counts = [], []
    for checkpointing in (False, True):
        if checkpointing:
            ours.gradient_checkpointing_enable()
        torch.manual_seed(0)
        results.append(loss_and_gradients(ours, a_batch))
        counts.append(len(runs))
        runs.clear()
        ours.zero_grad()
    assert counts[1] == 2 * counts[0] > 0
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("is_first", [False, True])
def test_adapters_of_a_replaced_layer_still_have_a_part(tiny_config, a_batch, is_first):
    peft = pytest.importorskip("peft")

    def adapt(model):
        torch.manual_seed(0)
        options = peft.LoraConfig(r=2, target_modules=["query_key_value", "output"], init_lora_weights=False)
        return peft.get_peft_model(model, options).eval()

    plain = FastR2D2ForPreTraining(tiny_config).eval()
    expected = loss_and_gradients(adapt(copy.deepcopy(plain)), a_batch)
    ours = kernelized(adapt(plain)) if is_first else adapt(kernelized(plain))
    torch.testing.assert_close(loss_and_gradients(ours, a_batch), expected)


def test_copies_and_checkpoints_hold_the_same_model(tiny_model, a_batch, tmp_path):
    ours = kernelized(tiny_model)
    expected = ours(**a_batch).loss
    copied = copy.deepcopy(ours)
    assert all(layer.forward.__self__ is layer for layer in copied.model.composition.stack.layers)
    ours.save_pretrained(tmp_path)
    for other in (copied, FastR2D2ForPreTraining.from_pretrained(tmp_path)):
        torch.testing.assert_close(other(**a_batch).loss, expected)


def test_a_model_that_is_to_be_compiled_keeps_its_own_layer(tiny_model):
    with pytest.raises(ValueError, match="does not support mode"):
        kernelized(tiny_model, Mode.TRAINING | Mode.TORCH_COMPILE, use_fallback=False)
