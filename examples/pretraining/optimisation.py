"""Encoder and parser in groups of their own: schedule, clipping, and the objective over global counts."""

from functools import partial

import torch
from torch import Tensor, nn

from modeling_fast_r2d2 import parameter_groups
from pretraining.options import TrainingOptions
from pretraining.settings import PLAN_WITHOUT_STAGES, Plan

GROUPS = ("encoder", "parser")
RATES = {"encoder": "learning_rate", "parser": "parser_learning_rate"}
# What a step may minimise, and what each is a mean over.
LOSSES = {"lm_loss": "tokens", "tree_loss": "sentences", "choice_loss": "tokens", "height_loss": "sentences"}


def make_optimizer(model: nn.Module, options: TrainingOptions) -> torch.optim.AdamW:
    """AdamW with a learning rate for each group and no decay on biases."""
    rates = options.learning_rate, options.parser_learning_rate
    return torch.optim.AdamW(parameter_groups(model, *rates, options.weight_decay))


def make_schedule(
    optimizer: torch.optim.Optimizer, warmup_steps: int, num_steps: int, plan: Plan = PLAN_WITHOUT_STAGES
):
    """Linear warm-up, then linear decay to zero; where a stage sets a rate, that rate.

    Raises:
        ValueError: if a stage sets a rate that the options have as 0.
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
    """Clip each group's gradient by its own norm; the norms before."""
    norms = {}
    for name in GROUPS:
        parameters = [p for group in optimizer.param_groups if group["name"] == name for p in group["params"]]
        norms[name] = nn.utils.clip_grad_norm_(parameters, max_norm)
    return norms


def drop_gradients(optimizer: torch.optim.Optimizer, name: str) -> None:
    """Leave a group out of the next update altogether. With gradients of zero its moments would stay zero while AdamW
    counts steps, so that the first real gradients would make updates of several times the learning rate."""
    for group in optimizer.param_groups:
        if group["name"] == name:
            for parameter in group["params"]:
                parameter.grad = None


def loss_denominators(num_tokens: int | Tensor, num_sentences: int) -> list[int | Tensor]:
    """How many of what each of `LOSSES` is a mean over. The choice loss is one over cells, whose number grows with that
    of tokens."""
    units = {"tokens": num_tokens, "sentences": num_sentences}
    return [units[unit] for unit in LOSSES.values()]


def objective(
    sums: Tensor, num_tokens: int, num_sentences: int, num_processes: int, weights: dict[str, float] | None = None
) -> Tensor:
    """One process's share of the loss of a step.

    Args:
        sums: ``(4,)``, of one batch: those of `LOSSES`, each summed over its tokens or sentences.
        num_tokens, num_sentences: of the whole step, over all processes and batches.
        num_processes: undoes the mean that data-parallel training takes over processes' gradients.
        weights: of losses by name; what is not among them weighs 1 if it is the paper's, else 0.
    """
    weights = dict.fromkeys(LOSSES, 0.0) | {"lm_loss": 1.0, "tree_loss": 1.0} | (weights or {})
    numbers = loss_denominators(num_tokens, num_sentences)
    return num_processes * sum(
        weights[name] * loss_sum / number for name, loss_sum, number in zip(LOSSES, sums, numbers, strict=True)
    )
