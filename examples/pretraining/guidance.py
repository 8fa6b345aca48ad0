"""The seam between a run's settings and the model: here, and nowhere else, settings become arguments of `forward`.

Beside the paper's inputs, `FastR2D2ForPreTraining.forward` is asked for these, each only where a stage wants it:

- ``chart_scores`` ``(batch, seq_len - 1)`` float32: prune the charts by these, plus the model's noise, in place of the
  parser's scores. The tree loss still has the parser's (``split_scores`` would replace them there too).
- ``chart_rows`` ``(batch,)`` bool, with ``chart_scores``: in these sentences only; without it in all.
- ``choice_scores`` ``(batch, seq_len - 1)`` float32: return ``choice_loss``, the cross entropy in nats of the softmax
  of a cell's candidates' log p̃ to the candidate that is last in these scores' merge order, span constraints included;
  a mean over the cells of two or more candidates, 0 if there is none.
- ``lm_trains_choice`` False: the language model's gradient does not reach the choice of candidates.
- ``height_threshold`` float: return ``height_loss``, ``relu(E[height] / n - height_threshold)``, a mean over sentences;
  the expectation is over the trees of a sentence's chart, ``n`` its tokens.
"""

import inspect

import torch
from torch import Tensor

from pretraining.count_teacher import CountTeacher
from pretraining.settings import Settings, Stage


def forward_arguments(settings: Settings, batch: dict[str, Tensor], teacher: CountTeacher | None) -> dict:
    """What a batch is given to the model with, besides itself.

    Args:
        batch: on the model's device, with ``input_ids`` ``(batch, seq_len)``.
        teacher: may be None where ``settings.need_counts`` is False.
    """
    arguments: dict = {}
    scores = teacher(batch["input_ids"]) if settings.need_counts else None
    share = settings.share_of_counts
    if share > 0:
        arguments["chart_scores"] = scores
        if share < 1:
            arguments["chart_rows"] = (torch.rand(len(scores)) < share).to(scores.device)
    if settings.choice_loss:
        arguments["choice_scores"] = scores
    if not settings.lm_trains_choice:
        arguments["lm_trains_choice"] = False
    if settings.height_penalty:
        arguments["height_threshold"] = settings.height_threshold
    return arguments


def check_arguments(stages: tuple[Stage, ...], forward) -> None:
    """Raise ValueError unless a model's ``forward`` takes all that some stage asks for."""
    known = inspect.signature(forward).parameters
    for stage in stages:
        if missing := [name for name in sorted(arguments_of(stage)) if name not in known]:
            raise ValueError(f"stage {stage.name} needs a model whose forward takes {', '.join(missing)}")


def arguments_of(stage: Stage) -> set[str]:
    """Names of the arguments that a stage may ask for."""
    wanted = {
        "chart_scores": any(stage.ends("share_of_counts")),
        "chart_rows": "counts_share" in stage.values,
        "choice_scores": any(stage.ends("choice_loss")),
        "lm_trains_choice": not all(stage.ends("lm_trains_choice")),
        "height_threshold": any(stage.ends("height_penalty")),
    }
    return {name for name, is_wanted in wanted.items() if is_wanted}


def loss_weights(settings: Settings) -> dict[str, float]:
    """Of what the model returns."""
    return {"lm_loss": 1.0, "tree_loss": settings.tree_weight, "choice_loss": settings.choice_loss,
            "height_loss": settings.height_penalty}  # fmt: skip
