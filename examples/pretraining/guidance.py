"""From settings to arguments of the model's ``forward``: this happens here and nowhere else.

Besides the usual inputs, `FastR2D2ForPreTraining.forward` is given these arguments, each only if a stage needs it:

- ``chart_scores`` ``(batch, seq_len - 1)`` float32: these scores, plus the model's noise, prune the charts instead of
  the parser's. The tree loss still uses the parser's (``split_scores`` would replace them there, too).
- ``chart_rows`` ``(batch,)`` bool, with ``chart_scores``: the sentences in which they are used; by default all.
- ``choice_scores`` ``(batch, seq_len - 1)`` float32: the model returns ``choice_loss``, a cross entropy in nats. The
  prediction is the softmax of the log p̃ of a cell's candidates; the target is the candidate that comes last in the
  merge order of these scores, span constraints included. It is a mean over cells of two or more candidates, 0 if there
  is none.
- ``lm_trains_choice`` False: the language model's gradient does not reach the choice of candidates.
- ``height_threshold`` float: the model returns ``height_loss``, the mean of ``relu(E[height] / n - height_threshold)``
  over sentences of ``n`` tokens. The expectation is over the trees of a sentence's chart.
"""

import copy
import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from modeling_fast_r2d2.embedding import evaluation
from modeling_fast_r2d2.inputs import bounds_scores
from pretraining.count_teacher import CountTeacher
from pretraining.settings import Settings, Stage
from tokenization_fast_r2d2 import DataCollatorForFastR2D2
from tokenization_fast_r2d2.padding import pad_bounds


@dataclass
class CollatorWithBounds(DataCollatorForFastR2D2):
    """Adds ``bounds`` ``(batch, seq_len - 1)`` int8: 1 where punctuation was left out, -1 within names, 0 elsewhere."""

    def __call__(self, features: list[dict]) -> dict[str, Tensor]:
        batch = super().__call__(features)
        bounds, names = ([feature.get(name, []) for feature in features] for name in ("bounds", "names"))
        return batch | {"bounds": pad_bounds(bounds, names, batch["input_ids"].shape[1])}


class Guide:
    """Split scores besides those that the model's own parser gives.

    Args:
        teacher: may be None if no setting needs counts.
        model: gives its parser's scores; not wrapped for data-parallel training.
    """

    def __init__(self, teacher: CountTeacher | None, model):
        self.teacher, self.model = teacher, model
        self.snapshot: torch.nn.Module | None = None

    def take_snapshot(self, weights: dict[str, Tensor] | None = None) -> None:
        """Copy the parser, with its own weights or with others."""
        self.snapshot = copy.deepcopy(self.model.base_model.parser).eval().requires_grad_(False)
        if weights is not None:
            self.snapshot.load_state_dict(weights)

    def arguments(self, settings: Settings, batch: dict[str, Tensor]) -> dict:
        """The arguments of ``forward`` for a batch, the batch included.

        Args:
            batch: from `CollatorWithBounds`, on the model's device.
        """
        batch = dict(batch)
        bounds = batch.pop("bounds")
        scores = {name: self._scores(name, batch) for name in sorted(_needed_scorers(settings))}
        added = bounds_scores(bounds, settings.bounds_bonus, settings.names_bonus)
        raised = {name: of_text + added for name, of_text in scores.items()}
        share = settings.effective_counts_share
        arguments: dict = {}
        if scorer := "counts" if share == 1 else _scorer_without_counts(settings):
            arguments["chart_scores"] = raised[scorer]
        if 0 < share < 1:
            rows = (torch.rand(len(bounds)) < share).to(bounds.device)
            by_parser = arguments.get("chart_scores")
            mixed = raised["counts"] if by_parser is None else raised["counts"].where(rows[:, None], by_parser)
            arguments = {"chart_scores": mixed} | ({"chart_rows": rows} if by_parser is None else {})
        if settings.choice_loss:
            bonus = settings.bounds_bonus if settings.choice_bonus is None else settings.choice_bonus
            copied = scores[settings.choice_scores]
            arguments["choice_scores"] = copied + bounds_scores(bounds, bonus, settings.names_bonus)
        if not settings.lm_trains_choice:
            arguments["lm_trains_choice"] = False
        if settings.height_penalty:
            arguments["height_threshold"] = settings.height_threshold
        return batch | arguments

    def _scores(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """``(batch, seq_len - 1)`` float32 scores of the teacher, the snapshot or the parser."""
        if name == "counts":
            return self.teacher(batch["input_ids"])
        if name == "snapshot":
            return self.snapshot(batch["input_ids"], batch["attention_mask"].sum(1).cpu()).float()
        with evaluation(self.model):
            return self.model.parse(**batch).split_scores.float()


def _needed_scorers(settings: Settings) -> set[str]:
    """Names of the scores that are needed besides those in the model's own forward pass."""
    share, scorers = settings.effective_counts_share, set()
    if share > 0:
        scorers.add("counts")
    if share < 1 and (scorer := _scorer_without_counts(settings)):
        scorers.add(scorer)
    return scorers | ({settings.choice_scores} if settings.choice_loss else set())


def _scorer_without_counts(settings: Settings) -> str | None:
    """The scorer of charts that are not pruned by counts; None if the model's own forward pass prunes them."""
    if settings.chart_scores == "snapshot":
        return "snapshot"
    return "parser" if settings.bounds_bonus or settings.names_bonus else None


def check_arguments(stages: tuple[Stage, ...], forward) -> None:
    """Raise ValueError if a model's ``forward`` does not take an argument that a stage needs."""
    known = inspect.signature(forward).parameters
    for stage in stages:
        if missing := [name for name in sorted(argument_names(stage)) if name not in known]:
            raise ValueError(f"stage {stage.name} needs a model whose forward takes {', '.join(missing)}")


def argument_names(stage: Stage) -> set[str]:
    """Names of the arguments that a stage may need."""
    wanted = {
        "chart_scores": stage.values.get("chart_scores") == "snapshot"
        or any(map(any, map(stage.first_and_last, ("effective_counts_share", "bounds_bonus", "names_bonus")))),
        "chart_rows": "counts_share" in stage.values,
        "choice_scores": any(stage.first_and_last("choice_loss")),
        "lm_trains_choice": not all(stage.first_and_last("lm_trains_choice")),
        "height_threshold": any(stage.first_and_last("height_penalty")),
    }
    return {name for name, is_wanted in wanted.items() if is_wanted}


def loss_weights(settings: Settings) -> dict[str, float]:
    """Weights of the losses that the model returns, by name."""
    return {"lm_loss": 1.0, "tree_loss": settings.tree_weight, "choice_loss": settings.choice_loss,
            "height_loss": settings.height_penalty}  # fmt: skip
