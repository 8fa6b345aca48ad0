"""From settings to `Guidance`: split scores of counts, of a snapshot of the parser or of the parser, with bonuses."""

import copy
import functools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.embedding import evaluation
from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors
from modeling_fast_r2d2.inputs import split_bonus_of
from modeling_fast_r2d2.parser import span_nesting
from pretraining.counts import CountTeacher, CountVectors
from pretraining.grammar import Grammar, learn_grammar
from pretraining.losses import Guidance
from pretraining.recipe import OF_MINIMUM_RISK, OF_THE_SNAPSHOT, Settings
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


@dataclass(eq=False)
class Guide:
    """Split scores besides those that the model's own parser gives.

    Attributes:
        teacher: may be None if no setting needs counts.
        model: gives its parser's scores; not wrapped for data-parallel training.
        count_vectors: may be None if no loss needs them.
        given: the model that the run began with, as it was; None if no loss needs it.
        counts_skew: of the run's language, for stages with a ``skew`` or ``pairs_bonus``.
        snapshot, grammar: of the parser and of its trees, once a stage has begun that needs them.
    """

    teacher: CountTeacher | None
    model: FastR2D2ForPreTraining
    count_vectors: CountVectors | None = None
    given: FastR2D2ForPreTraining | None = None
    counts_skew: float = 0.0
    snapshot: torch.nn.Module | None = None
    grammar: Grammar | None = None

    def take_snapshot(self) -> None:
        """Copy the parser as it is now."""
        self.snapshot = copy.deepcopy(self.model.base_model.parser).eval().requires_grad_(False)

    def learn_grammar(self, settings: Settings, batches: Iterable[dict[str, Tensor]]) -> None:
        """Learn a grammar from the snapshot's trees of some batches, with the bonuses of a stage."""

        def with_scores(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
            batch = dict(batch)
            bonus = self._bonus(settings, batch.pop("split_signs"))
            return batch, self._scores("snapshot", batch) + bonus

        model = self.model.base_model
        with evaluation(model):
            found = learn_grammar(model, map(with_scores, batches), model.config.vocab_size)
        self.grammar = found.to(model.device)

    def __call__(self, settings: Settings, batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], Guidance]:
        """The inputs of the model and the guidance for a batch of `CollatorWithSplitSigns`, on the model's device."""
        batch = dict(batch)
        signs = batch.pop("split_signs")
        scores = functools.cache(lambda scorer: self._scores(scorer, batch))
        bonus = self._bonus(settings, signs)
        share = settings.effective_counts_share
        scorer = "counts" if share == 1 else _scorer_without_counts(settings)
        chart_scores = scores(scorer) + bonus if scorer else None
        if settings.chart_scores in OF_MINIMUM_RISK:
            grammar = self.grammar if settings.chart_scores == "grammar" else None
            pairs_bonus = settings.pairs_bonus * self.counts_skew
            chart_scores = minimum_risk_scores(chart_scores, batch, grammar, pairs_bonus)
        if 0 < share < 1:
            by_counts = (torch.rand(len(signs)) < share).to(signs.device)
            chart_scores = (scores("counts") + bonus).where(by_counts[:, None], chart_scores)
        return batch, Guidance(
            encoding=settings.encoding,
            chart_scores=chart_scores,
            choice_scores=scores(settings.choice_scores) + bonus if settings.choice_loss else None,
            lm_trains_choice=settings.lm_trains_choice,
        )

    def _bonus(self, settings: Settings, signs: Tensor) -> Tensor:
        """What a stage adds to all split scores: for punctuation, for names and for the direction of the language."""
        fall = settings.skew * self.counts_skew * torch.arange(signs.shape[1], device=signs.device)
        return split_bonus_of(signs, settings.bounds_bonus, settings.names_bonus) - fall

    def _scores(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """``(batch, seq_len - 1)`` float32 scores of the teacher, the snapshot or the parser."""
        if name == "counts":
            return self.teacher(batch["input_ids"])
        parser = self.snapshot if name == "snapshot" else self.model.base_model.parser
        with evaluation(parser):
            return parser(batch["input_ids"], batch["attention_mask"].sum(1).cpu()).float()


def _scorer_without_counts(settings: Settings) -> str | None:
    """The scorer of charts that are not pruned by counts; None if the model's own forward pass prunes them."""
    if settings.chart_scores in OF_THE_SNAPSHOT:
        return "snapshot"
    is_mixed = settings.effective_counts_share > 0
    return "parser" if is_mixed or settings.bounds_bonus or settings.names_bonus or settings.skew else None


def minimum_risk_scores(
    scores: Tensor, batch: dict[str, Tensor], grammar: Grammar | None = None, pairs_bonus: float = 0.0
) -> Tensor:
    """Scores whose best tree is the tree of minimum risk under the distribution of the given ones.

    Args:
        scores: ``(batch, seq_len - 1)`` float32.
        batch: its words are kept whole if it has ``atom_spans``.
        grammar: whose product with these scores counts; None: the scores alone.
        pairs_bonus: as for `loosen_pairs`.

    Returns:
        Scores that differ so much within a tree that the noise of training changes nothing.
    """
    lengths, is_between_words = batch["attention_mask"].sum(1), torch.ones_like(scores, dtype=torch.bool)
    if "atom_spans" in batch:
        nesting = span_nesting(batch["atom_spans"], scores.shape[1])
        scores, is_between_words = scores - WITHIN_WORDS * nesting, nesting == 0
    if grammar is None:
        posteriors = span_posteriors(scores, lengths)
    else:
        posteriors = grammar.span_posteriors(batch["input_ids"], scores, lengths)
    spans = minimum_risk_trees(posteriors, lengths).to(scores.device)
    if pairs_bonus:
        spans = loosen_pairs(spans, scores, is_between_words, pairs_bonus)
    return BEYOND_NOISE * (spans[..., 1] - spans[..., 0]).to(scores)  # a span is wider than those in it


def loosen_pairs(spans: Tensor, scores: Tensor, is_between_words: Tensor, bonus: float) -> Tensor:
    """Trees with fewer pairs of words before longer phrases: ``((will build) (a bridge))`` becomes ``(will (build (a
    bridge)))``. The text cannot tell the two apart, since *will build* and *build a bridge* both occur like one word.

    Args:
        spans: ``(batch, seq_len - 1, 2)`` long, of the constituent that splits at each split point, as of
            `minimum_risk_trees`.
        scores: ``(batch, seq_len - 1)``, split scores.
        is_between_words: ``(batch, seq_len - 1)`` bool, the split points that do not lie within a word.
        bonus: in nats, not 0. A pair is loosened if the split score within it, raised by the bonus, is above that
            beside it. Below 0, pairs are those after longer phrases, as suits languages that branch to the left.

    Returns:
        Spans like the given ones.
    """
    first, last = spans.unbind(-1)
    beside = (last if bonus > 0 else first - 1).clamp(0, max(0, spans.shape[1] - 1))
    outer_first, outer_last = (edge.gather(1, beside) for edge in (first, last))  # of the parent, if that splits there
    if bonus > 0:
        is_inner = (outer_first == first) & (outer_last > last)
    else:
        is_inner = (outer_last == last) & (outer_first < first)
    before = F.pad(is_between_words.long().cumsum(1), (1, 0))
    is_pair = is_between_words & (before.gather(1, last.clamp(min=0)) - before.gather(1, first.clamp(min=0)) == 1)
    is_close = scores + abs(bonus) > scores.gather(1, beside)
    rows, within = (is_inner & is_pair & is_close).nonzero(as_tuple=True)
    beside, loosened = beside[rows, within], spans.clone()
    loosened[rows, within] = spans[rows, beside]
    if bonus > 0:
        loosened[rows, beside, 0] = within + 1
    else:
        loosened[rows, beside, 1] = within
    return loosened
