"""The training loop: steps, training curves, evaluations and checkpoints, and how it is stopped; and one update: losses
over global counts, gradients of all processes, clipping of encoder and parser, and steps that are skipped."""

import contextlib
import json
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, send_to_device
from torch import Tensor, nn

from modeling_fast_r2d2.text_files import write_text
from pretraining.batches import Step
from pretraining.checkpoints import write_state
from pretraining.evaluation import Interrupted, chain_warnings, evaluate, stopping_together, window_of
from pretraining.losses import LOSSES, sizes
from pretraining.options import TrainingOptions
from pretraining.recipe import Settings
from pretraining.run import Run

MAX_SKIPPED_STEPS = 20  # in a row
EVALUATIONS_FILE = "evaluations.jsonl"
RATES = {"encoder": "learning_rate", "parser": "parser_learning_rate"}


class StopSignal:
    """``was_received`` becomes true at the first SIGTERM or Ctrl-C: the run saves a checkpoint and ends.

    A second Ctrl-C ends the process; a second SIGTERM does not, for a scheduler and a launcher may both send one.
    Outside its ``with`` block signals do what they did before.
    """

    was_received = False

    def __enter__(self) -> "StopSignal":
        self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number, frame) -> None:
        self.was_received = True
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    def check(self, *_) -> None:
        """Raise `Interrupted` if the signal was received."""
        if self.was_received:
            raise Interrupted


@dataclass(frozen=True)
class Counts:
    """Counts over all processes and batches of a step; and how many processes ask for a stop and for a checkpoint."""

    tokens: int
    sentences: int
    left_out: int = 0
    stop: int = 0
    save: int = 0


def train(run: Run) -> bool:
    """Train until the end or until a signal comes, then save. Returns whether the end was reached."""
    is_interrupted = False
    with StopSignal() as stop:
        try:
            evaluate_if_due(run, stop)  # a signal may have cut it short
            take_steps(run, stop)
            evaluate_if_due(run, stop)
            with stopping_together(run.accelerator):  # what comes afterwards may take hours
                stop.check()
        except Interrupted:
            is_interrupted = True
        if run.saved_step != run.progress.step:
            save(run)
    return run.is_over and not is_interrupted


def take_steps(run: Run, stop: StopSignal) -> None:
    """Train until the end or until a signal comes, with evaluations and checkpoints on the way. Raises `Interrupted` if
    a signal comes during an evaluation."""
    accelerator, output, began = run.accelerator, run.options.output, time.monotonic()
    for step, position in steps(run):
        is_late = time.monotonic() - run.saved_at > 60 * output.save_minutes
        counts = reduce_counts(accelerator, step, stop=stop.was_received, save=is_late and accelerator.is_main_process)
        if not counts.sentences:  # no process has any left in the stream
            end_epoch(run)
            continue
        if run.settings.needs_snapshot and run.progress.step in run.plan.boundaries:
            run.guide.take_snapshot()
            if run.settings.chart_scores == "grammar":
                run.guide.learn_grammar(run.settings, run.sample())
                for tensor in run.guide.grammar.buffers():
                    tensor.copy_(broadcast(tensor))
        set_learning_rates(run.optimizer, run.progress.step, run.num_steps, run.settings, run.options.training)
        with window_of(run.model, run.settings.window_size or run.window_size):
            losses = take_step(run, step, counts)
        count_step(run, losses, counts, time.monotonic() - began)
        log(run)
        run.position = position
        evaluate_if_due(run, stop)
        is_due = counts.save or (output.save_steps and run.progress.step % output.save_steps == 0)
        # During a series of skipped steps, new checkpoints would only push out the good one from before.
        if counts.stop or (is_due and not run.progress.skipped_in_a_row):
            save(run)
        if counts.stop:
            break
        began = time.monotonic()


def steps(run: Run) -> Iterator[tuple[Step, dict]]:
    """Yield steps from the run's position to its end, over epochs."""
    while not run.is_over:
        epoch = run.progress.epoch
        for step, position in run.epochs.steps(epoch, run.position):
            yield step, position
            if run.is_over or run.progress.epoch > epoch:
                break
        else:
            end_epoch(run)


def end_epoch(run: Run) -> None:
    run.progress.epoch, run.position = run.progress.epoch + 1, None


def count_step(run: Run, losses: dict[str, float] | None, counts: Counts, seconds: float) -> None:
    """Count a step, or a skipped one if there are no losses; too many of those in a row end the run."""
    progress = run.progress
    progress.left_out += counts.left_out
    if losses is None:
        progress.skip(seconds)
    else:
        progress.add(losses, sizes(counts.tokens, counts.sentences), seconds)
    if progress.skipped_in_a_row == MAX_SKIPPED_STEPS:
        raise FloatingPointError(
            f"losses or gradients were not finite in {MAX_SKIPPED_STEPS} steps in a row, up to step {progress.step}. "
            f"Checkpoints from before, if there are any, are untouched, in {run.checkpoints.folder}. Lower learning "
            "rates may help, or float32 instead of half precision"
        )


def log(run: Run) -> None:
    """Every ``logging_steps`` log a point of the training curves; show progress."""
    progress, output = run.progress, run.options.output
    if progress.step % output.logging_steps == 0:
        rates = {f"{group['name']}_learning_rate": group["lr"] for group in run.optimizer.param_groups}
        stage = {"stage": run.plan.stage_number(progress.step - 1) + 1} if run.plan.stages else {}
        point = progress.end_point(rates | stage)
        run.accelerator.log({key: value for key, value in point.items() if math.isfinite(value)}, step=progress.step)
        run.display.show_point(point)
    run.display.bar.update()


