"""The losses of pretraining: each is one entry of `LOSSES`, from which its weight, its curve and its mean over all
processes and batches follow. All are functions of an `EncodedBatch`.

To add a loss, write its function, add its entry, and give `Settings` its weight. If it has parameters of its own, it is
a class of modules: its parameters are trained and are in checkpoints, but not in the model that a run ends with.

Those that compare vectors read the model's pooler, whose first features are those of the count vectors. Its other
features, if there are any, are no loss's: they are what a model knew before it was made wider (`models`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.chart import Chart, to_device
from modeling_fast_r2d2.chart_planning import merge_ranks
from modeling_fast_r2d2.encoder import EncodedChart, encode_chart, encode_forced
from modeling_fast_r2d2.inputs import EmbeddedBatch, read_split_scores
from modeling_fast_r2d2.tree_distribution import TreeDistribution
from pretraining.recipe import Settings, Stage, ends_of

SIMILARITY_TEMPERATURE = 0.1
COMPARED_CONSTITUENTS, COMPARED_LENGTH = 150, 5  # at most, of at least this many tokens
WHITENING_EPS = 1e-3


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
    """What was encoded, and how: all that a loss is a function of."""

    model: FastR2D2ForPreTraining
    batch: EmbeddedBatch
    chart: Chart
    encoded: EncodedChart
    guidance: Guidance


def sizes(tokens: int, sentences: int) -> dict[str, int]:
    """What losses are means over; constituents are those of two or more tokens."""
    return {"tokens": tokens, "sentences": sentences, "constituents": tokens - sentences}


def choice_loss(of: EncodedBatch) -> Tensor:
    """Cross entropy of the encoder's choice in each cell and that of ``choice_scores``."""
    scores = read_split_scores(of.guidance.choice_scores, of.batch.sentences)
    [ranks] = to_device([merge_ranks(scores, of.batch.sentences.lengths, of.batch.nesting)], of.encoded.nodes.device)
    return TreeDistribution(of.chart, of.encoded.choices()).choice_loss(ranks)


class CountLoss(nn.Module):
    """Base of the losses that compare vectors with those of `CountVectors`."""

    def __init__(self, model, guide):
        super().__init__()
        self.counts = guide.count_vectors

    def pooled(self, of: EncodedBatch, nodes: Tensor | slice) -> tuple[Tensor, Tensor]:
        """``(nodes, features)`` each, of length 1: pooled vectors of nodes, and what they should be."""
        wanted = self.counts.of_spans(of.batch.token_ids.long(), of.chart.spans[nodes])
        vectors = of.model.model.pool(of.encoded.nodes[nodes])[:, : wanted.shape[1]]
        return F.normalize(vectors.float(), dim=-1), wanted


class MeaningLoss(CountLoss):
    """1 - cosine of each constituent's vector and the count vectors of its tokens."""

    def forward(self, of: EncodedBatch) -> Tensor:
        vectors, wanted = self.pooled(of, slice(of.chart.num_tokens, None))
        return (1 - (vectors * wanted).sum(-1)).sum() / max(len(wanted), 1)


class TopicLoss(CountLoss):
    """The meaning loss of whole sentences."""

    def forward(self, of: EncodedBatch) -> Tensor:
        vectors, wanted = self.pooled(of, of.chart.roots)
        return (1 - (vectors * wanted).sum(-1)).mean()


class SimilarityLoss(CountLoss):
    """Cross entropy between softmaxes of similarities: of each sentence to all others and to some of the batch's longer
    constituents, by count vectors and by the model's."""

    def forward(self, of: EncodedBatch) -> Tensor:
        first, last = of.chart.spans[of.chart.num_tokens :].T
        [long] = (last - first + 1 >= COMPARED_LENGTH).nonzero(as_tuple=True)
        drawn = long[torch.randperm(len(long))[:COMPARED_CONSTITUENTS].to(long.device)] + of.chart.num_tokens
        vectors, wanted = self.pooled(of, torch.cat([of.chart.roots, drawn]))
        if len(vectors) == 1:
            return 0 * vectors.sum()
        itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
        found, target = (
            (rows @ rows.T / SIMILARITY_TEMPERATURE).masked_fill(itself, -1e4) for rows in (vectors, wanted)
        )
        return F.cross_entropy(found, target.softmax(-1))


