"""Two batches at once on a GPU: the host plans the chart of one while the device encodes the other."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

AT_ONCE = 2
Batch = TypeVar("Batch")
Result = TypeVar("Result")


def overlapped(function: Callable[[Batch], Result], batches: Iterable[Batch], device: torch.device) -> Iterator[Result]:
    """``function`` of each batch, in their order.

    Args:
        function: makes its own inputs and results, and returns when its results are on the host. On a GPU it runs in
            another thread, with that thread's own stream; settings of the caller's thread such as `torch.no_grad` do
            not reach it. On a CPU, and under autocast, whose copies of weights belong to one stream, batches run one
            after the other in the caller's thread.
        device: where it computes.

    Raises:
        What the function raises, in place of that batch's result. Batches that have not begun are given up.
    """
    if device.type != "cuda" or torch.is_autocast_enabled(device.type):
        yield from map(function, batches)
        return
    pool = ThreadPoolExecutor(AT_ONCE, initializer=_use_own_stream, initargs=(device, _stream_of(device)))
    try:
        yield from pool.map(function, batches)
    finally:
        pool.shutdown(cancel_futures=True)


def _stream_of(device: torch.device) -> Any:
    return torch.cuda.current_stream(device)


def _use_own_stream(device: torch.device, callers: Any) -> None:
    """For the rest of the thread's life. Weights may still be on their way, on the caller's stream."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(callers)
    torch.cuda.set_stream(stream)


__all__ = ["overlapped"]
