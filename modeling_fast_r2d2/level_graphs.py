"""Small levels on a GPU as CUDA graphs: one launch per level, not one per operation.

The upper levels of a tree have few nodes, and a chain has one node per level; there a GPU waits for launches. So the
launches of a level, of a certain size, are recorded once and then replayed; `recorded_levels` says which launches.

A recording reads and writes the same addresses whenever it is replayed. So recordings own the nodes that they work on,
and encodings take turns with them. All recordings of a model share one pool of memory and one stream to record on.

A recording does not notice later changes of a model: hooks, switched adapters, a layer's new forward pass. Moved or
replaced weights are noticed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

MAX_COMPOSITIONS = 2048  # of a level; larger levels take longer to compute than to launch
# Nodes that the recordings own, at least and at most. They grow by powers of two, and then all is recorded again. The
# most are 800 MB of float32 vectors in the base size; encodings of more nodes are not recorded.
MIN_NODES, MAX_NODES = 2**14, 2**18


class LevelGraphs:
    """The recordings of one composition function. Copies and pickles begin without recordings.

    Attributes:
        num_nodes: room in the buffers that recordings own.
        kinds: what belongs to each kind of encoding; empty after weights have moved or room has grown.
        recorder: records on the weights' device.
    """

    def __init__(self) -> None:
        self.num_nodes, self.kinds = 0, dict[tuple, Any]()
        self.recorder: Any = None
        self._weights: tuple[int, ...] = ()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["LevelGraphs"], tuple[()]]:
        return LevelGraphs, ()

    def serve(self, composition: torch.nn.Module, leaves: Tensor, num_nodes: int) -> bool:
        """Whether an encoding of these leaves, ``(num_tokens, hidden_size)``, may be replayed.

        Not under autocast: its copies of the weights would be gone when a recording reads them. Not in a replica of
        `DataParallel`: it has no parameters of its own, and others at every step.
        """
        return (
            can_record(leaves)
            and num_nodes <= MAX_NODES
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled(leaves.device.type)
            and not torch.compiler.is_compiling()
            and composition._compiled_call_impl is None
            and not getattr(composition, "_is_replica", False)
            and not any(module.training for module in composition.modules())
        )

    @contextmanager
    def turn(self, composition: torch.nn.Module, device: torch.device, num_nodes: int) -> Iterator[None]:
        """Inside, one encoding of so many nodes has the recordings for itself, among threads and streams."""
        with self._lock:
            weights = addresses(composition)
            if weights != self._weights or num_nodes > self.num_nodes:
                self._forget()
                self._weights, self.recorder = weights, Recorder(device)
                self.num_nodes = max(1 << (num_nodes - 1).bit_length(), self.num_nodes, MIN_NODES)
            self.recorder.enter()
            try:
                yield
            finally:
                self.recorder.leave()

    def _forget(self) -> None:
        if self.recorder is not None:
            self.recorder.finish()  # before memory that it uses is free for others
        self.kinds.clear()


def can_record(leaves: Tensor) -> bool:
    return leaves.is_cuda and not torch.cuda.is_current_stream_capturing()


def addresses(module: torch.nn.Module) -> tuple[int, ...]:
    return tuple(parameter.data_ptr() for parameter in module.parameters())


def padded_size(count: int) -> int:
    """The size for which a level of ``count`` cells is recorded: up to 64 a power of two, since a small level takes the
    same time whatever its size; then a multiple of 64, and from 512 on at most a quarter more than ``count``."""
    power = 1 << (count - 1).bit_length()
    step = max(power // 8, min(power, 64))
    return -(-count // step) * step


class Recorder:
    """Records launches on one device as CUDA graphs.

    Graphs that share a pool must not run at the same time, since each keeps its intermediate results where the others
    keep theirs. So streams wait for each other, while the host waits for none.
    """

    def __init__(self, device: torch.device):
        self._device = device
        with torch.cuda.device(device):
            self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        self._last_use: torch.cuda.Event | None = None

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """The function's launches. It is also run, so it must do no harm to run it several times."""
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(3):  # compiling and reserving memory at first use must not be recorded
                    function()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                function()
        return graph.replay

    def enter(self) -> None:
        """The current stream waits for the encoding before, which may have run on another stream."""
        if self._last_use is not None:
            torch.cuda.current_stream(self._device).wait_event(self._last_use)

    def leave(self) -> None:
        self._last_use = torch.cuda.current_stream(self._device).record_event()

    def finish(self) -> None:
        """The host waits for the last encoding."""
        if self._last_use is not None:
            self._last_use.synchronize()


__all__ = ["LevelGraphs"]
