"""Epochs of a corpus that is read during training, planned one pool of sentences at a time."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node

from pretraining.batches import Limits, ProcessShare, Step, idle_step, make_step, plan_epoch


@dataclass
class Pool:
    """Sentences that are shuffled together, and the number of sentences left out between them."""

    sentences: list[dict]
    num_too_long: int = 0


class StreamedEpochs:
    """Epochs in which each process reads its own share of the lines, in order, and shuffles sentences within pools.

    The order is a function of seed, epoch and the number of processes. A position tells where its pool begins, so that
    a resumed run reads one pool again. A process that has read all its lines while others still have some takes part
    in their updates, with a sentence that does not count. It does so without end: the training loop ends the epoch when
    no process has a sentence left.
    """

    def __init__(
        self,
        texts: IterableDataset,
        tokenize: Callable[[list[str]], list[dict]],
        seed: int,
        limits: Limits,
        share: ProcessShare,
        collate,
        pool_size: int,
    ):
        self.texts = split_dataset_by_node(texts, rank=share.process, world_size=share.num_processes)
        self.tokenize, self.seed, self.limits, self.share = tokenize, seed, limits, share
        self.collate, self.pool_size = collate, pool_size
        self.beginning = copy.deepcopy(self.texts.state_dict())

    def tokens_per_step(self, limits: Limits) -> float:
        """Tokens per full step; the lengths of sentences are not known yet."""
        return float(limits.tokens * self.share.parts_per_step)

    def steps(self, epoch: int, position: dict | None = None) -> Iterator[tuple[Step, dict]]:
        """Yield the steps of an epoch, each with the position after it, from a position in that epoch on."""
        at = position or {"pool": 0, "step": 0, "texts": self.beginning}
        self.texts.load_state_dict(at["texts"])
        lines, spare = iter(self.texts), [{"input_ids": [0]}]
        while pool := self._read_pool(lines):
            for number, parts in enumerate(self._plan(pool.sentences, epoch, at["pool"]), start=1):
                if number > at["step"]:
                    left_out = pool.num_too_long if number == 1 else 0
                    yield make_step(parts, self.collate, left_out), {**at, "step": number}
            spare = pool.sentences[:1]
            at = {"pool": at["pool"] + 1, "step": 0, "texts": copy.deepcopy(self.texts.state_dict())}
        while True:
            yield idle_step(spare, self.collate), at

    def _read_pool(self, lines: Iterator[dict]) -> "Pool | None":
        pool = Pool([])
        for line in lines:
            sentences = self.tokenize([line["text"]])
            pool.sentences.extend(sentence for sentence in sentences if sentence["input_ids"])
            pool.num_too_long += sum(not sentence["input_ids"] and sentence["length"] > 0 for sentence in sentences)
            if len(pool.sentences) >= self.pool_size:
                break
        return pool if pool.sentences else None

    def _plan(self, pool: list[dict], epoch: int, number: int) -> Iterator[list[list[dict]]]:
        """Yield steps as lists of parts, of this process's own sentences only."""
        lengths = np.array([sentence["length"] for sentence in pool])
        for step in plan_epoch(
            lengths, [self.seed, number], epoch, self.limits, self.share.gradient_accumulation_steps
        ):
            yield [[pool[sentence] for sentence in part] for part in step]
