"""Whether a composition runs on torch's own operations or on the fused ones of `fast_r2d2_kernels`."""

from functools import cache

import torch
from torch import Tensor

COMPOSITION_KERNELS = ("auto", "torch", "triton")


def fused_kernels(choice: str, tensor: Tensor):
    """The module of fused operations for a tensor, or None for torch's.

    Args:
        choice: ``config.composition_kernels``: ``"auto"`` takes the fused ones on a GPU where Triton is installed.

    Raises:
        ValueError: if ``"triton"`` was asked for and cannot run.
    """
    if choice == "torch" or tensor.dtype == torch.float64 or (choice == "auto" and not tensor.is_cuda):
        return None
    kernels = _load()
    if kernels is not None and kernels.runs_fused(tensor):
        return kernels
    if choice == "triton":
        raise ValueError(
            "composition_kernels='triton' needs a model on a GPU, Triton and the fast-r2d2 package; take 'auto' or "
            "'torch'"
        )
    return None


@cache
def _load():
    """Imported where it is asked for: a CPU need not wait a second for Triton."""
    try:
        import fast_r2d2_kernels
    except ImportError:  # as in a checkpoint's own code where nothing is installed
        return None
    return fast_r2d2_kernels


__all__ = ["COMPOSITION_KERNELS", "fused_kernels"]
