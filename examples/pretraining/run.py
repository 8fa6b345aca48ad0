"""A run: all that it trains with, made from its options, and what it has done so far."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor

from modeling_fast_r2d2 import parameter_groups
from pretraining.batches import Limits, PlannedEpochs, ProcessShare, StreamedEpochs, cut
from pretraining.checkpoints import Checkpoints, best_step
from pretraining.corpus import sentences_of, tokenize
from pretraining.counts import CountTeacher
from pretraining.data import Data
from pretraining.evaluation import TreebankScorer
from pretraining.guidance import CollatorWithSplitSigns, Guide
from pretraining.losses import LOSSES, Objective
from pretraining.models import begin_with_counts, begin_with_frequencies, load_given_model, make_model
from pretraining.options import Options, TrainingOptions
from pretraining.recipe import Plan, Settings
from pretraining.report import Display

WORKERS_FOR_A_GPU = 2
SAMPLED_TOKENS = 400_000


@dataclass
class Progress:
    """What a run has done so far, counted over all processes together: all that a checkpoint holds besides tensors.

    Attributes:
        step: number of updates, skipped ones included.
        epoch: number of the running epoch, from 0.
        tokens: number of tokens trained on.
        seconds: time spent in steps, over all sessions of the run.
        skipped: number of steps that were skipped because losses or gradients were not finite.
        skipped_in_a_row: the same, since the last good step.
        left_out: number of sentences of a stream that were too long; `Data.sizes` counts those of other corpora.
        curve: a point every ``logging_steps``, with means over these steps.
        evaluations: the figures of every evaluation.
        since_point: sums over the steps since the last point of the curve.
    """

    step: int = 0
    epoch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    left_out: int = 0
    curve: list[dict] = field(default_factory=list)
    evaluations: list[dict] = field(default_factory=list)
    since_point: dict[str, float] = field(default_factory=dict)

    def add(self, losses: dict[str, float], sizes: dict[str, int], seconds: float) -> None:
        """Count a step: the means of its losses, by name, and its numbers of tokens, sentences and constituents."""
        self.step += 1
        self.tokens += sizes["tokens"]
        self.seconds += seconds
        self.skipped_in_a_row = 0
        amounts = {"tokens": sizes["tokens"], "seconds": seconds}
        for loss in LOSSES:
            if loss.name in losses:
                number = sizes[loss.unit]
                amounts |= {f"{loss.name}_loss": losses[loss.name] * number, f"{loss.name}_number": number}
        for name, amount in amounts.items():
            self.since_point[name] = self.since_point.get(name, 0.0) + amount

    def skip(self, seconds: float) -> None:
        """Count a step that was skipped."""
        self.step += 1
        self.seconds += seconds
        self.skipped += 1
        self.skipped_in_a_row += 1

    def end_point(self, more: dict[str, float]) -> dict[str, float]:
        """Add a point to the curve; it has no losses if all its steps were skipped."""
        sums, self.since_point = self.since_point, {}
        point = {"step": self.step, "tokens": self.tokens, "skipped": self.skipped, "left_out": self.left_out, **more}
        if sums:
            point["tokens_per_second"] = sums["tokens"] / max(sums["seconds"], 1e-9)
        for loss in (name for name in sums if name.endswith("_loss")):
            point[loss] = sums[loss] / max(1, sums[loss.replace("_loss", "_number")])
        self.curve.append(point)
        return point


class Run:
    """Everything that a run trains with.

    Attributes:
        objective: model and losses, prepared for all processes.
        plan: the settings of every step.
        window_size: the model's own, for stages that do not set another. The configuration has that of the last stage,
            so that evaluations and saved models do not depend on the stage that is running.
        position: this process's position in the running epoch, None before its first step.
        saved_step, saved_at: step and time of the newest checkpoint, in seconds of `time.monotonic`.
    """

    def __init__(self, options: Options, accelerator: Accelerator, data: Data):
        training, output, device = options.training, options.output, accelerator.device.type
        self.options, self.accelerator, self.data = options, accelerator, data
        self.folder, self.tokenizer = Path(output.output_dir), data.tokenizer
        self.progress, self.position = Progress(), None
        self.saved_step, self.saved_at = 0, time.monotonic()

        set_seed(training.seed)
        self.model = make_model(data.tokenizer, options.model, training.gradient_checkpointing)
        self.model.config.punctuation = "keep" if options.data.keep_punctuation else "aside"
        if data.count_vectors is not None and options.model.initial_embeddings == "counts":
            begin_with_counts(self.model, data.count_vectors)
        if data.corpus is not None and not options.model.model:
            begin_with_frequencies(self.model, data.corpus.count_tokens(self.model.config.vocab_size))
        self.window_size = self.model.config.window_size

        self.epochs = make_epochs(options, accelerator, data)
        self.plan = Plan(options.stages, self.epochs.tokens_per_step())
        self.model.config.window_size = self.plan.at(self.plan.num_steps).window_size or self.window_size
        planned = self.plan.num_steps or training.max_steps
        self.num_steps = planned or training.num_train_epochs * len(self.epochs.plan(0))

        skew = float(options.data.counts_skew)
        teacher = CountTeacher(data.counts, skew, accelerator.device) if data.counts else None
        if self.model.model.pooler is not None and not options.uses("needs_count_vectors"):
            self.model.model.pooler.requires_grad_(False)  # no loss reads it, and processes would wait for its gradient
        vectors, given = data.count_vectors and data.count_vectors.to(accelerator.device), None
        if options.uses("memory_weight"):
            given = load_given_model(replace(options.model, config_overrides=None))
            given = given.eval().requires_grad_(False).to(accelerator.device)
        self.guide = Guide(teacher, self.model, vectors, given, skew)
        objective = Objective(self.model, self.guide, options.stages)
        optimizer = make_optimizer(objective, training, device)
        self.objective, self.optimizer = accelerator.prepare(objective, optimizer)

        self.scorer = None
        if data.gold:
            sizes = options.data.treebank_sentences, training.per_device_train_batch_tokens
            self.scorer = TreebankScorer(data.gold, self.model, data.tokenizer, teacher, *sizes)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", output.save_total_limit, accelerator)
        self.display = Display(self.num_steps, accelerator.is_main_process)
        set_seed(training.seed + 1, device_specific=True)  # every process has its own noise and dropout

    @property
    def settings(self) -> Settings:
        """Settings of the next step."""
        return self.plan.at(self.progress.step)

    @property
    def best_step(self) -> int | None:
        """The step whose checkpoint the run ends with; None for the last one."""
        return best_step(self.progress.evaluations, self.options.output.metric_for_best_model)

    def sample(self) -> Iterator[dict[str, Tensor]]:
        """Batches of about `SAMPLED_TOKENS` from all over the corpus, the same for every process."""
        lengths = self.data.corpus.lengths
        count = max(1, round(len(lengths) * min(1, SAMPLED_TOKENS / lengths.sum())))
        sentences = np.linspace(0, len(lengths) - 1, count).astype(int)
        sentences = sentences[np.argsort(lengths[sentences], kind="stable")]
        collate = CollatorWithSplitSigns(self.tokenizer)
        for part in cut(sentences, lengths, self.epochs.limits):
            batch = collate(self.data.corpus[part])
            yield {name: tensor.to(self.accelerator.device) for name, tensor in batch.items()}

    @property
    def is_over(self) -> bool:
        limit = self.plan.num_steps or self.options.training.max_steps
        return self.progress.step >= limit if limit else self.progress.epoch >= self.options.training.num_train_epochs


def make_epochs(options: Options, accelerator: Accelerator, data: Data) -> PlannedEpochs | StreamedEpochs:
    """Epochs of a corpus that was read before, or that is streamed."""
    training, collate = options.training, CollatorWithSplitSigns(data.tokenizer)
    limits = Limits(training.per_device_train_batch_size, training.per_device_train_batch_tokens)
    share = ProcessShare(accelerator.process_index, accelerator.num_processes, training.gradient_accumulation_steps)
    if data.corpus is None:
        return StreamedEpochs(
            data.texts, lambda lines: tokenize(sentences_of(lines, options.data), data.tokenizer, options.data),
            training.seed, limits, share, collate, options.data.shuffle_buffer,
        )  # fmt: skip
    workers = options.data.dataloader_num_workers
    if workers is None:  # a GPU would wait for batches; a CPU has no processor to spare
        workers = WORKERS_FOR_A_GPU if accelerator.device.type == "cuda" else 0
    return PlannedEpochs(data.corpus, training.seed, limits, share, collate, workers)


def make_optimizer(objective: Objective, options: TrainingOptions, device: str = "cpu") -> torch.optim.AdamW:
    """AdamW with a learning rate per group and without weight decay of biases; on a GPU in a few launches per step.

    Parameters of losses are trained as the encoder's.
    """
    rates = options.learning_rate, options.parser_learning_rate, options.weight_decay
    groups = [group for module in (objective.model, objective.own) for group in parameter_groups(module, *rates)]
    return torch.optim.AdamW(groups, fused=True if device == "cuda" else None)
