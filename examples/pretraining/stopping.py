"""Stopping by SIGTERM or Ctrl-C: the run saves a checkpoint and ends; a second Ctrl-C ends it at once."""

import signal
from collections.abc import Callable

import torch
from accelerate import Accelerator


class Interrupted(Exception):
    """An evaluation was left between two batches, by all processes together."""


class StopSignal:
    """``was_received`` becomes true at the first signal.

    A second Ctrl-C ends the process; a second SIGTERM does not, for a scheduler and a launcher may both send one.
    """

    def __init__(self):
        self.was_received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number, frame) -> None:
        self.was_received = True
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)


def never() -> bool:
    """For what nothing stops."""
    return False


def raise_if_stopped(accelerator: Accelerator, is_stopping: Callable[[], bool]) -> None:
    """Raise `Interrupted` on all processes if one of them is stopping. All processes must call this together."""
    flag = torch.tensor(float(is_stopping()), device=accelerator.device)
    if accelerator.reduce(flag, "sum").item():
        raise Interrupted


def leave_signals_to_the_main_process(worker: int) -> None:
    """For processes that load batches: a signal to the whole process group must not end them before the last step."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
