"""One update: losses as sums over global counts, gradients of all processes, clipping, and steps that are left out."""

import contextlib
import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch import Tensor

from pretraining.batches import Step
from pretraining.optimisation import clip_gradients, forget_gradients, objective


@dataclass(frozen=True)
class Counts:
    """Over all processes and batches of a step; ``wishes`` are what processes ask for, see `agree`."""

    tokens: int
    sentences: int
    left_out: int
    wishes: dict[str, bool]


@dataclass(frozen=True)
class Outcome:
    """Mean losses of a step, nats, over all its tokens and sentences; not applied if they were not finite."""

    losses: dict[str, float]
    is_applied: bool


def agree(accelerator: Accelerator, step: Step, **wishes: bool) -> Counts:
    """Count a step over all processes; a wish of one process is everybody's."""
    own = [step.num_tokens, step.num_sentences, step.num_left_out, *wishes.values()]
    total = accelerator.reduce(torch.tensor(own, dtype=torch.long, device=accelerator.device), "sum").tolist()
    return Counts(*total[:3], {name: value > 0 for name, value in zip(wishes, total[3:], strict=True)})


def take_step(
    accelerator: Accelerator,
    model,
    optimizer,
    step: Step,
    counts: Counts,
    max_grad_norm: float,
    tree_weight: float = 1.0,
) -> Outcome:
    """Forward, backward and update; the objective depends on neither accumulation nor the number of processes."""
    sums = torch.zeros(2, device=accelerator.device)
    for number, batch in enumerate(step.batches, start=1):
        is_last = number == len(step.batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(model):
            batch_sums = loss_sums(model, send_to_device(batch, accelerator.device))
            if not step.num_sentences:
                batch_sums = 0 * batch_sums
            share = objective(batch_sums, counts.tokens, counts.sentences, accelerator.num_processes, tree_weight)
            accelerator.backward(share)
        sums += batch_sums.detach()
    lm_sum, tree_sum = accelerator.reduce(sums, "sum").tolist()
    losses = {"lm_loss": lm_sum / counts.tokens, "tree_loss": tree_sum / counts.sentences}
    return Outcome(losses, _update(accelerator, optimizer, losses, max_grad_norm, tree_weight))


def loss_sums(model, batch: dict[str, Tensor]) -> Tensor:
    """``(2,)`` float32: language-model loss summed over tokens, tree loss summed over sentences."""
    output = model(**batch)
    sums = torch.stack([output.lm_loss * batch["attention_mask"].sum(), output.tree_loss * len(batch["input_ids"])])
    has_splits = batch["input_ids"].shape[1] > 1
    if not has_splits:  # parser and choice have no part in the losses, and other processes wait for their gradients
        sums = sums + 0 * sum(parameter.sum() for parameter in model.parameters())
    return sums


def _update(accelerator: Accelerator, optimizer, losses: dict, max_grad_norm: float, tree_weight: float) -> bool:
    """Clip and apply the gradient unless losses or gradient are not finite; all processes decide alike."""
    accelerator.unscale_gradients(optimizer)
    norms = clip_gradients(optimizer, max_grad_norm)
    if not tree_weight:
        forget_gradients(optimizer, "parser")
    is_finite = all(map(math.isfinite, losses.values()))
    # Under float16 the gradient scaler looks for infinite gradients itself, meets them while it finds its scale, and
    # must see them to do so.
    if accelerator.scaler is None:
        is_finite = is_finite and bool(torch.isfinite(torch.stack(list(norms.values()))).all())
    if is_finite or accelerator.scaler is not None:
        optimizer.step()
        is_finite = is_finite and not accelerator.optimizer_step_was_skipped
    optimizer.zero_grad()
    return is_finite