class MemoryLoss(nn.Module):
    """1 - cosine of a linear map of each constituent's vector and the vector that the given model has for it along the
    same tree, whitened over the batch, so that all that it knows counts and not only what differs most."""

    def __init__(self, model, guide):
        super().__init__()
        self.guide = guide  # no module, so that the given model is no part of this one
        old, new = guide.given.config.hidden_size, model.config.hidden_size
        self.map = nn.Linear(new, old)
        with torch.no_grad():  # a model that was made wider has the old features first
            self.map.weight.copy_(torch.eye(old, new))
            self.map.bias.zero_()

    def forward(self, of: EncodedBatch) -> Tensor:
        wanted, constituents = self.known(of), slice(of.chart.num_tokens, None)
        if len(wanted) < 2:
            return 0 * (self.map.weight.sum() + self.map.bias.sum())
        cosines = F.cosine_similarity(self.map(of.encoded.nodes[constituents]).float(), whiten(wanted), dim=-1)
        return (1 - cosines).mean()

    @torch.no_grad()
    def known(self, of: EncodedBatch) -> Tensor:
        """``(constituents, hidden size of the given model)``."""
        given, config, token_ids = self.guide.given.model, self.guide.given.config, of.batch.token_ids
        tasks = given.embeddings(token_ids.new_tensor([config.cls_token_id, config.sum_token_id]))
        encode = encode_forced if of.guidance.encoding == "forced" else encode_chart
        nodes = encode(of.chart, given.embeddings(token_ids), given.composition, tasks).nodes
        return nodes[of.chart.num_tokens :].float()


def whiten(rows: Tensor) -> Tensor:
    """Float32 rows without their mean, times the inverse square root of their covariance."""
    rows = rows - rows.mean(0)
    with torch.autocast(rows.device.type, enabled=False):  # half precision has no eigenvalues
        values, directions = torch.linalg.eigh(rows.T @ rows / len(rows))
    return rows @ (directions / (values.clamp(min=0) + WHITENING_EPS).sqrt()) @ directions.T


@dataclass(frozen=True)
class Loss:
    """A loss of pretraining.

    Attributes:
        name: in curves and logs, where ``_loss`` follows it.
        of: from an `EncodedBatch` to a scalar, the mean over its units; or a class of modules that do this. An
            instance is made with the model and the run's `Guide`, which holds what is frozen. Tensors that checkpoints
            need not hold are buffers that are not persistent.
        unit: what it is a mean over, a key of `sizes`. The choice loss is a mean over cells, whose number grows with
            the number of tokens.
        weight: the name of its weight in `Settings`.
        needs_chart: whether it depends on the candidates of a chart, so that forced encoding cannot have it.
        is_always_shown: whether it is computed even if its weight is 0.
    """

    name: str
    of: Callable
    unit: str
    weight: str
    needs_chart: bool = True
    is_always_shown: bool = False

    def is_used(self, settings: Settings) -> bool:
        return bool(getattr(settings, self.weight)) or self.is_always_shown and settings.encoding == "chart"


LOSSES = [
    Loss("lm", lambda of: of.model.lm_loss(of.batch, of.chart, of.encoded), "tokens", "lm_weight", needs_chart=False),
    Loss("tree", lambda of: of.model.tree_loss(of.batch, of.chart, of.encoded), "sentences", "tree_weight",
         is_always_shown=True),
    Loss("choice", choice_loss, "tokens", "choice_loss"),
    Loss("meaning", MeaningLoss, "constituents", "meaning_weight", needs_chart=False),
    Loss("topic", TopicLoss, "sentences", "topic_weight", needs_chart=False),
    Loss("similarity", SimilarityLoss, "sentences", "similarity_weight", needs_chart=False),
    Loss("memory", MemoryLoss, "constituents", "memory_weight", needs_chart=False),
]  # fmt: skip


