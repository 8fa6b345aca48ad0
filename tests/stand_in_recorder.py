"""A stand-in for CUDA graphs on a CPU: operations are written down once and then done again, as a graph's kernels are.

As in a graph, arguments stay what they were when they were written down: numbers, slices, and the addresses of tensors.
Everything that recordings own is spoilt between encodings, so that a read of what the encoding has not written shows,
and so does a result that is a view of it. A graph has no claim on the memory that it reads; neither has this.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
READING = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal}  # which a GPU cannot record
NO_ROW = 10**6  # an index error, where it is read


class Outside:
    """A tensor that a recording reads or writes, at the address that it had."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.address = weakref.ref(tensor), tensor.data_ptr()

    def get(self) -> Tensor:
        tensor = self.tensor()
        if tensor is None or tensor.data_ptr() != self.address:
            raise RuntimeError("a recording reads memory that was given away")
        return tensor


class Tape(TorchDispatchMode):
    """Inside, operations are done and written down."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple] = []
        self.outside: dict[int, Outside] = {}
        self._made: dict[int, Tensor] = {}  # alive while the tape is written, so that no id is given twice

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if function.overloadpacket in READING:
            raise RuntimeError(f"{function} cannot be recorded")
        for tensor in tree_leaves((args, kwargs or {})):
            if isinstance(tensor, Tensor) and id(tensor) not in self._made:
                self.outside.setdefault(id(tensor), Outside(tensor))
        results = function(*args, **kwargs or {})
        made = [x for x in tree_leaves(results) if isinstance(x, Tensor) and id(x) not in self.outside]
        self._made.update((id(tensor), tensor) for tensor in made)
        name = lambda x: Name(id(x)) if isinstance(x, Tensor) else x  # noqa: E731
        self.steps.append((function, *tree_map(name, (args, kwargs or {}, results))))
        return results

    def close(self) -> None:
        self._made.clear()

    def replay(self) -> None:
        made: dict[int, Tensor] = {}

        def find(x: Any) -> Any:
            if not isinstance(x, Name):
                return x
            return made[x] if x in made else self.outside[x].get()

        for function, args, kwargs, names in self.steps:
            results = function(*tree_map(find, args), **tree_map(find, kwargs))
            for name, tensor in zip(tree_leaves(names), tree_leaves(results), strict=True):
                if isinstance(name, Name) and name not in self.outside:
                    made[name] = spoil(tensor) if function.overloadpacket in EMPTY else tensor


class Name(int):
    """The id that a tensor had."""


EMPTY = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided}


def spoil(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return tensor.fill_(float("nan") if tensor.is_floating_point() else NO_ROW)


class StandInRecorder:
    """In place of `level_graphs.Recorder`; ``tapes`` are what it has recorded."""

    def __init__(self, device: torch.device):
        self.tapes: list[Tape] = []
        self.replays = 0

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        function()  # as `Recorder` does
        with Tape() as tape:
            function()
        tape.close()
        self.tapes.append(tape)

        def replay() -> None:
            self.replays += 1
            tape.replay()
            for tensor in owned([tape]):
                if tensor.dtype == torch.long and tensor.dim() == 2:  # rows and children, new for every replay
                    spoil(tensor)

        return replay

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        for tensor in owned(self.tapes):
            spoil(tensor)

    def finish(self) -> None:
        pass


def owned(tapes: list[Tape]) -> list[Tensor]:
    """What recordings read and write, other than weights."""
    outside = {name: each for tape in tapes for name, each in tape.outside.items()}
    return [tensor for each in outside.values() if not isinstance(tensor := each.get(), nn.Parameter)]
