"""Stopping by SIGTERM or Ctrl-C: the run saves a checkpoint and ends; a second Ctrl-C ends it at once."""

import contextlib
import signal
from collections.abc import Iterator

import torch
from accelerate import Accelerator


class Interrupted(Exception):
    """An evaluation was left between two batches."""


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

    def check(self, *_) -> None:
        """Raise `Interrupted` if the signal was received."""
        if self.was_received:
            raise Interrupted


def pass_on(*_) -> None:
    """The check of what nothing stops."""


@contextlib.contextmanager
def stopping_together(accelerator: Accelerator) -> Iterator[None]:
    """What one process leaves by `Interrupted`, all leave so at its end. All processes must enter this together."""
    is_stopping = False
    try:
        yield
    except Interrupted:
        is_stopping = True
    flag = torch.tensor(float(is_stopping), device=accelerator.device)
    if accelerator.reduce(flag, "sum").item():
        raise Interrupted


def leave_signals_to_the_main_process(worker: int) -> None:
    """For processes that load batches: a signal to the whole process group must not end them before the last step."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
