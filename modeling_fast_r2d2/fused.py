"""Whether a composition runs on torch's own operations or on the fused ones of `fast_r2d2_kernels`."""

from functools import cache

import torch
from torch import Tensor

from .chart_planning import Search, nearest_greater

COMPOSITION_KERNELS = ("auto", "torch", "triton")


def fused_kernels(composition_kernels: str, tensor: Tensor):
    """The module of fused operations for a tensor, or None for torch's.

    Args:
        composition_kernels: of the configuration; ``"auto"`` takes the fused ones on a GPU where Triton is installed.

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


def rank_search(composition_kernels: str, ranks: Tensor) -> Search:
    """What finds greater ranks for `chart_planning`: the fused kernel where it runs, else torch's operations."""
    fused = fused_kernels(composition_kernels, ranks)
    return nearest_greater if fused is None else lambda ranks, lengths, count: fused.nearest_greater(ranks, count)


@cache
def _load():
    """Imported where it is asked for: a CPU need not wait a second for Triton."""
    try:
        import fast_r2d2_kernels
    except ImportError:  # as in a checkpoint's own code where nothing is installed
        return None
    return fast_r2d2_kernels


__all__ = ["COMPOSITION_KERNELS", "fused_kernels", "rank_search"]
