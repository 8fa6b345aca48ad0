"""The choice between torch's own operations and the fused kernels of `fast_r2d2_kernels`."""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

COMPOSITION_KERNELS = ("auto", "torch", "triton")


def fused_kernels(composition_kernels: str, tensor: Tensor) -> Any:
    """The module of fused kernels if they run for a tensor, None if torch's own operations do.

    Before kernels are used on a device, dtype and size for the first time, they are compared with their definitions.

    Args:
        composition_kernels: of the configuration; ``"auto"`` means fused kernels on a GPU where Triton is installed and
            the kernels give right numbers.
        tensor: ``(..., size)`` vectors, or ``(num_tokens,)`` split scores.

    Raises:
        ValueError: if ``"triton"`` was asked for and cannot run.
        RuntimeError: if ``"triton"`` was asked for and a kernel fails or gives wrong numbers.
    """
    is_idle = composition_kernels == "auto" and not tensor.is_cuda
    if composition_kernels == "torch" or tensor.dtype == torch.float64 or is_idle:
        return None
    kernels = _load()
    if kernels is not None and kernels.runs_fused(tensor):
        size = tensor.shape[-1] if tensor.dim() > 1 else None
        fault = _fault(str(tensor.device), tensor.dtype, size, composition_kernels == "triton")
        return kernels if fault is None else None
    if composition_kernels == "triton":
        raise ValueError(
            "composition_kernels='triton' needs a model on a GPU, Triton and the fast-r2d2 package; take 'auto' or "
            "'torch'"
        )
    _say_that_torch_runs("the fast-r2d2 package" if kernels is None else "Triton")
    return None


@torch.compiler.assume_constant_result  # torch's compiler must not look into the check
def _fault(device: str, dtype: torch.dtype, size: int | None, must_run: bool) -> str | None:
    return _find_fault(device, dtype, size, must_run)


@cache
def _find_fault(device: str, dtype: torch.dtype, size: int | None, must_run: bool) -> str | None:
    """What is wrong with the kernels, found once for each device, dtype and size; None if nothing is."""
    trust = _load().trust
    fault = trust.first_fault(torch.device(device), dtype, size)
    if fault is None:
        return None
    place = trust.describe_place(torch.device(device), dtype)
    if must_run:
        raise RuntimeError(f"{fault} ({place}); take composition_kernels='torch'")
    warnings.warn(f"{fault} ({place}); torch's operations run instead", RuntimeWarning, stacklevel=4)
    return fault


@cache
def _say_that_torch_runs(missing: str) -> None:
    warnings.warn(f"{missing} is not installed, so torch's operations run, which are slower", stacklevel=3)


@cache
def _load() -> Any:
    """Imported at first use, since Triton takes a second to import and a CPU does not need it."""
    try:
        import fast_r2d2_kernels
    except ImportError:  # as in a checkpoint's own code where nothing is installed
        return None
    return fast_r2d2_kernels


__all__ = ["COMPOSITION_KERNELS", "fused_kernels"]
