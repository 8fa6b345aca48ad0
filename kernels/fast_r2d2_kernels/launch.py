"""The parts that all ops share: Triton if it is installed, the registration of ops, and the launch of kernels."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
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

_register: Callable[..., Any]
if HAS_TRITON and not INTERPRETED:
    _register = torch.library.triton_op

    def wrap_triton(kernel: Any) -> Any:
        """The kernel, which torch's compiler sees where it traces; ``[grid](...)`` launches it."""
        return _Launcher(kernel)

else:  # torch must not trace the interpreter, which reads memory
    _register = torch.library.custom_op

    def wrap_triton(kernel: Any) -> Any:
        """The kernel itself."""
        return kernel


class _Launcher:
    def __init__(self, kernel: Any):
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(first: Tensor, *args: Any, **options: Any) -> None:
            kernel = self._kernel if _is_real(first) else torch.library.wrap_triton(self._kernel)
            kernel[grid](first, *args, **options)

        return launch


def _is_real(tensor: Tensor) -> bool:
    """Whether a tensor has values, and is not what a tracer puts in its place."""
    return (type(tensor) is Tensor or type(tensor) is nn.Parameter) and not tensor.is_meta


class Operator:
    """An op in two forms.

    Torch's compiler sees the registered one, a call of which takes 25 microseconds, and with a gradient 150. Eager code
    calls the function itself, or where a gradient is asked for an autograd function around it.
    """

    def __init__(self, function: Callable[..., Any], registered: Any):
        self._function, self._registered = function, registered
        self._with_gradient: Any = None

    def register_fake(self, function: Callable[..., Any]) -> None:
        self._registered.register_fake(function)

    def register_autograd(self, differentiate: Callable[..., Any], setup_context: Callable[..., None]) -> None:
        """As of torch's custom ops; ``setup_context`` takes its arguments by position."""
        run = self._function

        class WithGradient(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *args: Any) -> Any:
                output = run(*args)
                setup_context(context, args, output)
                return output

            @staticmethod
            @once_differentiable
            def backward(context: Any, *upstream: Any) -> Any:
                return differentiate(context, *upstream)

        self._with_gradient = WithGradient.apply
        self._registered.register_autograd(differentiate, setup_context=setup_context)

    def __call__(self, first: Tensor, *args: Any) -> Any:
        if torch.compiler.is_compiling() or not _is_real(first):
            return self._registered(first, *args)
        if self._with_gradient is None or not torch.is_grad_enabled():
            return self._function(first, *args)
        return self._with_gradient(first, *args)


def operator(name: str, mutates_args: tuple[str, ...]) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function with torch, in a namespace with the name under which this package was imported.

    Hugging Face's library `kernels` imports the package under a name of its own. A process may therefore have two
    copies, perhaps of two versions. In one namespace, the later copy's ops would replace those of the earlier one.
    """
    register = _register(f"{__spec__.parent}::{name}", mutates_args=mutates_args)
    return lambda function: Operator(function, register(function))


def is_available() -> bool:
    """Whether kernels can run in this process: with Triton on a GPU, or in Triton's interpreter."""
    return HAS_TRITON and (INTERPRETED or torch.cuda.is_available())


def runs_fused(tensor: Tensor) -> bool:
    """Whether ops run their kernels for this tensor. For others (on a CPU, in float64) they compute references."""
    return HAS_TRITON and (INTERPRETED or tensor.is_cuda) and tensor.dtype != torch.float64


def on_device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """A context that launches kernels on the GPU of the tensor instead of the current one."""
    is_elsewhere = tensor.is_cuda and tensor.device.index != torch.cuda.current_device()
    return torch.cuda.device(tensor.device) if is_elsewhere else nullcontext()


def power_of_2(size: int) -> int:
    """The smallest power of two that is at least ``size``. The size of a block must be a power of two."""
    return 1 << max(size - 1, 0).bit_length()


def warps_for(block: int) -> int:
    """The number of warps for a program with ``block`` values of each operand: about 8 values per thread."""
    return min(max(block // 256, 1), 8)


def rows_per_program(rows: int) -> int:
    """The number of rows over which a program sums gradients. It is small enough that few rows still fill a GPU."""
    return min(max(rows // 1024, 1), 32)
