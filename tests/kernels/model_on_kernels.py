"""The whole model on fused kernels, on a GPU or by Triton's interpreter, in processes of their own.

`test_gpu.py` and `test_interpreter.py` start them.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from comparison import DEVICE
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model, fused
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart
from modeling_fast_r2d2.checkpoints.original import convert_config, convert_state_dict
from modeling_fast_r2d2.tree_distribution import TreeDistribution

GOLDEN = Path(__file__).parents[1] / "golden"
# The interpreter takes seconds for a case.
NAMES = ["len5_batch2", "len1"] if DEVICE == "cpu" else [path.stem for path in sorted(GOLDEN.glob("cases/*.json"))]


def read(name: str, kernels: str) -> tuple[dict, FastR2D2ForPreTraining, dict[str, torch.Tensor]]:
    """A reference case, its model and its inputs."""
    case = json.loads((GOLDEN / "cases" / f"{name}.json").read_text())
    config = convert_config(case["config"])
    config.composition_kernels = kernels
    weights = convert_state_dict(load_file(GOLDEN / case["weights"]), config)
    model = FastR2D2ForPreTraining.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    inputs = {key: torch.tensor(case[key]).to(DEVICE) for key in ("input_ids", "attention_mask")}
    if case["atom_spans"] is not None:
        most = max(len(row or []) for row in case["atom_spans"])
        rows = [(row or []) + [[-1, -1]] * (most - len(row or [])) for row in case["atom_spans"]]
        inputs["atom_spans"] = torch.tensor(rows).to(DEVICE)
    return case, model.eval().to(DEVICE), inputs


@pytest.mark.parametrize("kernels", ["triton"] if DEVICE == "cpu" else ["torch", "triton"])
@pytest.mark.parametrize("name", NAMES)
def test_reference_cases_are_right(name, kernels):
    case, model, inputs = read(name, kernels)
    arrays = load_file(GOLDEN / case["arrays"])
    for encoding in ("forced", "chart"):
        with torch.inference_mode():
            ours = model.model(**inputs, encoding=encoding).pooler_output.double().cpu()
        error = (ours - arrays[f"{encoding}_root"]).abs() / (1 + arrays[f"{encoding}_root"].abs())
        assert error.max() < 1e-4


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


@pytest.mark.parametrize("objective", ["exact", "sampled"])
def test_the_tree_loss_is_that_of_torch(objective):
    lengths = torch.tensor([9, 1, 30, 2])
    ranks = merge_ranks(torch.randn(4, 29, generator=torch.Generator().manual_seed(0)), lengths)
    chart = plan_chart(ranks, lengths, window_size=3, reachable_only=True)
    losses, scores = [], torch.randn(42, requires_grad=True)
    trees = TreeDistribution(chart, torch.zeros(chart.splits.shape).masked_fill(chart.splits < 0, float("-inf")))
    counts = None if objective == "exact" else trees.sample(5) / 5
    for kernels in ("triton", "torch"):
        loss = trees.tree_loss(scores, counts, kernels)
        losses.append((loss, *torch.autograd.grad(loss, scores)))
    torch.testing.assert_close(*losses)


def small(**options) -> FastR2D2Config:
    """The interpreter takes about a millisecond for every program, of which a step has hundreds."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "window_size": 2}
    parser = {"parser_embedding_size": 8, "parser_hidden_size": 8, "parser_num_layers": 1}
    return FastR2D2Config(**sizes, **parser, intermediate_size=32, **options)


WITHOUT_CHANCE = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "parser_dropout_prob": 0.0,
    "split_noise": 0.0, "choice_noise": 0.0,
}  # fmt: skip


@torch.no_grad()
def test_scoring_first_chooses_and_builds_what_building_all_does(monkeypatch):
    monkeypatch.setattr(fused, "MIN_VALUES_TO_SCORE_FIRST", 0)
    ids, outputs = torch.randint(20, 40, (2, 5)), []
    for kernels in ("torch", "triton"):
        torch.manual_seed(1)
        outputs.append(FastR2D2Model(small(composition_kernels=kernels)).eval()(ids, encoding="chart"))
    for name in ("last_hidden_state", "log_prob"):
        torch.testing.assert_close(outputs[0][name], outputs[1][name], rtol=1e-4, atol=1e-5)


def test_training_follows_the_same_curve():
    ids, curves = torch.tensor([[20, 21, 22]], device=DEVICE), {}
    for kernels in ("torch", "triton"):
        torch.manual_seed(1)
        model = FastR2D2ForPreTraining(small(composition_kernels=kernels, **WITHOUT_CHANCE)).train().to(DEVICE)
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
        for _ in range(100):
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
