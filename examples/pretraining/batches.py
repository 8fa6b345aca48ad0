"""Batches: which sentences go through the model together is planned from lengths, seed and epoch. A corpus is planned
before each epoch, a stream one pool of sentences at a time.

    sentences ── shuffled ──► pools, each sorted by length ── cut ──► parts ── grouped ──► steps ── shuffled ──► epoch

A *part* is the batch of one process and one forward pass. A *step* is one update: the parts of all processes and of all
their forward passes. The sentences of a step have similar lengths, so that no process waits for another.
"""

import copy
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

BatchPart = np.ndarray  # int64, the numbers of its sentences in the corpus
STEPS_PER_POOL = 50  # more steps mean less padding and less randomness


@dataclass(frozen=True)
class Limits:
    """The largest numbers of sentences and of tokens in a part."""

    sentences: int = 64
    tokens: int = 1536


@dataclass(frozen=True)
class ProcessShare:
    """Which parts of a step belong to this process: every ``num_processes``-th one, from ``process`` on."""

    process: int = 0
    num_processes: int = 1
    gradient_accumulation_steps: int = 1

    @property
    def parts_per_step(self) -> int:
        return self.num_processes * self.gradient_accumulation_steps


@dataclass(frozen=True)
class Step:
    """One process's share of an update.

    Attributes:
        batches: inputs of the model, at least one batch.
        num_tokens, num_sentences: of all its batches together. They are 0 for a process that has no sentence left: its
            single batch does not count, but every process must take part in an update.
        num_left_out: sentences of a stream that were left out on the way, because they are too long.
    """

    batches: list[dict[str, torch.Tensor]]
    num_tokens: int
    num_sentences: int
    num_left_out: int = 0


def plan_epoch(
    lengths: np.ndarray, seed: int | list[int], epoch: int, limits: Limits, parts_per_step: int
) -> list[list[BatchPart]]:
    """Plan an epoch: every sentence once, in steps of at most ``parts_per_step`` parts. The lengths of sentences are
    ``(num_sentences,)`` int64, in tokens, none above ``limits.tokens``."""
    random = np.random.default_rng([epoch, *np.atleast_1d(seed).tolist()])
    order = random.permutation(len(lengths))
    pool = STEPS_PER_POOL * limits.sentences * parts_per_step
    pools = np.split(order, range(pool, len(order), pool))
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    parts = cut(order, lengths, limits)
    steps = [parts[start : start + parts_per_step] for start in range(0, len(parts), parts_per_step)]
    return [steps[i] for i in random.permutation(len(steps))]


def cut(order: np.ndarray, lengths: np.ndarray, limits: Limits) -> list[BatchPart]:
    """Cut sentences into parts in their order; a sentence that does not fit into a part begins the next one."""
    starts, tokens = [0], 0
    for place, length in enumerate(lengths[order].tolist()):
        tokens += length
        if tokens > limits.tokens or place - starts[-1] == limits.sentences:
            starts.append(place)
            tokens = length
    return np.split(order, starts[1:])


def make_step(parts: list[list[dict]], collate, num_left_out: int = 0) -> Step:
    """Make a step of the features of some parts."""
    lengths = [len(feature["input_ids"]) for part in parts for feature in part]
    return Step([collate(part) for part in parts], sum(lengths), len(lengths), num_left_out)


def leave_signals_to_the_main_process(worker: int) -> None:
    """For processes that load batches: a signal to the whole process group must not end them before the last step."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})


class PlannedEpochs:
    """Epochs of a corpus with known lengths."""

    def __init__(self, corpus, seed: int, limits: Limits, share: ProcessShare, collate, num_workers: int = 0):
        self.corpus, self.seed, self.limits, self.share = corpus, seed, limits, share
        self.collate, self.num_workers = collate, num_workers

    def plan(self, epoch: int) -> list[list[BatchPart]]:
        return plan_epoch(self.corpus.lengths, self.seed, epoch, self.limits, self.share.parts_per_step)

    def tokens_per_step(self) -> float:
        """Mean tokens per step of the first epoch."""
        return float(np.sum(self.corpus.lengths)) / len(self.plan(0))

    def steps(self, epoch: int, position: dict | None = None) -> Iterator[tuple[Step, dict]]:
        """Yield the steps of an epoch, each with the position after it, from a position in that epoch on."""
        first = position["step"] if position else 0
        # The loader draws from a generator of its own, so that the model's noise does not depend on it.
        loader = DataLoader(
            self.plan(epoch)[first:], batch_size=None, collate_fn=self._load, num_workers=self.num_workers,
            generator=torch.Generator(), worker_init_fn=leave_signals_to_the_main_process,
        )  # fmt: skip
        for number, step in enumerate(loader, start=first + 1):
            yield step, {"step": number}

    def _load(self, parts: list[BatchPart]) -> Step:
        """A step as this process sees it."""
        if own := parts[self.share.process :: self.share.num_processes]:
            return make_step([self.corpus[part] for part in own], self.collate)
        return Step([self.collate(self.corpus[parts[0][:1]])], 0, 0)


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

    def tokens_per_step(self) -> float:
        """Tokens per full step; the lengths of sentences are not known yet."""
        return float(self.limits.tokens * self.share.parts_per_step)

    def steps(self, epoch: int, position: dict | None = None) -> Iterator[tuple[Step, dict]]:
        """Yield the steps of an epoch, each with the position after it, from a position in that epoch on."""
        at = position or {"pool": 0, "step": 0, "texts": self.beginning}
        self.texts.load_state_dict(at["texts"])
        lines = iter(self.texts)
        for sentences, num_too_long in self._pools(lines):
            lengths, seed = np.array([sentence["length"] for sentence in sentences]), [self.seed, at["pool"]]
            plan = plan_epoch(lengths, seed, epoch, self.limits, self.share.gradient_accumulation_steps)
            for number, parts in enumerate(plan, start=1):  # of this process's own sentences only
                if number > at["step"]:
                    features = [[sentences[row] for row in part] for part in parts]
                    left_out = num_too_long if number == 1 else 0
                    yield make_step(features, self.collate, left_out), {**at, "step": number}
            at = {"pool": at["pool"] + 1, "step": 0, "texts": copy.deepcopy(self.texts.state_dict())}
        while True:
            # One sentence for all, wherever a run is resumed, since it draws noise.
            yield Step([self.collate([{"input_ids": [0]}])], 0, 0), at

    def _pools(self, lines: Iterator[dict]) -> Iterator[tuple[list[dict], int]]:
        """Yield sentences that are shuffled together, and how many were left out between them. No line is read before a
        pool is asked for."""
        pool, num_too_long = [], 0
        for line in lines:
            sentences = self.tokenize([line["text"]])
            pool.extend(sentence for sentence in sentences if sentence["input_ids"])
            num_too_long += sum(not sentence["input_ids"] and sentence["length"] > 0 for sentence in sentences)
            if len(pool) >= self.pool_size:
                yield pool, num_too_long
                pool, num_too_long = [], 0
        if pool:
            yield pool, num_too_long
