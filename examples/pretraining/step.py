"""One update: losses over global counts, gradients of all processes, clipping, and steps that are skipped."""

import contextlib
import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor

from pretraining.batches import Step
from pretraining.guidance import Guide, loss_weights
from pretraining.optimisation import LOSSES, clip_gradients, drop_gradients, loss_denominators, objective
from pretraining.settings import PAPER_SETTINGS, Settings

ALWAYS_REPORTED = ("lm_loss", "tree_loss")


@dataclass(frozen=True)
class Counts:
    """Counts over all processes and batches of a step; ``requests`` are true if some process asks for them."""

    tokens: int
    sentences: int
    left_out: int
    requests: dict[str, bool]


@dataclass(frozen=True)
class Outcome:
    """Mean losses of a step in nats, over all its tokens or sentences, and whether the update was applied."""

    losses: dict[str, float]
    is_applied: bool


def reduce_counts(accelerator: Accelerator, step: Step, **requests: bool) -> Counts:
    """Sum the counts of a step over all processes. What one process requests, all processes do."""
    own = [step.num_tokens, step.num_sentences, step.num_left_out, *requests.values()]
    total = accelerator.reduce(torch.tensor(own, dtype=torch.long, device=accelerator.device), "sum").tolist()
    return Counts(*total[:3], {name: value > 0 for name, value in zip(requests, total[3:], strict=True)})


def take_step(
    accelerator: Accelerator,
    model,
    optimizer,
    step: Step,
    counts: Counts,
    max_grad_norm: float,
    settings: Settings = PAPER_SETTINGS,
    guide: Guide | None = None,
) -> Outcome:
    """Forward pass, backward pass and update; neither accumulation nor the number of processes changes the result."""
    weights = loss_weights(settings)
    sums = torch.zeros(len(LOSSES), device=accelerator.device)
    for number, batch in enumerate(step.batches, start=1):
        is_last = number == len(step.batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(model):
            batch = send_to_device(batch, accelerator.device)
            batch_sums = loss_sums(model, guide.arguments(settings, batch) if guide else batch)
            if not step.num_sentences:
                batch_sums = 0 * batch_sums
            share = objective(batch_sums, counts.tokens, counts.sentences, accelerator.num_processes, weights)
            accelerator.backward(share)
        sums += batch_sums.detach()
    numbers = loss_denominators(counts.tokens, counts.sentences)
    means = dict(zip(LOSSES, (accelerator.reduce(sums, "sum") / sums.new_tensor(numbers)).tolist(), strict=True))
    losses = {name: mean for name, mean in means.items() if weights[name] or name in ALWAYS_REPORTED}
    return Outcome(losses, _update(accelerator, optimizer, losses, max_grad_norm, settings.tree_weight))


def loss_sums(model, batch: dict[str, Tensor]) -> Tensor:
    """``(4,)`` float32, `LOSSES`, each summed over its tokens or sentences; 0 for a loss that was not requested."""
    output = model(**batch)
    numbers = loss_denominators(batch["attention_mask"].sum(), len(batch["input_ids"]))
    means = [getattr(output, name, None) for name in LOSSES]
    nothing = torch.zeros_like(output.lm_loss)
    sums = torch.stack([
        nothing if mean is None else mean * number for mean, number in zip(means, numbers, strict=True)
    ])  # fmt: skip
    has_splits = batch["input_ids"].shape[1] > 1
    if not has_splits:  # no loss depends on parser and choice, but other processes wait for their gradients
        sums = sums + 0 * sum(parameter.sum() for parameter in model.parameters())
    return sums


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
