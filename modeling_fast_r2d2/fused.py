"""Whether a composition runs on torch's own operations or on the fused ones of `fast_r2d2_kernels`."""

import torch
from torch import Tensor, nn

try:
    import fast_r2d2_kernels
except ImportError:  # as in a checkpoint's own code where nothing is installed
    fast_r2d2_kernels = None

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
    if fast_r2d2_kernels is not None and fast_r2d2_kernels.is_available():
        return fast_r2d2_kernels
    if choice == "triton":
        raise ValueError(
            "composition_kernels='triton' needs a GPU, Triton and the fast-r2d2 package; take 'auto' or 'torch'"
        )
    return None


def dropout_of(module: nn.Dropout) -> tuple[float, int]:
    """Probability and seed for a fused operation; the seed comes from torch's generator, so that runs repeat."""
    if not module.training or not module.p:
        return 0.0, 0
    return module.p, int(torch.randint(2**31, ()))


__all__ = ["COMPOSITION_KERNELS", "dropout_of", "fused_kernels"]
