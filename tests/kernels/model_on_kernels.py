"""The whole model on fused kernels, on a GPU or by Triton's interpreter, in processes of their own.

`test_gpu.py` and `test_interpreter.py` start them.
"""

import pytest
import torch
from test_golden import NAMES, Golden
from without_chance import WITHOUT_CHANCE

import fast_r2d2_kernels
from comparison import DEVICE
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.composition import CompositionLayer


def read(name: str, kernels: str) -> tuple[Golden, FastR2D2ForPreTraining, dict[str, torch.Tensor]]:
    golden = Golden(name, torch.float32)
    golden.config.composition_kernels = kernels
    inputs = {key: value.to(DEVICE) for key, value in golden.inputs.items()}
    return golden, golden.model(FastR2D2ForPreTraining).to(DEVICE), inputs


@pytest.mark.parametrize("kernels", ["triton"] if DEVICE == "cpu" else ["torch", "triton"])
@pytest.mark.parametrize("name", ["len5_batch2", "len1"] if DEVICE == "cpu" else NAMES)
def test_reference_cases_are_right(name, kernels):
    """The interpreter takes seconds for a case."""
    golden, model, inputs = read(name, kernels)
    for encoding in ("forced", "chart"):
        with torch.inference_mode():
            ours = model.model(**inputs, encoding=encoding).pooler_output.cpu()
        assert golden.is_close(ours, golden.arrays[f"{encoding}_root"])


def test_losses_and_all_gradients_are_those_of_torch():
    results = {}
    for kernels in ("torch", "triton"):
        _, model, inputs = read("len5_batch2", kernels)
        output = model(**inputs)
        output.loss.backward()
        results[kernels] = output, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    torch.testing.assert_close(results["triton"][0].loss, results["torch"][0].loss, rtol=1e-5, atol=1e-5)
    ours, theirs = results["triton"][1], results["torch"][1]
    assert ours.keys() == theirs.keys()
    size = {name: gradient.square().mean().sqrt() for name, gradient in theirs.items()}
    for name in ours:  # that of the score's bias is zero but for rounding: shifting all scores changes nothing
        error = (ours[name] - theirs[name]).square().mean().sqrt()
        assert error < 1e-4 * size[name] + 1e-6 * max(size.values()), name


def small(**options) -> FastR2D2Config:
    """The interpreter takes about a millisecond for every program, of which a step has hundreds."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "window_size": 2}
    parser = {"parser_embedding_size": 8, "parser_hidden_size": 8, "parser_num_layers": 1}
    return FastR2D2Config(**sizes, **parser, intermediate_size=32, **options)


def test_training_follows_the_same_curve():
    ids, curves = torch.tensor([[20, 21, 22]], device=DEVICE), {}
    for kernels in ("torch", "triton"):
        torch.manual_seed(1)
        model = FastR2D2ForPreTraining(small(composition_kernels=kernels, **WITHOUT_CHANCE)).train().to(DEVICE)
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
        for _ in range(40):
            loss = model(ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        curves[kernels] = torch.tensor(losses)
    assert curves["torch"][-1] < 0.3 * curves["torch"][0]
    bound = 1e-3 if DEVICE == "cpu" else 1e-2
    torch.testing.assert_close(curves["triton"], curves["torch"], rtol=bound, atol=bound)


def test_dropout_and_noise_train_and_repeat():
    torch.manual_seed(0)
    model = FastR2D2ForPreTraining(small(composition_kernels="triton")).train()
    ids = torch.tensor([[20, 21, 22, 23]])

    def losses(checkpointing: bool) -> tuple[float, torch.Tensor]:
        torch.manual_seed(3)
        if checkpointing:
            model.gradient_checkpointing_enable()
        loss = model(ids).loss
        loss.backward()
        gradient = model.model.composition.blend.weight.grad.clone()
        model.zero_grad()
        return loss.item(), gradient

    first, second, checkpointed = losses(False), losses(False), losses(True)
    assert first[0] == second[0] == checkpointed[0]
    assert torch.equal(first[1], second[1]) and torch.allclose(first[1], checkpointed[1], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_layer_on_its_own_trains_under_autocast(dtype):
    """As Hugging Face's library calls it: with float32 vectors and weights, and without autocast in backward passes."""
    torch.manual_seed(0)
    layer, results = CompositionLayer(small(**WITHOUT_CHANCE)).to(DEVICE), []
    hidden, role_bias = torch.randn(4, 3, 16, device=DEVICE), torch.randn(4, 48, device=DEVICE)
    for enabled in (True, False):
        with torch.autocast(DEVICE, dtype, enabled=enabled):
            output = fast_r2d2_kernels.layers.composition_layer(layer, hidden, role_bias)
        assert output.dtype == torch.float32
        (output * torch.linspace(-1, 1, 16, device=DEVICE)).sum().backward()
        results.append(torch.cat([w.grad.flatten() for w in layer.parameters() if w.grad is not None]))
        layer.zero_grad()
    assert (results[0] - results[1]).norm() < 0.05 * results[1].norm()
