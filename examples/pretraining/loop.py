"""The training loop: steps, points of the curves, evaluations, checkpoints, and going on where a run was."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_model
from transformers import PreTrainedTokenizerBase

from pretraining.batches import Step
from pretraining.checkpoints import Checkpoints
from pretraining.display import Display
from pretraining.optimisation import learning_rates
from pretraining.options import Options
from pretraining.progress import Progress
from pretraining.step import agree, take_step
from pretraining.stopping import StopSignal

MOST_SKIPPED = 20  # in a row


@dataclass
class Run:
    """Everything that a run trains with; ``position`` is this process's in the running epoch."""

    accelerator: Accelerator
    options: Options
    tokenizer: PreTrainedTokenizerBase
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    epochs: object
    num_steps: int
    evaluate: Callable[[int], dict]
    checkpoints: Checkpoints
    display: Display
    progress: Progress
    position: dict | None = None

    @property
    def is_over(self) -> bool:
        limit = self.options.training.max_steps
        return self.progress.step >= limit if limit else self.progress.epoch >= self.options.training.epochs


def train(run: Run) -> bool:
    """Train to the end or until a signal asks to stop; whether the end was reached. A checkpoint is there then."""
    stop, saved_at, saved_step = StopSignal(), time.monotonic(), run.progress.step
    is_asked_to_stop = False
    for step, position in steps(run):
        is_late = time.monotonic() - saved_at > 60 * run.options.output.save_minutes
        started = time.monotonic()
        counts = agree(run.accelerator, step, stop=stop.asked, save=is_late and run.accelerator.is_main_process)
        if not counts.sentences:  # nobody has more of a streamed epoch
            run.progress.epoch, run.position = run.progress.epoch + 1, None
            continue
        outcome = take_step(
            run.accelerator, run.model, run.optimizer, step, counts, run.options.training.max_grad_norm,
            tree_weight=float(run.progress.step >= run.options.training.tree_warmup_steps),
        )  # fmt: skip
        run.schedule.step()
        run.position = position
        count_step(run, outcome, counts, time.monotonic() - started)
        look(run)
        is_asked_to_stop = counts.wishes["stop"]
        every = run.options.output.save_steps
        if counts.wishes["save"] or is_asked_to_stop or (every and run.progress.step % every == 0):
            save(run)
            saved_at, saved_step = time.monotonic(), run.progress.step
        if is_asked_to_stop:
            break
    if run.is_over and not any(figures["step"] == run.progress.step for figures in run.progress.evaluations):
        evaluate(run)
        saved_step = None
    if saved_step != run.progress.step:
        save(run)
    return run.is_over


def steps(run: Run) -> Iterator[tuple[Step, dict]]:
    """Steps from where the run is to its end, over epochs."""
    while not run.is_over:
        epoch = run.progress.epoch
        for step, position in run.epochs.steps(epoch, run.position):
            yield step, position
            if run.is_over or run.progress.epoch > epoch:
                break
        else:
            run.progress.epoch, run.position = epoch + 1, None


def count_step(run: Run, outcome, counts, seconds: float) -> None:
    """Note what a step did; a step whose losses were not finite is left out, and too many of them end the run."""
    progress = run.progress
    if outcome.is_applied:
        progress.skipped_in_a_row = 0
        progress.add(outcome.losses, counts.tokens, counts.sentences, seconds)
    else:
        progress.skip(seconds)
    if progress.skipped_in_a_row == MOST_SKIPPED:
        raise FloatingPointError(
            f"losses or gradients were not finite in {MOST_SKIPPED} steps in a row, up to step {progress.step}; the "
            f"last good checkpoint is untouched, in {run.checkpoints.folder}. Lower learning rates, or float32 instead "
            "of half precision, may help"
        )


def look(run: Run) -> None:
    """Show the step; every so often close a point of the curves or evaluate."""
    progress, output = run.progress, run.options.output
    if progress.step % output.log_steps == 0:
        rates = {f"{name}_learning_rate": rate for name, rate in learning_rates(run.optimizer).items()}
        point = progress.end_point(rates)
        run.accelerator.log({key: value for key, value in point.items() if math.isfinite(value)}, step=progress.step)
        run.display.point(point)
    if progress.step % output.evaluate_steps == 0:
        evaluate(run)
    run.display.advance()


def evaluate(run: Run) -> None:
    figures = {"step": run.progress.step, "tokens": run.progress.tokens, **run.evaluate(run.progress.step)}
    run.progress.evaluations.append(figures)
    run.accelerator.log({key: value for key, value in figures.items() if key != "step"}, step=run.progress.step)
    if figures.keys() > {"step", "tokens"}:
        run.display.evaluation(figures)


def save(run: Run) -> None:
    """A checkpoint: the model as `from_pretrained` reads it, and what going on needs beside it."""
    accelerator = run.accelerator

    def write(folder: Path) -> None:
        own = {"position": run.position, "random": random_state()}
        torch.save(own, folder / f"process-{accelerator.process_index}.pt")
        if accelerator.is_main_process:
            accelerator.unwrap_model(run.model).save_pretrained(folder)
            run.tokenizer.save_pretrained(folder)
            state = {"optimizer": run.optimizer.state_dict(), "schedule": run.schedule.state_dict()}
            if accelerator.scaler is not None:
                state["scaler"] = accelerator.scaler.state_dict()
            torch.save(state, folder / "optimizer.pt")
            (folder / "progress.json").write_text(json.dumps(run.progress.as_dict()), encoding="utf-8")

    run.checkpoints.save(run.progress.step, write)


def go_on(run: Run, checkpoint: Path) -> None:
    """Bring a run to where the checkpoint is, to the bit.

    Raises:
        ValueError: if the corpus is another one.
    """
    accelerator = run.accelerator
    progress = Progress(**json.loads((checkpoint / "progress.json").read_text(encoding="utf-8")))
    if progress.corpus != run.progress.corpus:
        raise ValueError(f"the corpus has changed since {checkpoint}: it was {progress.corpus}, now it is "
                         f"{run.progress.corpus}; bring the old one back, or give another --output")  # fmt: skip
    model = accelerator.unwrap_model(run.model)
    load_model(model, checkpoint / "model.safetensors")
    state = torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True)
    run.optimizer.load_state_dict(state["optimizer"])
    run.schedule.load_state_dict(state["schedule"])
    if accelerator.scaler is not None:
        accelerator.scaler.load_state_dict(state["scaler"])
    own = torch.load(checkpoint / f"process-{accelerator.process_index}.pt", map_location="cpu", weights_only=True)
    run.progress, run.position = progress, own["position"]
    set_random_state(own["random"])


def random_state() -> dict[str, torch.Tensor]:
    """Of the generators that the model draws from, on this process."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
