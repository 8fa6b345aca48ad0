"""From settings to `Guidance`: split scores of counts, of a snapshot of the parser or of the parser, with bonuses."""

import copy
import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from modeling_fast_r2d2.embedding import evaluation
from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors
from modeling_fast_r2d2.inputs import split_bonus
from modeling_fast_r2d2.parser import span_nesting
from pretraining.count_teacher import CountTeacher
from pretraining.count_vectors import CountVectors
from pretraining.encoded import Guidance
from pretraining.recipe import Settings
from tokenization_fast_r2d2 import DataCollatorForFastR2D2
from tokenization_fast_r2d2.padding import pad_split_signs

WITHIN_WORDS, BEYOND_NOISE = 1000.0, 30.0  # nats


@dataclass
class CollatorWithSplitSigns(DataCollatorForFastR2D2):
    """Adds ``split_signs`` ``(batch, seq_len - 1)`` int8: 1 where punctuation was left out, -1 within names, else 0."""

    def __call__(self, features: list[dict]) -> dict[str, Tensor]:
        batch = super().__call__(features)
        bounds, names = ([feature.get(name, []) for feature in features] for name in ("bounds", "names"))
        return batch | {"split_signs": pad_split_signs(bounds, names, batch["input_ids"].shape[1])}


class Guide:
    """Split scores besides those that the model's own parser gives.

    Args:
        teacher: may be None if no setting needs counts.
        model: gives its parser's scores; not wrapped for data-parallel training.
        count_vectors: may be None if no loss needs them.
        given: the model that the run began with, as it was; None if no loss needs it.
        counts_skew: of the run's language, for stages with a ``skew`` or an ``edge_weight``.
    """

    def __init__(
        self,
        teacher: CountTeacher | None,
        model,
        count_vectors: CountVectors | None = None,
        given=None,
        counts_skew: float = 0.0,
    ):
        self.teacher, self.model, self.count_vectors, self.given = teacher, model, count_vectors, given
        self.counts_skew = counts_skew
        self.snapshot: torch.nn.Module | None = None

    def take_snapshot(self) -> None:
        """Copy the parser as it is now."""
        self.snapshot = copy.deepcopy(self.model.base_model.parser).eval().requires_grad_(False)

    def __call__(self, settings: Settings, batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], Guidance]:
        """The inputs of the model and the guidance for a batch.

        Args:
            batch: from `CollatorWithSplitSigns`, on the model's device.
        """
        batch = dict(batch)
        signs = batch.pop("split_signs")
        fall = settings.skew * self.counts_skew * torch.arange(signs.shape[1], device=signs.device)
        scores = functools.cache(lambda scorer: self._scores(scorer, batch) - fall)
        bonus = split_bonus(signs, settings.bounds_bonus, settings.names_bonus)
        share = settings.effective_counts_share
        edge_scores = None
        if settings.edge_weight and self.counts_skew:
            found = self.teacher.edge_scores(batch["input_ids"], batch["attention_mask"].sum(1))
            edge_scores = settings.edge_weight * abs(self.counts_skew) * found

        def pruning(scorer: str) -> Tensor:
            found = scores(scorer) + bonus
            if scorer == "parser" or settings.chart_scores != "minimum_risk" and edge_scores is None:
                return found
            return minimum_risk_scores(found, batch, edge_scores)

        scorer = "counts" if share == 1 else _scorer_without_counts(settings)
        chart_scores = pruning(scorer) if scorer else None
        chart_rows = choice_scores = None
        if 0 < share < 1:
            by_counts = (torch.rand(len(signs)) < share).to(signs.device)
            if chart_scores is None:
                chart_scores, chart_rows = pruning("counts"), by_counts
            else:
                chart_scores = pruning("counts").where(by_counts[:, None], chart_scores)
        if settings.choice_loss:
            own = settings.bounds_bonus if settings.choice_bonus is None else settings.choice_bonus
            choice_scores = scores(settings.choice_scores) + split_bonus(signs, own, settings.names_bonus)
        return batch, Guidance(
            encoding=settings.encoding,
            chart_scores=chart_scores,
            chart_rows=chart_rows,
            choice_scores=choice_scores,
            lm_trains_choice=settings.lm_trains_choice,
            height_threshold=settings.height_threshold,
        )

    def _scores(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """``(batch, seq_len - 1)`` float32 scores of the teacher, the snapshot or the parser."""
        if name == "counts":
            return self.teacher(batch["input_ids"])
        if name == "snapshot":
            return self.snapshot(batch["input_ids"], batch["attention_mask"].sum(1).cpu()).float()
        with evaluation(self.model):
            return self.model.parse(**batch).split_scores.float()


def _scorer_without_counts(settings: Settings) -> str | None:
    """The scorer of charts that are not pruned by counts; None if the model's own forward pass prunes them."""
    if settings.chart_scores in ("snapshot", "minimum_risk"):
        return "snapshot"
    return "parser" if settings.bounds_bonus or settings.names_bonus or settings.skew else None


def minimum_risk_scores(scores: Tensor, batch: dict[str, Tensor], span_scores: Tensor | None = None) -> Tensor:
    """Scores whose best tree is the tree of minimum risk under the distribution of the given ones.

    Args:
        scores: ``(batch, seq_len - 1)`` float32.
        batch: its words are kept whole if it has ``atom_spans``.
        span_scores: as for `span_posteriors`.

    Returns:
        Scores that differ so much within a tree that the noise of training changes nothing.
    """
    lengths = batch["attention_mask"].sum(1)
    if "atom_spans" in batch:
        scores = scores - WITHIN_WORDS * span_nesting(batch["atom_spans"], scores.shape[1])
    spans = minimum_risk_trees(span_posteriors(scores, lengths, span_scores), lengths).to(scores)
    return BEYOND_NOISE * (spans[..., 1] - spans[..., 0])  # a span is wider than those in it
