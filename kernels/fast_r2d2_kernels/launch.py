"""What all ops share: Triton where it is installed, how an op is registered, when and where its kernels run."""

import os
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import Tensor

try:
    import triton
    from triton import language as tl
except ImportError:  # stand-ins, so that files with kernels can be read; nothing launches these kernels

    def _leave_alone(function=None, **options):
        return function or _leave_alone

    triton, tl = SimpleNamespace(jit=_leave_alone), SimpleNamespace(constexpr=None)
    HAS_TRITON = False
else:
    HAS_TRITON = True

INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"

if HAS_TRITON and not INTERPRETED:
    _register, wrap_triton = torch.library.triton_op, torch.library.wrap_triton
else:  # the interpreter reads memory, so that nothing may trace through it

    def wrap_triton(kernel):
        return kernel

    _register = torch.library.custom_op


def operator(name: str, mutates_args: tuple[str, ...]):
    """Register a function with torch in the namespace of the name that this package was imported by.

    Hugging Face's `kernels` library imports it by a name of its own: two copies, perhaps of two versions, may meet in
    a process, and torch lets the ops of a later one replace those of an earlier one of the same name.
    """
    return _register(f"{__spec__.parent}::{name}", mutates_args=mutates_args)


def is_available() -> bool:
    """Whether there is anything to run the kernels on: Triton and a GPU, or Triton's interpreter."""
    return HAS_TRITON and (INTERPRETED or torch.cuda.is_available())


def runs_fused(tensor: Tensor) -> bool:
    """Whether ops run their kernels on this tensor; if not (on a CPU, in float64), they compute their references."""
    return HAS_TRITON and (INTERPRETED or tensor.is_cuda) and tensor.dtype != torch.float64


def on_device_of(tensor: Tensor):
    """A context in which kernels are launched on the tensor's GPU, not on the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def power_of_2(size: int) -> int:
    """The least power of two that is at least ``size``, which a block must be."""
    return 1 << max(size - 1, 0).bit_length()


def warps_for(block: int) -> int:
    """Warps of a program that holds ``block`` values of every operand: about 8 values a thread."""
    return min(max(block // 256, 1), 8)


def rows_per_program(rows: int) -> int:
    """Rows a program sums gradients over before it writes its share of the sum: few rows still fill a GPU."""
    return min(max(rows // 1024, 1), 32)
