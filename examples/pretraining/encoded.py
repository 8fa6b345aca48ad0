"""A batch that was encoded, and how: all that the losses of pretraining are functions of."""

from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.chart import Chart
from modeling_fast_r2d2.encoder import EncodedChart
from modeling_fast_r2d2.inputs import EmbeddedBatch
from modeling_fast_r2d2.tree_distribution import TreeDistribution


@dataclass(frozen=True)
class Guidance:
    """How a batch is encoded and what its losses are told; the defaults are the paper's.

    Attributes:
        encoding: ``"chart"``; or ``"forced"``, one tree per sentence, without candidates to choose from.
        chart_scores: ``(batch, seq_len - 1)`` float32. These scores, plus the model's noise, prune the charts or make
            the trees instead of the parser's. The tree loss still trains the parser's own.
        choice_scores: ``(batch, seq_len - 1)`` float32, a teacher's split scores, for the choice loss.
        lm_trains_choice: whether the language model's gradient reaches the choice of candidates.
    """

    encoding: str = "chart"
    chart_scores: Tensor | None = None
    choice_scores: Tensor | None = None
    lm_trains_choice: bool = True


@dataclass(frozen=True)
class EncodedBatch:
    """What was encoded: all that a loss is a function of."""

    model: FastR2D2ForPreTraining
    batch: EmbeddedBatch
    chart: Chart
    encoded: EncodedChart
    guidance: Guidance = field(default_factory=Guidance)

    @cached_property
    def trees(self) -> TreeDistribution:
        return TreeDistribution(self.chart, self.encoded.choices())

    @property
    def sizes(self) -> dict[str, int]:
        return sizes(int(self.batch.sentences.lengths.sum()), len(self.batch.sentences.lengths))


def sizes(tokens: int, sentences: int) -> dict[str, int]:
    """What losses are means over; constituents are those of two or more tokens."""
    return {"tokens": tokens, "sentences": sentences, "constituents": tokens - sentences}
