"""Time and memory of functions that take turns in one process."""

import contextlib
import ctypes
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

LONG_RUN_SECONDS = 20.0


@dataclass(frozen=True)
class Time:
    """Median, least and most seconds of several rounds."""

    median: float
    least: float
    most: float


def take_turns(functions: dict[str, Callable[[], object]], rounds: int, device: str, progress=None) -> dict[str, Time]:
    """Run each function once in every round. A first round does not count, except for functions that take longer than
    `LONG_RUN_SECONDS`, of which a first run is like any other.

    Args:
        progress: called with the name of a function before it runs.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, function in functions.items():
            if len(times[name]) == rounds:
                continue
            if progress:
                progress(name)
            seconds = _seconds(function, device)
            if number or seconds > LONG_RUN_SECONDS:
                times[name].append(seconds)
    return {name: Time(statistics.median(values), min(values), max(values)) for name, values in times.items()}


def medians(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each function. They run in turn, each once more than ``repeats``; first runs do not count."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if repeat:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory(function: Callable[[], object], device: str) -> int:
    """Peak memory of a run in bytes, beyond the memory in use before.

    On a CPU, the memory of the whole process is sampled. This needs Linux; elsewhere the result is 0.
    """
    if device.startswith("cuda"):
        synchronize(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    _release_unused_memory()
    before, peak, done = _resident_bytes(), [_resident_bytes()], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], _resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        function()
    finally:
        done.set()
        watcher.join()
    return peak[0] - before


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _seconds(function: Callable[[], object], device: str) -> float:
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    return time.perf_counter() - start


def _release_unused_memory() -> None:
    """Make the C library return unused memory to the system, if it can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * 4096 if pages.exists() else 0
