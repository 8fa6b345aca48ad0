"""Optimiser, schedule and clipping, with separate groups for encoder and parser."""

from functools import partial

import torch
from torch import Tensor, nn

from modeling_fast_r2d2 import parameter_groups
from pretraining.losses import Objective
from pretraining.options import TrainingOptions
from pretraining.settings import PLAN_WITHOUT_STAGES, Plan

GROUPS = ("encoder", "parser")
RATES = {"encoder": "learning_rate", "parser": "parser_learning_rate"}


def make_optimizer(objective: Objective, options: TrainingOptions, device: str = "cpu") -> torch.optim.AdamW:
    """AdamW with a learning rate per group and without weight decay of biases; on a GPU in a few launches per step.

    Parameters of losses are trained as the encoder's.
    """
    rates = options.learning_rate, options.parser_learning_rate, options.weight_decay
    groups = [group for module in (objective.model, objective.own) for group in parameter_groups(module, *rates)]
    return torch.optim.AdamW(groups, fused=True if device == "cuda" else None)


def make_schedule(
    optimizer: torch.optim.Optimizer, warmup_steps: int, num_steps: int, plan: Plan = PLAN_WITHOUT_STAGES
):
    """Linear warm-up, then linear decay to zero. A rate that a stage sets replaces both.

    Raises:
        ValueError: if a stage sets a rate that is 0 in the options.
    """
    warmup_steps = min(warmup_steps, num_steps // 2)
    rates = [(RATES[group["name"]], group["lr"]) for group in optimizer.param_groups]
    for name, peak in rates:
        if not peak and any(name in stage.values for stage in plan.stages):
            raise ValueError(f"stages set {name}, so the option {name} must be > 0, got {peak}")

    def factor(step: int, name: str, peak: float) -> float:
        rate = getattr(plan.at(step), name)
        if rate is not None:
            return rate / peak
        is_warming_up = step < warmup_steps
        return step / warmup_steps if is_warming_up else max(0, num_steps - step) / max(1, num_steps - warmup_steps)

    lambdas = [partial(factor, name=name, peak=peak) for name, peak in rates]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambdas)


def learning_rates(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in optimizer.param_groups}


def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float) -> dict[str, Tensor]:
    """Clip each group's gradient by its own norm. Returns the norms before clipping, by group."""
    norms = {}
    for name in GROUPS:
        parameters = [p for group in optimizer.param_groups if group["name"] == name for p in group["params"]]
        norms[name] = nn.utils.clip_grad_norm_(parameters, max_norm)
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
