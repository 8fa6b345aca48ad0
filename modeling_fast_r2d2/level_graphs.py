"""Small levels on a GPU as CUDA graphs: one launch a level, not one an operation.

The upper levels of a tree have few nodes, and a chain has one a level; there a GPU waits for launches. A level is
padded to a power of two, and what a composition launches for so many is recorded once and then replayed.
"""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

MOST = 256  # compositions; the work of more takes longer than its launches


class LevelGraphs:
    """The recordings of one composition function; copies and pickles begin without any."""

    def __init__(self):
        self._recordings: dict[tuple, Recording] = {}
        self._weights: tuple[int, ...] = ()
        self._lock = threading.Lock()  # recordings have one set of inputs each

    def __reduce__(self):
        return LevelGraphs, ()

    def serve(self, composition, nodes: Tensor, count: int) -> bool:
        """Whether a level of ``count`` compositions may be replayed."""
        return (
            0 < count <= MOST
            and nodes.is_cuda
            and not (composition.training or torch.is_grad_enabled() or torch.compiler.is_compiling())
            and not torch.cuda.is_current_stream_capturing()
        )

    def run(self, composition, constants, nodes: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        """What ``composition.compose`` returns for these arguments, by a recording."""
        with self._lock:
            weights = tuple(parameter.data_ptr() for parameter in composition.parameters())
            if weights != self._weights:  # a recording reads the addresses it was made with
                self._recordings.clear()
                self._weights = weights
            key = _key(nodes, constants, padded_size(len(left)))
            if key not in self._recordings:
                self._recordings[key] = Recording(composition.compose, constants, nodes, padded_size(len(left)))
            return self._recordings[key].run(constants, nodes, left, right)


def padded_size(count: int) -> int:
    """The least power of two that is at least ``count``."""
    return 1 << (count - 1).bit_length()


def _key(nodes: Tensor, constants, size: int) -> tuple:
    kind = nodes.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    stream = torch.cuda.current_stream(nodes.device).cuda_stream if nodes.is_cuda else None
    return size, len(constants.tasks), nodes.dtype, nodes.device, autocast, stream


class Recording:
    """A composition of ``size`` nodes with inputs and outputs at fixed addresses."""

    def __init__(self, compose: Callable, constants, nodes: Tensor, size: int):
        with torch.inference_mode(False), torch.no_grad():  # so that both modes may write into the inputs
            self.tensors = [torch.empty_like(tensor).copy_(tensor) for tensor in constants.tensors()]
            self.nodes = torch.zeros(2 * size, nodes.shape[1], dtype=nodes.dtype, device=nodes.device)
            left, right = torch.arange(2 * size, device=nodes.device).split(size)
            own = constants.of_tensors(self.tensors)
            self.size, self.replay = size, record(lambda: compose(own, self.nodes, left, right))

    def run(self, constants, nodes: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        torch._foreach_copy_(self.tensors, constants.tensors())
        for start, ids in ((0, left), (self.size, right)):
            self.nodes[start : start + len(ids)].copy_(nodes.index_select(0, ids))
        return tuple(None if result is None else result[: len(left)].clone() for result in self.replay())


def record(function: Callable[[], tuple]) -> Callable[[], tuple]:
    """The function's launches as a CUDA graph; each replay writes the same results."""
    current, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    beside.wait_stream(current)
    with torch.cuda.stream(beside):
        for _ in range(3):  # what is compiled, chosen or reserved at first use must not be recorded
            function()
    current.wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = function()

    def replay() -> tuple:
        graph.replay()
        return results

    return replay


__all__ = ["LevelGraphs"]
