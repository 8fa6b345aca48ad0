"""Are the numbers right on this GPU, and where do they not repeat? A part of `on_gpu.py`.

    python examples/benchmarks/checks.py --output_dir runs/gpu/checks

Each check stands alone: what goes wrong in one is noted and does not end the others. Sizes are the project's own, so
that kernels are compiled for the vectors and heads that models have.
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import set_seed

from measuring import as_memory, pad, peak_memory, read_corpus, save
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from pretraining.options import SIZES

HALF = torch.bfloat16, torch.float16
SMALLEST_ERROR = 1e-5  # relative to float64: float32 alone makes such errors
MOST_WAITS = 3  # for the numbers of the inputs, the split scores, and whether vectors are finite
LARGE_CHARTS_BYTES = 4 * 2**30
# The checks of what repeats need it, before the first product.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class Machine:
    """Where the checks run, and models and batches for it."""

    def __init__(self, tiny: bool):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tiny = tiny
        self.sizes = ["tiny"] if tiny else list(SIZES)
        self.largest = self.sizes[-1]

    def config(self, size: str, **options: Any) -> FastR2D2Config:
        noiseless = dict.fromkeys(
            ("hidden_dropout_prob", "attention_probs_dropout_prob", "parser_dropout_prob", "split_noise",
             "choice_noise"), 0.0,
        )  # fmt: skip
        return FastR2D2Config(**SIZES[size] | {"vocab_size": 30522} | noiseless | options)

    def encoder(self, size: str, dtype: torch.dtype = torch.float32, **options: Any) -> FastR2D2Model:
        set_seed(0)
        return FastR2D2Model(self.config(size, **options)).eval().to(self.device, dtype)

    def batch(self, count: int, low: int = 5, high: int = 30) -> dict[str, Tensor]:
        count, high = (3, 9) if self.tiny else (count, high)
        return pad(read_corpus(None, count, min(low, high - 1), high), self.device)


def versions(machine: Machine) -> str:
    found = {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}
    found["triton"] = importlib.import_module("triton").__version__ if importlib.util.find_spec("triton") else "none"
    if machine.device == "cuda":
        memory = as_memory(torch.cuda.get_device_properties(0).total_memory)
        found |= {torch.cuda.get_device_name(): memory, "CUDA": torch.version.cuda or "none"}
        found["cuDNN"] = str(torch.backends.cudnn.version())
    return ", ".join(f"{name} {version}" for name, version in found.items())


def kernels(machine: Machine, size: str, dtype: torch.dtype) -> str:
    """Roots and gradients by kernels and by torch's operations in a dtype, each against torch's in float64.

    In half precision only along given trees: rounding may choose other candidates in a chart.
    """
    batch = machine.batch(8)
    given = {"split_scores": torch.rand(batch["input_ids"][:, 1:].shape, generator=torch.Generator().manual_seed(0))}
    inputs = batch | {name: scores.to(machine.device) for name, scores in given.items()}
    errors = []
    for encoding in ("forced",) if dtype in HALF else ("forced", "chart"):
        exact = _roots_and_gradients(machine.encoder(size, torch.float64), inputs, encoding)
        for kind in ("triton" if machine.device == "cuda" else "auto", "torch"):
            ours = _roots_and_gradients(machine.encoder(size, dtype, composition_kernels=kind), inputs, encoding)
            errors.append(max(_distance(*pair) for pair in zip(ours, exact, strict=True)))
        if not errors[-2] <= max(2 * errors[-1], SMALLEST_ERROR):
            raise ValueError(f"{encoding}: kernels are wrong by {errors[-2]:.1e}, torch by {errors[-1]:.1e}")
    return "relative errors of kernels and of torch: " + ", ".join(f"{error:.1e}" for error in errors)


def _roots_and_gradients(model: FastR2D2Model, inputs: dict[str, Tensor], encoding: str) -> list[Tensor]:
    roots = model(**inputs, encoding=encoding).pooler_output
    (roots * torch.linspace(-1, 1, roots.shape[1]).to(roots)).sum().backward()
    gradients = [weight.grad.flatten().double() for weight in model.parameters() if weight.grad is not None]
    return [roots.detach().double(), torch.cat(gradients)]


def _distance(ours: Tensor, expected: Tensor) -> float:
    return ((ours - expected).norm() / expected.norm()).item()


@torch.inference_mode()
def waits(machine: Machine, encoding: str) -> str:
    """How often the host waits for the GPU in an encoding, and where."""
    model, batch = machine.encoder(machine.largest), machine.batch(8)
    model(**batch, encoding=encoding)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if machine.device == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        try:
            model(**batch, encoding=encoding)
        finally:
            if machine.device == "cuda":
                torch.cuda.set_sync_debug_mode("default")
    places = [f"{Path(w.filename).name}:{w.lineno}" for w in seen if "called a synchronizing" in str(w.message)]
    if len(places) > MOST_WAITS:
        raise ValueError(f"{len(places)} waits, at most {MOST_WAITS} are allowed: {', '.join(places)}")
    return f"{len(places)} {', '.join(places)}"


@torch.inference_mode()
def large_charts(machine: Machine) -> str:
    """The memory of charts whose largest level has more than 100,000 compositions; levels must go in parts."""
    model = machine.encoder(machine.largest, HALF[0] if machine.device == "cuda" else torch.float32)
    batch = machine.batch(218, 149, 150)
    memory = peak_memory(lambda: model(**batch, encoding="chart"), machine.device)
    if memory is not None and memory > LARGE_CHARTS_BYTES:
        raise ValueError(f"{as_memory(memory)}, at most {as_memory(LARGE_CHARTS_BYTES)} are allowed")
    return as_memory(memory)


def repeats(machine: Machine, deterministic: bool) -> str:
    """Whether three steps of pretraining from the same seed give the same weights twice. Raises ValueError if they do
    not although torch was told to be deterministic."""
    torch.use_deterministic_algorithms(deterministic)
    try:
        first, second = (_trained_weights(machine) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    if torch.equal(first, second):
        return "the same weights"
    said = f"weights differ by {_distance(first, second):.1e} of their norm"
    if deterministic:
        raise ValueError(said)
    return said


def _trained_weights(machine: Machine) -> Tensor:
    set_seed(0)
    config = machine.config(machine.largest, hidden_dropout_prob=0.1, split_noise=1.0, choice_noise=1.0)
    model = FastR2D2ForPreTraining(config).train().to(machine.device)
    optimizer, batch = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), machine.batch(32)
    for _ in range(3):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def all_checks(machine: Machine) -> Iterator[tuple[str, Callable[[], str]]]:
    """Name and function of each check, the most informative first."""
    dtypes = (torch.float32, *HALF) if machine.device == "cuda" else (torch.float32,)
    yield "versions", lambda: versions(machine)
    for size in machine.sizes:
        for dtype in dtypes:
            yield f"kernels, {size} size, {dtype}", lambda size=size, dtype=dtype: kernels(machine, size, dtype)
    for encoding in ("forced", "chart"):
        yield f"waits, {encoding}", lambda encoding=encoding: waits(machine, encoding)
    yield "memory of large charts", lambda: large_charts(machine)
    for deterministic in (True, False):
        name = f"training repeats{', deterministic algorithms' if deterministic else ''}"
        yield name, lambda deterministic=deterministic: repeats(machine, deterministic)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, help="folder for checks.json and checks.md")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the checks on a CPU")
    options = parser.parse_args(arguments)
    machine = Machine(options.tiny)
    if machine.device == "cpu" and not options.tiny:
        sys.exit("there is no GPU that torch can use; --tiny tries the checks on a CPU")
    results: dict[str, dict] = {}
    for name, check in all_checks(machine):
        start = time.monotonic()
        try:
            result = {"right": True, "found": check()}
        except Exception as error:  # a kernel, a driver or too little memory must not cost the other checks
            traceback.print_exc()
            result = {"right": False, "found": f"{type(error).__name__}: {str(error)[:500]}"}
        results[name] = result | {"seconds": time.monotonic() - start}
        print(f"{name}: {json.dumps(results[name])}", flush=True)
        save(options.output_dir, "checks", results, describe(results))
    sys.exit(not all(result["right"] for result in results.values()))


def describe(results: dict[str, dict]) -> str:
    rows = [
        [name, "right" if result["right"] else "WRONG", " ".join(result["found"].split()), f"{result['seconds']:.0f}"]
        for name, result in results.items()
    ]
    return as_markdown([["check", "", "found", "seconds"], *rows])


if __name__ == "__main__":
    main()
