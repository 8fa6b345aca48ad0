"""Encoder and parser in groups of their own: schedule, clipping, and the objective over global counts."""

import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from modeling_fast_r2d2 import parameter_groups
from pretraining.options import TrainingOptions

GROUPS = ("encoder", "parser")


def make_optimizer(model: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    """AdamW with a learning rate for each group and no decay on biases."""
    rates = options.learning_rate, options.parser_learning_rate
    return torch.optim.AdamW(parameter_groups(model, *rates, options.weight_decay))


def make_schedule(optimizer: torch.optim.Optimizer, warmup_steps: int, num_steps: int):
    """Linear warm-up, then linear decay to zero."""
    return get_linear_schedule_with_warmup(optimizer, min(warmup_steps, num_steps // 2), num_steps)


def learning_rates(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in optimizer.param_groups}


def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float) -> dict[str, Tensor]:
    """Clip each group's gradient by its own norm; the norms before."""
    norms = {}
    for name in GROUPS:
        parameters = [p for group in optimizer.param_groups if group["name"] == name for p in group["params"]]
        norms[name] = nn.utils.clip_grad_norm_(parameters, max_norm)
    return norms


def forget_gradients(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Leave a group out of the next update altogether. With gradients of zero its moments would stay zero while AdamW
    counts steps, so that the first real gradients would make updates of several times the learning rate."""
    for group in optimizer.param_groups:
        if group["name"] == name:
            for parameter in group["params"]:
                parameter.grad = None


def objective(
    sums: Tensor, num_tokens: int, num_sentences: int, num_processes: int, tree_weight: float = 1.0
) -> Tensor:
    """One process's share of the loss of a step.

    Args:
        sums: ``(2,)``, of one batch: language-model loss over tokens, tree loss over sentences.
        num_tokens, num_sentences: of the whole step, over all processes and batches.
        num_processes: undoes the mean that data-parallel training takes over processes' gradients.
    """
    return num_processes * (sums[0] / num_tokens + tree_weight * sums[1] / num_sentences)
