"""The training loop: steps, training curves, evaluations and checkpoints."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.text_files import write_text
from pretraining.batches import Limits, Step
from pretraining.best import Best
from pretraining.checkpoints import Checkpoints
from pretraining.display import Display
from pretraining.evaluation import Evaluation
from pretraining.guidance import Guide
from pretraining.optimisation import learning_rates
from pretraining.options import Options
from pretraining.progress import Progress
from pretraining.settings import Plan, Settings
from pretraining.state import write_state
from pretraining.step import Counts, Outcome, reduce_counts, take_step
from pretraining.stopping import Interrupted, StopSignal
from pretraining.treebank import chain_warnings

MAX_SKIPPED_STEPS = 20  # in a row
EVALUATIONS_FILE = "evaluations.jsonl"


@dataclass
class Run:
    """Everything that a run trains with.

    Attributes:
        objective: model and losses, prepared for all processes.
        plan: the settings of every step.
        window_size: the model's own, for stages that do not set another.
        position: this process's position in the running epoch, None before its first step.
        saved_step, saved_at: step and time of the newest checkpoint, in seconds of `time.monotonic`.
        clock: the time at which loading the next step's batches began, in seconds of `time.monotonic`.
    """

    accelerator: Accelerator
    options: Options
    tokenizer: PreTrainedTokenizerBase
    model: FastR2D2ForPreTraining
    objective: torch.nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    epochs: object
    plan: Plan
    guide: Guide
    evaluate: Evaluation
    checkpoints: Checkpoints
    best: Best
    display: Display
    progress: Progress
    window_size: int
    position: dict | None = None
    saved_step: int | None = 0
    saved_at: float = field(default_factory=time.monotonic)
    clock: float = 0.0

    @property
    def settings(self) -> Settings:
        """Settings of the next step."""
        return self.plan.at(self.progress.step)

    @property
    def limits(self) -> Limits:
        """Limits of the next step's batches."""
        training = self.options.training
        return Limits(
            training.per_device_train_batch_size,
            self.settings.per_device_train_batch_tokens or training.per_device_train_batch_tokens,
        )

    @property
    def is_over(self) -> bool:
        limit = self.plan.num_steps or self.options.training.max_steps
        return self.progress.step >= limit if limit else self.progress.epoch >= self.options.training.num_train_epochs


def train(run: Run) -> bool:
    """Train until the end or until a signal comes, then save. Returns whether the end was reached."""
    stop = StopSignal()
    set_window(run, run.plan.at(max(0, run.progress.step - 1)))  # for evaluations before the next step
    is_interrupted = False
    try:
        evaluate_if_due(run, stop)  # a signal may have cut it short
        take_steps(run, stop)
        evaluate_if_due(run, stop)
    except Interrupted:
        is_interrupted = True
    if run.saved_step != run.progress.step:
        save(run)
    return run.is_over and not is_interrupted


def take_steps(run: Run, stop: StopSignal) -> None:
    """Train until the end or until a signal comes, with evaluations and checkpoints on the way.

    Raises:
        Interrupted: if a signal comes during an evaluation.
    """
    accelerator, output = run.accelerator, run.options.output
    run.clock = time.monotonic()
    for step, position in steps(run):
        is_late = time.monotonic() - run.saved_at > 60 * output.save_minutes
        counts = reduce_counts(accelerator, step, stop=stop.was_received, save=is_late and accelerator.is_main_process)
        if not counts.sentences:
            end_stream(run)
            continue
        advance(run, step, counts)
        run.position = position
        if run.limits != run.epochs.limits:  # other limits make another plan, so the epoch ends here
            run.progress.epoch, run.position = run.progress.epoch + 1, None
        evaluate_if_due(run, stop)
        is_due = counts.requests["save"] or (output.save_steps and run.progress.step % output.save_steps == 0)
        # During a series of skipped steps, new checkpoints would only push out the good one from before.
        if counts.requests["stop"] or (is_due and not run.progress.skipped_in_a_row):
            save(run)
        run.clock = time.monotonic()
        if counts.requests["stop"]:
            break


def advance(run: Run, step: Step, counts: Counts) -> None:
    """Make one update; count it and show it."""
    training, settings = run.options.training, run.settings
    if run.progress.step < training.tree_warmup_steps:
        settings = replace(settings, tree_weight=0.0)
    set_window(run, settings)
    if settings.needs_snapshot and run.progress.step in run.plan.boundaries:
        run.guide.take_snapshot()
    outcome = take_step(
        run.accelerator, run.objective, run.optimizer, step, counts, training.max_grad_norm, settings, run.guide
    )
    run.schedule.step()
    count_step(run, outcome, counts, time.monotonic() - run.clock)
    log(run)


