"""Checks of outputs; nothing is timed before they pass."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

from modeling_fast_r2d2 import FastR2D2ForPreTraining, FastR2D2Model
from modeling_fast_r2d2.convert_original_checkpoint import convert_config, convert_state_dict
from timing.systems import Batch, System, pad

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
# Largest distances of root vectors, relative to their norm: to the reference, and between a batch and single sentences.
# Half precision loses a digit or two on the way up a tree; single values may lose more.
TOLERANCES = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (1e-1, 5e-2), torch.float16: (2e-2, 1e-2)}


@torch.inference_mode()
def check_references(device: str, dtype: torch.dtype, **options) -> int:
    """Compare root vectors of tree and chart with the authors' numbers. Returns the number of cases.

    Args:
        options: fields of the configuration to change, such as ``composition_kernels``.

    Raises:
        ValueError: for the first case that is wrong, with its name.
    """
    names = [case["name"] for case in json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))["cases"]]
    for name in names:
        case = json.loads((GOLDEN / "cases" / f"{name}.json").read_text(encoding="utf-8"))
        arrays = load_file(GOLDEN / case["arrays"])
        config = convert_config(case["config"])
        config.update(options)
        weights = convert_state_dict(load_file(GOLDEN / case["weights"]), config)
        model = FastR2D2ForPreTraining.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
        model = model.model.eval().to(device)
        # In float32, so that the trees are the same.
        scores = model(**_inputs(case, device), encoding="forced").split_scores
        for encoding, expected in (("forced", "forced_root"), ("chart", "chart_root")):
            if encoding == "chart" and dtype != torch.float32:
                continue  # in half precision, other candidates may win
            ours = model.to(dtype)(**_inputs(case, device), split_scores=scores, encoding=encoding).pooler_output
            distance = (ours.double().cpu() - arrays[expected]).norm() / arrays[expected].norm()
            if not distance < TOLERANCES[dtype][0]:
                raise ValueError(f"golden case {name}, {encoding}: wrong by {distance:.1e}; no times are given")
    return len(names)


def check_batching(model: FastR2D2Model, batch: Batch) -> None:
    """Check that the timed model encodes sentences in a batch as it encodes them one by one.

    Raises:
        ValueError: if it does not.
    """
    device = str(model.device)
    together = model(**pad(batch, device), encoding="forced").pooler_output.float()
    alone = torch.cat([model(**pad([ids], device), encoding="forced").pooler_output for ids in batch]).float()
    distances = (together - alone).norm(dim=1) / alone.norm(dim=1)
    # In half precision, a score may be rounded differently in a batch, and a few sentences may have other trees there.
    distance = (distances.max() if model.dtype == torch.float32 else distances.median()).item()
    if not distance < TOLERANCES[model.dtype][1]:
        raise ValueError(f"root vectors depend on the batch, by {distance:.1e}; no times are given")


def check_same(systems: Sequence[System], inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """Check that systems that differ only in their matrix products have equal outputs.

    Raises:
        ValueError: for a system with other outputs, with its name.
    """
    for system in systems:
        if system.same_as is not None:
            ours, expected = system.run(inputs).float(), system.same_as(inputs).float()
            distance = ((ours - expected).norm() / expected.norm()).item()
            if not distance < TOLERANCES[dtype][1]:
                raise ValueError(
                    f"{system.name} differs from the BERT that it should be, by {distance:.1e}; no times are given"
                )


def _inputs(case: dict, device: str) -> dict[str, torch.Tensor]:
    inputs = {key: torch.tensor(case[key]) for key in ("input_ids", "attention_mask")}
    if case["atom_spans"] is not None:
        rows = [row or [] for row in case["atom_spans"]]
        most = max(map(len, rows))
        inputs["atom_spans"] = torch.tensor([row + [[-1, -1]] * (most - len(row)) for row in rows])
    return {name: tensor.to(device) for name, tensor in inputs.items()}
