"""One update: losses over global counts, gradients of all processes, clipping, and steps that are skipped."""

import contextlib
import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device

from pretraining.batches import Step
from pretraining.guidance import Guide
from pretraining.losses import LOSSES, sizes
from pretraining.optimisation import clip_gradients, drop_gradients
from pretraining.settings import Settings


@dataclass(frozen=True)
class Counts:
    """Counts over all processes and batches of a step; ``requests`` are true if some process asks for them."""

    tokens: int
    sentences: int
    left_out: int
    requests: dict[str, bool]

    @property
    def sizes(self) -> dict[str, int]:
        """By the units of losses."""
        return sizes(self.tokens, self.sentences)


@dataclass(frozen=True)
class Outcome:
    """Mean losses of a step in nats, by name, over all that they are means over; and whether the update was applied."""

    losses: dict[str, float]
    is_applied: bool


def reduce_counts(accelerator: Accelerator, step: Step, **requests: bool) -> Counts:
    """Sum the counts of a step over all processes. What one process requests, all processes do."""
    own = [step.num_tokens, step.num_sentences, step.num_left_out, *requests.values()]
    total = accelerator.reduce(torch.tensor(own, dtype=torch.long, device=accelerator.device), "sum").tolist()
    return Counts(*total[:3], {name: value > 0 for name, value in zip(requests, total[3:], strict=True)})


def take_step(
    accelerator: Accelerator,
    objective: torch.nn.Module,
    optimizer,
    step: Step,
    counts: Counts,
    max_grad_norm: float,
    settings: Settings,
    guide: Guide,
) -> Outcome:
    """Forward pass, backward pass and update; neither accumulation nor the number of processes changes the result.

    Args:
        objective: an `Objective` with the losses of `LOSSES`, prepared by the accelerator.
    """
    losses = [loss for loss in LOSSES if loss.is_used(settings)]
    numbers = {loss.name: max(1, counts.sizes[loss.unit]) for loss in losses}
    weights = {loss.name: getattr(settings, loss.weight) for loss in losses}
    totals = torch.zeros(len(losses), device=accelerator.device)
    for number, batch in enumerate(step.batches, start=1):
        is_last = number == len(step.batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(objective):
            sums = objective(*guide(settings, send_to_device(batch, accelerator.device)), losses)
            if not step.num_sentences:
                sums = {name: 0 * value for name, value in sums.items()}
            share = sum(weights[name] * value / numbers[name] for name, value in sums.items())
            # The factor undoes the mean of data-parallel training over the processes' gradients.
            accelerator.backward(accelerator.num_processes * share)
        totals += torch.stack([value.detach() for value in sums.values()])
    totals = accelerator.reduce(totals, "sum").tolist()
    means = {name: total / number for (name, number), total in zip(numbers.items(), totals, strict=True)}
    return Outcome(means, _update(accelerator, optimizer, means, max_grad_norm, settings.tree_weight))


def _update(accelerator: Accelerator, optimizer, losses: dict, max_grad_norm: float, tree_weight: float) -> bool:
    """Clip and apply the gradient if losses and gradient are finite; all processes decide alike."""
    accelerator.unscale_gradients(optimizer)
    norms = clip_gradients(optimizer, max_grad_norm)
    if not tree_weight:
        drop_gradients(optimizer, "parser")
    is_finite = all(map(math.isfinite, [*losses.values(), *torch.stack(list(norms.values())).tolist()]))
    if is_finite:
        optimizer.step()
    elif accelerator.scaler is not None:
        accelerator.scaler.update()  # with float16: a lower scale, if gradients were infinite
    optimizer.zero_grad()
    return is_finite
