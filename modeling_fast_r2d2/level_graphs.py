"""Small levels on a GPU as CUDA graphs: one launch per level, not one per operation.

The upper levels of a tree have few nodes, and a chain has one node per level; there a GPU waits for launches. A level
is padded to a power of two. The launches of a composition of that size are recorded once and then replayed.

A recording does not notice later changes of a model: hooks, switched adapters, a layer's new forward pass. Moved or
replaced weights are noticed.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MAX_COMPOSITIONS = 256  # of a level; larger levels take longer to compute than to launch


class LevelGraphs:
    """The recordings of one composition function. Copies and pickles begin without recordings."""

    def __init__(self) -> None:
        self._recordings: dict[tuple, Recording] = {}
        self._weights: tuple[int, ...] = ()
        self._evaluates = False
        self._lock = threading.Lock()  # recordings have one set of inputs each

    def __reduce__(self) -> tuple[type["LevelGraphs"], tuple[()]]:
        return LevelGraphs, ()

    def begin(self, composition: torch.nn.Module) -> None:
        """Called before each encoding: forgets recordings whose weights have moved in memory."""
        weights = tuple(parameter.data_ptr() for parameter in composition.parameters())
        with self._lock:
            # A replica of `DataParallel` has no parameters of its own, and others at every step.
            is_whole = bool(weights) and not getattr(composition, "_is_replica", False)
            self._evaluates = is_whole and not any(module.training for module in composition.modules())
            if weights != self._weights:
                self._recordings.clear()
                self._weights = weights

    def serve(self, children: Tensor) -> bool:
        """Whether a level of these children, ``(2, compositions, hidden_size)``, may be replayed.

        Not under autocast: its copies of the weights would be gone when a recording reads them.
        """
        return (
            0 < children.shape[1] <= MAX_COMPOSITIONS
            and children.is_cuda
            and self._evaluates
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled(children.device.type)
            and not torch.compiler.is_compiling()
            and not torch.cuda.is_current_stream_capturing()
        )

    def run(self, composition: Any, shared: Any, children: Tensor) -> tuple[Tensor, Tensor | None]:
        """The results of ``composition.compose`` for these arguments, from a recording."""
        size = padded_size(children.shape[1])
        stream = torch.cuda.current_stream(children.device).cuda_stream if children.is_cuda else None
        key = size, len(shared.tasks), children.dtype, children.device, stream
        with self._lock:
            if key not in self._recordings:
                self._recordings[key] = Recording(composition.compose, shared, children, size)
            return self._recordings[key].run(shared, children)


def padded_size(count: int) -> int:
    """The least power of two that is at least ``count``."""
    return 1 << (count - 1).bit_length()


class Recording:
    """A recorded composition of ``size`` nodes. Its inputs and results are attributes, so that their addresses stay."""

    def __init__(self, compose: Callable, shared: Any, children: Tensor, size: int):
        with torch.inference_mode(False), torch.no_grad():  # so that both modes may write into the inputs
            self.tensors = [torch.empty_like(tensor).copy_(tensor) for tensor in shared.tensors()]
            self.shared = shared.of_tensors(self.tensors)
            self.children = torch.zeros(2, size, children.shape[2], dtype=children.dtype, device=children.device)
            self.replay = record(lambda: compose(self.shared, self.children), children.device)

    def run(self, shared: Any, children: Tensor) -> tuple[Tensor, Tensor | None]:
        count = children.shape[1]
        torch._foreach_copy_(self.tensors, shared.tensors())
        self.children[:, :count].copy_(children)
        parents, log_prob = self.replay()
        return parents[:count].clone(), None if log_prob is None else log_prob[:count].clone()


def record(function: Callable[[], tuple], device: torch.device) -> Callable[[], tuple]:
    """The function's launches as a CUDA graph; each replay writes the same results."""
    with torch.cuda.device(device):
        current, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            for _ in range(3):  # compiling and reserving memory at first use must not be recorded
                function()
        current.wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local"):
            results = function()

    def replay() -> tuple:
        graph.replay()
        return results

    return replay


__all__ = ["LevelGraphs"]