def set_window(run: Run, settings: Settings) -> None:
    run.model.config.window_size = settings.window_size or run.window_size


def end_stream(run: Run) -> None:
    """End a streamed epoch, of which no process has a sentence left.

    Raises:
        ValueError: if it had no sentence at all.
    """
    if run.position is None:
        raise ValueError(f"no sentence of 1 to {run.options.data.max_length} tokens in the streamed corpus; "
                         "--sentence_rule cuts lines into sentences")  # fmt: skip
    run.progress.epoch, run.position = run.progress.epoch + 1, None


def steps(run: Run) -> Iterator[tuple[Step, dict]]:
    """Yield steps from the run's position to its end, over epochs."""
    while not run.is_over:
        epoch, run.epochs.limits = run.progress.epoch, run.limits
        for step, position in run.epochs.steps(epoch, run.position):
            yield step, position
            if run.is_over or run.progress.epoch > epoch:
                break
        else:
            run.progress.epoch, run.position = epoch + 1, None


def count_step(run: Run, outcome: Outcome, counts: Counts, seconds: float) -> None:
    """Count a step, or skip it if its losses or gradients were not finite; too many of those in a row end the run."""
    progress = run.progress
    progress.left_out += counts.left_out
    if outcome.is_applied:
        progress.skipped_in_a_row = 0
        progress.add(outcome.losses, counts.sizes, seconds)
    else:
        progress.skip(seconds)
    if progress.skipped_in_a_row == MAX_SKIPPED_STEPS:
        raise FloatingPointError(
            f"losses or gradients were not finite in {MAX_SKIPPED_STEPS} steps in a row, up to step {progress.step}. "
            f"The last good checkpoint is untouched, in {run.checkpoints.folder}. Lower learning rates may help, or "
            "float32 instead of half precision"
        )


def log(run: Run) -> None:
    """Every ``logging_steps`` log a point of the training curves; show progress."""
    progress, output = run.progress, run.options.output
    if progress.step % output.logging_steps == 0:
        rates = {f"{name}_learning_rate": rate for name, rate in learning_rates(run.optimizer).items()}
        stage = {"stage": run.plan.stage_number(progress.step - 1) + 1} if run.plan.stages else {}
        point = progress.end_point(rates | stage)
        run.accelerator.log({key: value for key, value in point.items() if math.isfinite(value)}, step=progress.step)
        run.display.show_point(point)
    run.display.advance()


def evaluate_if_due(run: Run, stop: StopSignal) -> None:
    """Every ``eval_steps`` and at the end evaluate, once per step.

    Raises:
        Interrupted: if a signal comes. The run, once it is resumed, begins with this evaluation.
    """
    step = run.progress.step
    is_due = run.is_over or (step > 0 and step % run.options.output.eval_steps == 0)
    if is_due and not any(figures["step"] == step for figures in run.progress.evaluations):
        record(run, run.evaluate(step, lambda: stop.was_received))
        run.saved_step = None


def record(run: Run, found: dict) -> None:
    """Record the figures of an evaluation; keep the weights if they are the best."""
    figures = {"step": run.progress.step, "tokens": run.progress.tokens, **found}
    warnings = chain_warnings(run.progress.evaluations[-1], figures) if run.progress.evaluations else []
    run.progress.evaluations.append(figures)
    if run.accelerator.is_main_process:
        write_evaluations(run)
        run.best.keep_if_better(figures, run.model, run.tokenizer)
    run.accelerator.wait_for_everyone()
    run.accelerator.log({key: value for key, value in figures.items() if key != "step"}, step=run.progress.step)
    if figures.keys() > {"step", "tokens"}:
        run.display.show_evaluation(figures)
    for warning in warnings:
        run.display.say(f"warning: {warning}")


def write_evaluations(run: Run) -> None:
    """Write all figures so far beside the checkpoints, one JSON object per line."""
    lines = [json.dumps(figures) for figures in run.progress.evaluations]
    write_text(Path(run.options.output.output_dir) / EVALUATIONS_FILE, "\n".join(lines) + "\n")


def save(run: Run) -> None:
    run.checkpoints.save(run.progress.step, lambda folder: write_state(run, folder))
    run.saved_step, run.saved_at = run.progress.step, time.monotonic()
