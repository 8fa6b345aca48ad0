"""The training loop: steps, training curves, evaluations and checkpoints."""

import json
import math
import time
from collections.abc import Iterator

from accelerate.utils import broadcast

from modeling_fast_r2d2.text_files import write_text
from pretraining.batches import Step
from pretraining.checkpoints import write_state
from pretraining.encoded import sizes
from pretraining.evaluation import chain_warnings, evaluate, window_of
from pretraining.optimisation import Counts, learning_rates, reduce_counts, set_learning_rates, take_step
from pretraining.run import Run
from pretraining.stopping import Interrupted, StopSignal

MAX_SKIPPED_STEPS = 20  # in a row
EVALUATIONS_FILE = "evaluations.jsonl"


def train(run: Run) -> bool:
    """Train until the end or until a signal comes, then save. Returns whether the end was reached."""
    stop = StopSignal()
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
        is_due = counts.requests["save"] or (output.save_steps and run.progress.step % output.save_steps == 0)
        # During a series of skipped steps, new checkpoints would only push out the good one from before.
        if counts.requests["stop"] or (is_due and not run.progress.skipped_in_a_row):
            save(run)
        if counts.requests["stop"]:
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
