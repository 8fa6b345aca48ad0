"""Optimiser and learning rates, with separate groups for encoder and parser; and one update: losses over global counts,
gradients of all processes, clipping, and steps that are skipped."""

import contextlib
import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor, nn

from modeling_fast_r2d2 import parameter_groups
from pretraining.batches import Step
from pretraining.encoded import sizes
from pretraining.losses import LOSSES, Objective
from pretraining.options import TrainingOptions
from pretraining.recipe import Settings

GROUPS = ("encoder", "parser")
RATES = {"encoder": "learning_rate", "parser": "parser_learning_rate"}


def make_optimizer(objective: Objective, options: TrainingOptions, device: str = "cpu") -> torch.optim.AdamW:
    """AdamW with a learning rate per group and without weight decay of biases; on a GPU in a few launches per step.

    Parameters of losses are trained as the encoder's.
    """
    rates = options.learning_rate, options.parser_learning_rate, options.weight_decay
    groups = [group for module in (objective.model, objective.own) for group in parameter_groups(module, *rates)]
    return torch.optim.AdamW(groups, fused=True if device == "cuda" else None)


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


def learning_rates(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in optimizer.param_groups}


@dataclass(frozen=True)
class Counts:
    """Counts over all processes and batches of a step; ``requests`` are true if some process asks for them."""

    tokens: int
    sentences: int
    left_out: int
    requests: dict[str, bool]


def reduce_counts(accelerator: Accelerator, step: Step, **requests: bool) -> Counts:
    """Sum the counts of a step over all processes. What one process requests, all processes do."""
    own = [step.num_tokens, step.num_sentences, step.num_left_out, *requests.values()]
    total = accelerator.reduce(torch.tensor(own, dtype=torch.long, device=accelerator.device), "sum").tolist()
    return Counts(*total[:3], {name: value > 0 for name, value in zip(requests, total[3:], strict=True)})


def take_step(run, step: Step, counts: Counts) -> dict[str, float] | None:
    """Forward pass, backward pass and update; neither accumulation nor the number of processes changes the result.

    Args:
        run: gives the accelerator, the `Objective`, the optimizer, the `Guide`, the settings and the options.

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
    max_grad_norm = run.options.training.max_grad_norm
    return means if _update(accelerator, run.optimizer, means, max_grad_norm, settings.tree_weight) else None


def _update(accelerator: Accelerator, optimizer, losses: dict, max_grad_norm: float, tree_weight: float) -> bool:
    """Clip and apply the gradient if losses and gradient are finite; all processes decide alike."""
    accelerator.unscale_gradients(optimizer)
    norms = clip_gradients(optimizer, max_grad_norm)
    if not tree_weight:
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
    for name in GROUPS:
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
