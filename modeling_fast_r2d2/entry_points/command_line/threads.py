"""The number of CPU threads of a command."""

import os

import torch
from transformers import PreTrainedModel

SMALL = 5_000_000  # parameters


def use_threads(number: int | None, model: PreTrainedModel) -> None:
    """Set the number of threads of this process.

    The operations of a small model take microseconds. A second thread saves little of that on an idle machine, and on
    a busy one the first waits for it ten times as long.

    Args:
        number: the user's choice; None leaves it to OMP_NUM_THREADS, and without that to the size of the model.
        model: the model that will run.
    """
    if number is not None:
        torch.set_num_threads(number)
    elif "OMP_NUM_THREADS" not in os.environ and model.num_parameters() < SMALL:
        torch.set_num_threads(1)