def check_stages(stages: Iterable[Stage]) -> None:
    """Raise ValueError if a stage asks for a loss that its encoding does not have, or begins with none."""
    for stage in stages:
        ends = ends_of([stage])
        wanted = [loss for loss in LOSSES if any(getattr(settings, loss.weight) for settings in ends)]
        if ends[0].encoding == "forced" and (impossible := [loss.weight for loss in wanted if loss.needs_chart]):
            raise ValueError(f"stage {stage.name}: forced encoding has no chart, so {', '.join(impossible)} must be 0")
        if not any(getattr(ends[0], loss.weight) for loss in LOSSES):
            raise ValueError(f"stage {stage.name}: at its beginning, no loss has a weight above 0")


def with_parameters(stages: Iterable[Stage]) -> list[Loss]:
    """The losses that are modules, with parameters of their own or reading the pooler's, that some stage has."""
    classes = [loss for loss in LOSSES if isinstance(loss.of, type)]
    return [loss for loss in classes if any(map(loss.is_used, ends_of(stages)))]


def leave_parameters_out(stages: Iterable[Stage]) -> bool:
    """Whether some parameters take no part in a stage: those of the choice, the language model or a loss."""
    for settings in ends_of(stages):
        trains_choice = settings.encoding == "chart" and (settings.lm_trains_choice or settings.choice_loss)
        is_left_out = any(not loss.is_used(settings) for loss in with_parameters(stages))
        if is_left_out or not (settings.lm_weight and trains_choice):
            return True
    return False


class Objective(nn.Module):
    """The model and its losses as one module, since several processes share only gradients of a ``forward``.
    Losses that no stage has make no parameters."""

    def __init__(self, model: FastR2D2ForPreTraining, guide=None, stages: tuple[Stage, ...] = ()):
        super().__init__()
        self.model = model
        self.own = nn.ModuleDict({loss.name: loss.of(model, guide) for loss in with_parameters(stages)})

    def forward(self, inputs: dict[str, Tensor], guidance: Guidance, losses: Iterable[Loss]) -> dict[str, Tensor]:
        """Encode a batch; compute some losses: scalars in nats by name, each summed over its units in the batch."""
        encoded, sums = self.encode(inputs, guidance), {}
        lengths = encoded.batch.sentences.lengths
        of_unit = sizes(int(lengths.sum()), len(lengths))
        for loss in losses:
            function = self.own[loss.name] if loss.name in self.own else loss.of
            sums[loss.name] = function(encoded) * of_unit[loss.unit]
        if not of_unit["constituents"]:
            # No loss depends on parser and choice, but other processes wait for their gradients.
            nothing = 0 * sum(parameter.sum() for parameter in self.parameters())
            sums = {name: value + nothing for name, value in sums.items()}
        return sums

    def encode(self, inputs: dict[str, Tensor], guidance: Guidance) -> EncodedBatch:
        """Encode a batch as the guidance says. Raises ValueError for scores of another shape, or NaN."""
        base, scores = self.model.model, guidance.chart_scores
        # Where sentences are encoded along trees of given scores, nothing needs the parser's own.
        given = scores if guidance.encoding == "forced" else None
        batch = base.read_batch(
            inputs["input_ids"], inputs.get("attention_mask"), inputs.get("atom_spans"), split_scores=given
        )
        if scores is not None:
            scores = read_split_scores(scores, batch.sentences)
        chart, encoded = base.encode_batch(
            batch, guidance.encoding, chart_scores=scores, vectors_train_choice=guidance.lm_trains_choice
        )
        return EncodedBatch(self.model, batch, chart, encoded, guidance)
