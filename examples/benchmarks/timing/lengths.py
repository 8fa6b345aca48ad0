"""Time and memory of encoding one sentence, by its length."""

import argparse
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from modeling_fast_r2d2 import FastR2D2Model
from timing.clock import peak_memory, synchronize

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


@torch.inference_mode()
def time_lengths(options: argparse.Namespace, model: FastR2D2Model) -> Iterator[dict]:
    """Seconds and bytes of encoding along a balanced tree, a random tree and, the worst case, a chain."""
    if options.lengths:
        model(**_inputs(256, "random", model.device))  # a first run does more
    for length in tqdm(options.lengths, desc="one sentence", leave=False):
        for shape in ("balanced", "random", "chain"):
            seconds: list[float] = []
            run = partial(_timed, model, _inputs(length, shape, model.device), seconds)
            memory = peak_memory(run, options.device)
            yield {"shape": shape, "tokens": length, "seconds": seconds[0], "peak_bytes": memory}


def _inputs(length: int, shape: str, device: torch.device) -> dict:
    splits = torch.arange(1, length, device=device)
    if shape == "balanced":
        scores = (splits & -splits).float()  # halves at powers of two
    else:
        scores = torch.rand(length - 1, device=device) if shape == "random" else -splits.float()
    ids = torch.randint(20, 30000, (1, length), device=device)
    return {"input_ids": ids, "split_scores": scores[None], "encoding": "forced"}


def _timed(model: FastR2D2Model, inputs: dict, seconds: list[float]) -> None:
    synchronize(model.device.type)
    start = time.perf_counter()
    model(**inputs)
    synchronize(model.device.type)
    seconds.append(time.perf_counter() - start)


def describe_lengths(rows: list[dict]) -> str:
    """A line per shape of tree and quantity: the values, and a straight line fitted to them with its R²."""
    lines = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        of_shape = [row for row in rows if row["shape"] == shape]
        tokens = np.array([row["tokens"] for row in of_shape], dtype=float)
        for what, unit, scale in (("seconds", "s", 1.0), ("peak_bytes", "MiB", 2.0**-20)):
            values = scale * np.array([row[what] for row in of_shape], dtype=float)
            listed = ", ".join(f"{count:.0f}: {value:.4g}" for count, value in zip(tokens, values, strict=True))
            lines.append(f"one sentence, {shape} tree, {unit} by tokens: {listed}{_fit(tokens, values, unit)}")
    return "\n".join(lines)


def _fit(tokens: np.ndarray, values: np.ndarray, unit: str) -> str:
    if len(tokens) < 3 or not values.std():
        return ""
    slope, start = np.polyfit(tokens, values, 1)
    explained = 1 - np.square(values - slope * tokens - start).sum() / np.square(values - values.mean()).sum()
    return f"; {start:.3g} {unit} + {1000 * slope:.3g} {unit} per 1,000 tokens, R² {explained:.4f}"