def evaluate_if_due(run: Run, stop: StopSignal) -> None:
    """Every ``eval_steps`` and at the end evaluate, once per step. Raises `Interrupted` if a signal comes; the run,
    once it is resumed, begins with this evaluation."""
    step = run.progress.step
    is_due = run.is_over or (step > 0 and step % run.options.output.eval_steps == 0)
    if is_due and not any(figures["step"] == step for figures in run.progress.evaluations):
        record(run, evaluate(run, stop.check))
        run.saved_step = None
        if run.best_step == step:
            save(run)


def record(run: Run, found: dict) -> None:
    """Record the figures of an evaluation."""
    figures = {"step": run.progress.step, "tokens": run.progress.tokens, **found}
    before = run.progress.evaluations[-1] if run.progress.evaluations else {}
    warnings = chain_warnings(before, figures, run.scorer.shares_of_gold) if run.scorer else []
    run.progress.evaluations.append(figures)
    if run.accelerator.is_main_process:
        lines = [json.dumps(figures) for figures in run.progress.evaluations]
        write_text(run.folder / EVALUATIONS_FILE, "\n".join(lines) + "\n")
    run.accelerator.wait_for_everyone()
    run.accelerator.log({key: value for key, value in figures.items() if key != "step"}, step=run.progress.step)
    if found:
        run.display.show_evaluation(figures)
    for warning in warnings:
        run.display.say(f"warning: {warning}")


def save(run: Run) -> None:
    run.checkpoints.save(run.progress.step, lambda folder: write_state(run, folder), run.best_step)
    run.saved_step, run.saved_at = run.progress.step, time.monotonic()


def set_learning_rates(
    optimizer: torch.optim.Optimizer, step: int, num_steps: int, settings: Settings, options: TrainingOptions
) -> None:
    """Set the rates of a step: those of its stage; else linear warm-up to those of the options, and linear decay."""
    warmup_steps = min(options.warmup_steps, num_steps // 2)
    is_warming_up = step < warmup_steps
    share = step / warmup_steps if is_warming_up else max(0, num_steps - step) / max(1, num_steps - warmup_steps)
    for group in optimizer.param_groups:
        name = RATES[group["name"]]
        of_stage = getattr(settings, name)
        group["lr"] = share * getattr(options, name) if of_stage is None else of_stage


def reduce_counts(accelerator: Accelerator, step: Step, stop: bool, save: bool) -> Counts:
    """Sum the counts of a step over all processes. What one process asks for, all processes do."""
    own = [step.num_tokens, step.num_sentences, step.num_left_out, stop, save]
    total = accelerator.reduce(torch.tensor(own, dtype=torch.long, device=accelerator.device), "sum")
    return Counts(*total.tolist())


def take_step(run: Run, step: Step, counts: Counts) -> dict[str, float] | None:
    """Forward pass, backward pass and update; neither accumulation nor the number of processes changes the result.

    Returns:
        The losses in nats, by name, means over all tokens, sentences or constituents of the step. None if the update
        was skipped, since losses or gradients were not finite.
    """
    accelerator, settings = run.accelerator, run.settings
    losses, of_unit = [loss for loss in LOSSES if loss.is_used(settings)], sizes(counts.tokens, counts.sentences)
    numbers = {loss.name: max(1, of_unit[loss.unit]) for loss in losses}
    weights = {loss.name: getattr(settings, loss.weight) for loss in losses}
    totals = torch.zeros(len(losses), device=accelerator.device)
    for number, batch in enumerate(step.batches, start=1):
        is_last = number == len(step.batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(run.objective):
            inputs, guidance = run.guide(settings, send_to_device(batch, accelerator.device))
            sums = run.objective(inputs, guidance, losses)
            if not step.num_sentences:
                sums = {name: 0 * value for name, value in sums.items()}
            share = sum(weights[name] * value / numbers[name] for name, value in sums.items())
            # The factor undoes the mean of data-parallel training over the processes' gradients.
            accelerator.backward(accelerator.num_processes * share)
        totals += torch.stack([value.detach() for value in sums.values()])
    totals = accelerator.reduce(totals, "sum").tolist()
    means = {name: total / number for (name, number), total in zip(numbers.items(), totals, strict=True)}
    return means if _update(run, means) else None


def _update(run: Run, losses: dict[str, float]) -> bool:
    """Clip and apply the gradient if losses and gradient are finite; all processes decide alike."""
    accelerator, optimizer = run.accelerator, run.optimizer
    accelerator.unscale_gradients(optimizer)
    norms = clip_gradients(optimizer, run.options.training.max_grad_norm)
    if not run.settings.tree_weight:
        drop_gradients(optimizer, "parser")
    norms = [norm.to(accelerator.device) for norm in norms.values()]  # that of no gradients is on the CPU
    is_finite = all(map(math.isfinite, [*losses.values(), *torch.stack(norms).tolist()]))
    if is_finite:
        optimizer.step()
    elif accelerator.scaler is not None:
        accelerator.scaler.update()  # with float16: a lower scale, if gradients were infinite
    optimizer.zero_grad()
    return is_finite


def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float) -> dict[str, Tensor]:
    """Clip each group's gradient by its own norm; 0 clips nothing. Returns the norms before clipping, by group."""
    norms = {}
    for name in RATES:
        parameters = [p for group in optimizer.param_groups if group["name"] == name for p in group["params"]]
        norms[name] = nn.utils.clip_grad_norm_(parameters, max_norm or math.inf)
    return norms


def drop_gradients(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Leave a group out of the next update altogether.

    Gradients of zero would not do: moments would stay zero while AdamW counts steps, and the first real gradients would
    then make updates of several times the learning rate.
    """
    for group in optimizer.param_groups:
        if group["name"] == name:
            for parameter in group["params"]:
                parameter.grad = None
