"""The parts that all ops share: Triton if it is installed, the registration of ops, and the launch of kernels."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

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

_register: Callable[..., Any]
if HAS_TRITON and not INTERPRETED:
    _register, wrap_triton = torch.library.triton_op, torch.library.wrap_triton
else:  # torch must not trace the interpreter, which reads memory

    def wrap_triton(kernel: Any) -> Any:
        """The kernel itself."""
        return kernel

    _register = torch.library.custom_op


def operator(name: str, mutates_args: tuple[str, ...]) -> Any:
    """Register a function with torch, in a namespace with the name under which this package was imported.

    Hugging Face's library `kernels` imports the package under a name of its own. A process may therefore have two
    copies, perhaps of two versions. In one namespace, the later copy's ops would replace those of the earlier one.
    """
    return _register(f"{__spec__.parent}::{name}", mutates_args=mutates_args)


def is_available() -> bool:
    """Whether kernels can run in this process: with Triton on a GPU, or in Triton's interpreter."""
    return HAS_TRITON and (INTERPRETED or torch.cuda.is_available())


def runs_fused(tensor: Tensor) -> bool:
    """Whether ops run their kernels for this tensor. For others (on a CPU, in float64) they compute references."""
    return HAS_TRITON and (INTERPRETED or tensor.is_cuda) and tensor.dtype != torch.float64


def on_device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """A context that launches kernels on the GPU of the tensor instead of the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def power_of_2(size: int) -> int:
    """The smallest power of two that is at least ``size``. The size of a block must be a power of two."""
    return 1 << max(size - 1, 0).bit_length()


def warps_for(block: int) -> int:
    """The number of warps for a program with ``block`` values of each operand: about 8 values per thread."""
    return min(max(block // 256, 1), 8)


def rows_per_program(rows: int) -> int:
    """The number of rows over which a program sums gradients. It is small enough that few rows still fill a GPU."""
    return min(max(rows // 1024, 1), 32)
