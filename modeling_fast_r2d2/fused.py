"""The choice between torch's own operations and the fused kernels of `fast_r2d2_kernels`."""

import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

COMPOSITION_KERNELS = ("auto", "torch", "triton")


class KernelSizes(NamedTuple):
    """The sizes of a model that decide what is compiled for it."""

    hidden_size: int
    num_heads: int
    intermediate_size: int
    window_size: int

    @classmethod
    def of(cls, config: Any) -> "KernelSizes":
        return cls(config.hidden_size, config.num_attention_heads, config.intermediate_size, config.window_size)


def fused_kernels(composition_kernels: str, tensor: Tensor, sizes: KernelSizes | None = None) -> Any:
    """The module of fused kernels if they run for a tensor, None if torch's own operations do.

    Before kernels are used on a device, in a dtype and for a model's sizes for the first time, they are compared with
    their definitions: their backward passes when gradients are first asked for.

    Args:
        composition_kernels: of the configuration; ``"auto"`` means fused kernels on a GPU where Triton is installed and
            the kernels give right numbers.
        tensor: ``(..., hidden_size)`` vectors, or ``(num_tokens,)`` split scores.
        sizes: of the model; None for split scores.

    Raises:
        ValueError: if ``"triton"`` was asked for and cannot run.
        RuntimeError: if ``"triton"`` was asked for and a kernel fails or gives wrong numbers.
    """
    is_idle = composition_kernels == "auto" and not tensor.is_cuda
    if composition_kernels == "torch" or tensor.dtype == torch.float64 or is_idle:
        return None
    kernels = _load()
    if kernels is not None and kernels.runs_fused(tensor):
        place = str(tensor.device), tensor.dtype, sizes, torch.is_grad_enabled()
        fault = _fault(*place, composition_kernels == "triton")
        return kernels if fault is None else None
    if composition_kernels == "triton":
        raise ValueError(
            "composition_kernels='triton' needs a model on a GPU, Triton and the fast-r2d2 package; take 'auto' or "
            "'torch'"
        )
    _say_that_torch_runs("the fast-r2d2 package" if kernels is None else "Triton")
    return None


@torch.compiler.assume_constant_result  # torch's compiler must not look into the check
def _fault(
    device: str, dtype: torch.dtype, sizes: KernelSizes | None, with_gradients: bool, must_run: bool
) -> str | None:
    return _find_fault(device, dtype, sizes, with_gradients, must_run)


@cache
def _find_fault(
    device: str, dtype: torch.dtype, sizes: KernelSizes | None, with_gradients: bool, must_run: bool
) -> str | None:
    """What is wrong with the kernels, found once for all arguments; None if nothing is."""
    trust = _load().trust
    fault = trust.first_fault(torch.device(device), dtype, sizes, with_gradients)
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


__all__ = ["COMPOSITION_KERNELS", "KernelSizes", "fused_kernels"]
