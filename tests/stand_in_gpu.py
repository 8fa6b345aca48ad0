"""A stand-in for a GPU, which counts what the host waits for.

Its tensors say that they are on ``cuda``; a CPU computes them. Inside, every operation is seen: those for which the
host would wait for a GPU are written down, with the line of the package that called them. A CPU's tensor among a GPU's
is an error, as on a GPU.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PACKAGE = Path(__file__).parents[1] / "modeling_fast_r2d2"
aten = torch.ops.aten

# Operations that read from a device whatever their arguments are.
READING = {
    aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero, aten.bincount,
    aten._unique2, aten.unique_consecutive, aten.unique_dim, aten.nonzero_numpy, aten.allclose,
}  # fmt: skip
BY_INDEX = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


class OnGPU(Tensor):
    """A tensor of the stand-in; ``held`` has its values."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnGPU":
        tensor = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device="cuda:0",
        )  # fmt: skip
        tensor.held = held
        return tensor

    def __repr__(self) -> str:
        return f"OnGPU({self.held!r})"

    def __getitem__(self, index: Any) -> "OnGPU":
        """Torch's own needs a build for GPUs, as do those of `nonzero` and `copy_`."""
        _note_index(index)
        return OnGPU(self.held[_held(index)])

    def __invert__(self) -> Tensor:
        return self.bitwise_not()

    def __setitem__(self, index: Any, value: Any) -> None:
        _note_index(index)
        parts = index if isinstance(index, tuple) else (index,)
        by_index = any(isinstance(part, Tensor) for part in parts)  # then torch copies even a single number
        is_ours = isinstance(value, OnGPU)
        if not is_ours and (by_index or isinstance(value, Tensor) and value.dim()):
            _active().waits.append(f"copy at {_caller()}")
        self.held[_held(index)] = _held(value)

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        _active().waits.append(f"nonzero at {_caller()}")
        return tree_map(OnGPU, self.held.nonzero(as_tuple=as_tuple))

    def copy_(self, source: Tensor, non_blocking: bool = False) -> "OnGPU":
        if not isinstance(source, OnGPU) and source.dim() and not non_blocking:
            _active().waits.append(f"copy at {_caller()}")
        self.held.copy_(_held(source))
        return self

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} of a tensor on the stand-in, outside of it")


def _held(values: Any) -> Any:
    """Values with a CPU's tensors for those of the stand-in."""
    return tree_map(lambda x: x.held if isinstance(x, OnGPU) else x, values)


def _active() -> "StandInGPU":
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return next(mode for mode in modes if isinstance(mode, StandInGPU))


def _note_index(index: Any) -> None:
    """An index reads from the device if it is a mask, and comes from the host if it is a list or a CPU's tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        is_mask = isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8)
        if isinstance(part, list) or is_mask or isinstance(part, Tensor) and not isinstance(part, OnGPU):
            _active().waits.append(f"index at {_caller()}")


class StandInGPU(TorchDispatchMode):
    """Counts while it is active. ``waits`` are descriptions."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        ours = [tensor for tensor in tensors if isinstance(tensor, OnGPU)]
        target = kwargs.get("device")
        to_us = torch.device(target).type == "cuda" if target is not None else bool(ours)
        kwargs |= {"pin_memory": False} if kwargs.get("pin_memory") else {}
        if not ours and not to_us:
            return function(*args, **kwargs)
        self._note(function, args, kwargs, ours, tensors, to_us)
        if target is not None:
            kwargs["device"] = "cpu"
        wrappers = {id(tensor.held): tensor for tensor in ours}
        args, kwargs = _held((args, kwargs))
        results = function(*args, **kwargs)
        if function.overloadpacket is aten._to_copy and not to_us:
            return results

        def wrap(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return wrappers[id(value)] if id(value) in wrappers else OnGPU(value)

        return tree_map(wrap, results)

    def _note(self, function, args, kwargs, ours, tensors, to_us) -> None:
        operation = function.overloadpacket
        is_copy = operation in (aten._to_copy, aten.copy_)
        strangers = [x for x in tensors if not isinstance(x, OnGPU) and x.dim()]
        if strangers and ours and not is_copy:
            if operation not in BY_INDEX:
                raise RuntimeError(f"{function}: a CPU's tensor {tuple(strangers[0].shape)} among a GPU's")
        if self._waits(operation, args, kwargs, ours, tensors, to_us):
            self.waits.append(f"{operation} at {_caller()}")

    def _waits(self, operation, args, kwargs, ours, tensors, to_us) -> bool:
        if operation in READING:
            return True
        if operation is aten.repeat_interleave:
            return kwargs.get("output_size") is None
        if operation in BY_INDEX:
            indices = [index for index in args[1] if index is not None]
            return any(index.dtype in (torch.bool, torch.uint8) or not isinstance(index, OnGPU) for index in indices)
        if operation is aten._to_copy:
            crosses = bool(ours) != to_us
            return crosses and not (to_us and kwargs.get("non_blocking"))
        if operation is aten.copy_:
            crosses = isinstance(args[0], OnGPU) != isinstance(args[1], OnGPU) and args[1].dim() > 0
            blocking = not (len(args) > 2 and args[2] or kwargs.get("non_blocking"))
            return crosses and blocking
        return False


def _lstm(packed: OnGPU, batch_sizes: Tensor, *args: Any) -> Any:
    """A packed LSTM, which reads nothing from a GPU. Torch's own needs a GPU's driver in a build for GPUs."""
    tensors = [leaf for leaf in tree_leaves((packed, args)) if isinstance(leaf, Tensor)]
    if isinstance(batch_sizes, OnGPU) or not all(isinstance(tensor, OnGPU) for tensor in tensors):
        raise RuntimeError("lstm: batch_sizes belong on the CPU, and all other tensors on the GPU")
    return tree_map(OnGPU, torch._C._VariableFunctions.lstm(_held(packed), batch_sizes, *_held(args)))


def _caller() -> str:
    """The innermost line of the package that is running."""
    for frame in reversed(traceback.extract_stack()):
        if Path(frame.filename).is_relative_to(PACKAGE):
            return f"{Path(frame.filename).name}:{frame.lineno} {frame.line}"
    return "elsewhere"


@contextmanager
def stand_in_gpu() -> Iterator[StandInGPU]:
    """Inside, ``cuda`` is the stand-in."""
    no_driver = mock.patch.object(torch.cuda, "_lazy_init", lambda: None)
    with no_driver, mock.patch.object(torch._VF, "lstm", _lstm, create=True), StandInGPU() as gpu:
        yield gpu


def to_gpu(tensor: Tensor) -> OnGPU:
    return OnGPU(tensor.detach())


def move_to_gpu(model: torch.nn.Module) -> torch.nn.Module:
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(to_gpu(parameter), requires_grad=False)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else to_gpu(buffer)
        if isinstance(module, torch.nn.LSTM):
            module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
    return model
