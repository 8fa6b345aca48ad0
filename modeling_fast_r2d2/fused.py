"""The choice between torch's own operations and the fused kernels of `fast_r2d2_kernels`."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

COMPOSITION_KERNELS = ("auto", "torch", "triton")


def fused_kernels(composition_kernels: str, tensor: Tensor) -> Any:
    """The module of fused kernels if they run for a tensor, None if torch's own operations do.

    Args:
        composition_kernels: of the configuration; ``"auto"`` means fused kernels on a GPU where Triton is installed.

    Raises:
        ValueError: if ``"triton"`` was asked for and cannot run.
    """
    is_idle = composition_kernels == "auto" and not tensor.is_cuda
    if composition_kernels == "torch" or tensor.dtype == torch.float64 or is_idle:
        return None
    kernels = _load()
    if kernels is not None and kernels.runs_fused(tensor):
        return kernels
    if composition_kernels == "triton":
        raise ValueError(
            "composition_kernels='triton' needs a model on a GPU, Triton and the fast-r2d2 package; take 'auto' or "
            "'torch'"
        )
    return None


@cache
def _load() -> Any:
    """Imported at first use, since Triton takes a second to import and a CPU does not need it."""
    try:
        import fast_r2d2_kernels
    except ImportError:  # as in a checkpoint's own code where nothing is installed
        return None
    return fast_r2d2_kernels


__all__ = ["COMPOSITION_KERNELS", "fused_kernels"]
