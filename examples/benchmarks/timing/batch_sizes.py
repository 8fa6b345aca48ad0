"""Time small batches: how the time of a batch grows with its number of sentences.

Reading the weights bounds the speed of a small batch. BERT reads a layer's weights once; a tree reads them once per
level.
"""

import argparse
from collections.abc import Iterator
from functools import partial

import torch
from tqdm import tqdm

from modeling_fast_r2d2 import FastR2D2Model
from timing.check import check_same
from timing.clock import take_turns
from timing.ranges import ratios_of, run_all
from timing.systems import BERT, FAIR_BERT, Batch, default_names, make_systems, pad
from timing.workloads import batches_of

SYSTEMS = (FAIR_BERT, BERT, "Fast-R2D2*")
MAX_BATCHES = 8  # per size: enough to even out the lengths of sentences


@torch.inference_mode()
def time_batch_sizes(options: argparse.Namespace, sentences: Batch, model: FastR2D2Model) -> Iterator[dict]:
    """Seconds per batch of the first sentences, for each of ``options.batch_sizes`` and each system.

    They are means over at most `MAX_BATCHES` full batches, and medians over rounds.
    """
    if not options.batch_sizes:
        return
    systems = make_systems([name for name in SYSTEMS if name in default_names(options.device)], model)
    check_same(systems, pad(sentences[:8], options.device), model.dtype)
    for size in tqdm(options.batch_sizes, desc="batch sizes", leave=False):
        batches = full_batches(sentences, size)
        padded = [pad(batch, options.device) for batch in batches]
        functions = {system.name: partial(run_all, system, padded) for system in systems}
        times = take_turns(functions, options.rounds, options.device)
        tokens = sum(len(ids) for batch in batches for ids in batch)
        for name, time in times.items():
            median, least, most = (seconds / len(batches) for seconds in (time.median, time.least, time.most))
            yield {
                "system": name, "batch_size": size, "batches": len(batches), "seconds": median, "least": least,
                "most": most, "tokens_per_second": tokens / time.median, **ratios_of(name, times),
            }  # fmt: skip


def full_batches(sentences: Batch, size: int) -> list[Batch]:
    """The first full batches, at most `MAX_BATCHES`.

    Raises:
        ValueError: if there are too few sentences for one.
    """
    if not 1 <= size <= len(sentences):
        raise ValueError(f"--batch_sizes must be from 1 to --sentences, {len(sentences)}, got {size}")
    return list(batches_of(sentences[: min(MAX_BATCHES, len(sentences) // size) * size], size))
