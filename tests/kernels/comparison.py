"""How an op is compared with its reference: values and every gradient, by relative error against float64.

What an interpreter or a GPU runs has a process of its own: see `run_apart`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-3}
OF_A_LAYER = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # as many roundings as it has steps
# The interpreter cuts off what bfloat16 cannot hold, which a GPU rounds.
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])


def run_apart(file: str, chosen: str, environment: dict[str, str]) -> None:
    """Run the tests of a file of this folder whose names fit ``chosen``, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen, file]
    run = subprocess.run(command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(hash((shape, seed)))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def relative_error(value: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference over that of what is expected; NaN counts as infinite."""
    assert value.shape == expected.shape
    value, expected = value.detach().double().cpu(), expected.detach().double().cpu()
    if value.equal(expected):
        return 0.0
    error = (value - expected).norm() / expected.norm()
    return float("inf") if error.isnan() else error.item()


def results(op: Callable, inputs: tuple, device: str, dtype: torch.dtype) -> list[Tensor]:
    """Outputs of ``op``, then gradients of all inputs in floating point, for gradients drawn for the outputs."""
    inputs = [x.to(device) if isinstance(x, Tensor) else x for x in inputs]
    moved = [x.to(dtype).requires_grad_() if _is_real(x) else x for x in inputs]
    outputs = op(*moved)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = [x for x in outputs if _is_real(x)]
    arriving = [draw(*x.shape, seed=-1).bfloat16().to(x) for x in wanted]  # so that they are exact in every dtype
    torch.autograd.backward(wanted, arriving)
    return [*outputs, *(x.grad for x in moved if _is_real(x))]


def assert_close(
    op: Callable, reference: Callable, inputs: tuple, dtype: torch.dtype, limits: dict[torch.dtype, float] = TOLERANCE
) -> None:
    """All outputs and gradients against the reference's in float64, from inputs as ``dtype`` rounds them."""
    rounded = tuple(x.to(dtype).double() if _is_real(x) else x for x in inputs)
    ours, expected = results(op, rounded, DEVICE, dtype), results(reference, rounded, "cpu", torch.float64)
    error = max(relative_error(a, b) for a, b in zip(ours, expected, strict=True))
    assert error <= limits[dtype], f"relative error {error:.1e} in {dtype}"


def _is_real(value) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
