"""The parts that all ops share: Triton if it is installed, the launch of kernels, and gradients."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

try:
    import triton
    from triton import language as tl
except ImportError:  # stand-ins, so that files with kernels can be imported; nothing launches these kernels

    def _jit(function: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
        return function or _jit

    triton, tl = SimpleNamespace(jit=_jit), SimpleNamespace(constexpr=None)
    HAS_TRITON = False
else:
    HAS_TRITON = True

INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"

Function = TypeVar("Function", bound=Callable[..., Any])


def launch(kernel: Any, programs: int, first: Tensor, *args: Any, **options: Any) -> None:
    """Run a kernel's programs on the GPU of its first argument; none of them where there is nothing to do."""
    if programs:
        is_elsewhere = first.is_cuda and first.device.index != torch.cuda.current_device()
        with torch.cuda.device(first.device) if is_elsewhere else nullcontext():
            kernel[(programs,)](first, *args, **options)


def differentiable(save: Callable[..., None], differentiate: Callable[..., Any]) -> Callable[[Function], Function]:
    """A function of tensors and numbers with a gradient, where gradients are asked for.

    Args:
        save: keeps in a context what ``differentiate`` needs, of the tuple of inputs and of what the function returned.
        differentiate: from the context and the gradients of what was returned to those of the inputs.
    """

    def with_gradient(run: Function) -> Function:
        class WithGradient(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *args: Any) -> Any:
                output = run(*args)
                save(context, args, output)
                return output

            @staticmethod
            @once_differentiable
            def backward(context: Any, *upstream: Any) -> Any:
                return differentiate(context, *upstream)

        def choose(*args: Any) -> Any:
            return WithGradient.apply(*args) if torch.is_grad_enabled() else run(*args)

        return cast(Function, choose)

    return with_gradient


def is_available() -> bool:
    """Whether kernels can run in this process: with Triton on a GPU, or in Triton's interpreter."""
    return HAS_TRITON and (INTERPRETED or torch.cuda.is_available())


def runs_fused(tensor: Tensor) -> bool:
    """Whether ops run their kernels for this tensor. For others (on a CPU, in float64), and where torch compiles, they
    compute references."""
    is_served = (INTERPRETED or tensor.is_cuda) and tensor.dtype != torch.float64
    return HAS_TRITON and is_served and not torch.compiler.is_compiling()


def power_of_2(size: int) -> int:
    """The smallest power of two that is at least ``size``. The size of a block must be a power of two."""
    return 1 << max(size - 1, 0).bit_length()


def warps_for(block: int) -> int:
    """The number of warps for a program with ``block`` values of each operand: about 8 values per thread."""
    return min(max(block // 256, 1), 8)


def row_options(size: int) -> dict[str, int]:
    """The compile-time arguments of a kernel whose programs have whole rows of ``size`` values."""
    block = power_of_2(size)
    return {"SIZE": size, "BLOCK": block, "num_warps": warps_for(block)}


def rows_per_program(rows: int) -> int:
    """The number of rows over which a program sums gradients. It is small enough that few rows still fill a GPU."""
    return min(max(rows // 1024, 1), 32)
