"""The whole model on a GPU: the authors' numbers by torch and by kernels."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from modeling_fast_r2d2 import FastR2D2ForPreTraining, FastR2D2Model
from modeling_fast_r2d2 import modeling_fast_r2d2 as modeling
from modeling_fast_r2d2.convert_original_checkpoint import convert_config, convert_state_dict

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to run the model on")

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = [case["name"] for case in json.loads((GOLDEN / "cases.json").read_text())["cases"]]


def read(case: dict, **options) -> tuple[FastR2D2Model, dict[str, torch.Tensor]]:
    """A reference case's model and inputs."""
    config = convert_config(case["config"])
    config.update(options)
    weights = convert_state_dict(load_file(GOLDEN / case["weights"]), config)
    model = FastR2D2ForPreTraining.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
    inputs = {key: torch.tensor(case[key]).cuda() for key in ("input_ids", "attention_mask")}
    if case["atom_spans"] is not None:
        most = max(len(row or []) for row in case["atom_spans"])
        rows = [(row or []) + [[-1, -1]] * (most - len(row or [])) for row in case["atom_spans"]]
        inputs["atom_spans"] = torch.tensor(rows).cuda()
    return model.model.eval().cuda(), inputs


@pytest.mark.parametrize("kernels", ["torch", "triton"])
def test_reference_cases_are_right(kernels):
    for name in NAMES:
        case = json.loads((GOLDEN / "cases" / f"{name}.json").read_text())
        arrays = load_file(GOLDEN / case["arrays"])
        model, inputs = read(case, composition_kernels=kernels)
        for encoding in ("forced", "chart"):
            with torch.inference_mode():
                ours = model(**inputs, encoding=encoding).pooler_output.double().cpu()
            error = (ours - arrays[f"{encoding}_root"]).abs() / (1 + arrays[f"{encoding}_root"].abs())
            assert error.max() < 1e-4, (name, encoding)


@pytest.mark.parametrize("kernels", ["torch", "triton"])
@pytest.mark.parametrize("encoding", ["forced", "chart"])
@torch.no_grad()
def test_the_walk_over_the_levels_waits_for_nothing(encoding, kernels, tiny_config, monkeypatch):
    tiny_config.composition_kernels = kernels
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


def test_a_tiny_pretraining_run_follows_torchs_curve(tiny_config):
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "parser_dropout_prob", "split_noise"):
        setattr(tiny_config, name, 0.0)
    tiny_config.choice_noise = 0.0
    ids, curves = torch.randint(20, tiny_config.vocab_size, (4, 12), device="cuda"), []
    for kernels in ("torch", "triton"):
        tiny_config.composition_kernels = kernels
        torch.manual_seed(1)
        model = FastR2D2ForPreTraining(tiny_config).train().cuda()
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
        for _ in range(100):
            loss = model(ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        curves.append(torch.tensor(losses))
    assert curves[0][-1] < curves[0][0]
    torch.testing.assert_close(*curves, rtol=1e-2, atol=1e-2)
