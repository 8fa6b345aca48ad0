"""The losses of pretraining: each is one entry of `LOSSES`, from which its weight, its curve and its mean over all
processes and batches follow.

To add a loss, write its function, add its entry, and give `Settings` its weight. If it has parameters of its own, it is
a class of modules: its parameters are trained and are in checkpoints, but not in the model that a run ends with.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.chart import to_device
from modeling_fast_r2d2.chart_planning import merge_ranks
from modeling_fast_r2d2.inputs import read_split_scores
from pretraining.encoded import EncodedBatch, Guidance
from pretraining.recipe import Settings, Stage, ends_of
from pretraining.vector_losses import MeaningLoss, MemoryLoss, SimilarityLoss, TopicLoss


def choice_loss(of: EncodedBatch) -> Tensor:
    """Cross entropy of the encoder's choice in each cell and that of ``choice_scores``."""
    scores = read_split_scores(of.guidance.choice_scores, of.batch.sentences)
    [ranks] = to_device([merge_ranks(scores, of.batch.sentences.lengths, of.batch.nesting)], of.encoded.nodes.device)
    return of.trees.choice_loss(ranks)


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
    ends = ends_of(stages)
    return any(not settings.lm_weight or not trains_choice(settings) for settings in ends) or any(
        not loss.is_used(settings) for loss in with_parameters(stages) for settings in ends
    )


def trains_choice(settings: Settings) -> bool:
    """Whether a gradient reaches the encoder's choice."""
    return settings.encoding == "chart" and bool(settings.lm_trains_choice or settings.choice_loss)


class Objective(nn.Module):
    """The model and its losses as one module, since several processes share only gradients of a ``forward``.

    Args:
        model: is trained.
        guide: the run's `Guide`.
        stages: of the run; losses that no stage has make no parameters.
    """

    def __init__(self, model: FastR2D2ForPreTraining, guide=None, stages: tuple[Stage, ...] = ()):
        super().__init__()
        self.model = model
        self.own = nn.ModuleDict({loss.name: loss.of(model, guide) for loss in with_parameters(stages)})

    def forward(self, inputs: dict[str, Tensor], guidance: Guidance, losses: Iterable[Loss]) -> dict[str, Tensor]:
        """Encode a batch; compute some losses.

        Args:
            inputs: of the model.

        Returns:
            Scalars in nats by name: each loss, summed over its units in the batch.
        """
        encoded, sums = self.encode(inputs, guidance), {}
        for loss in losses:
            function = self.own[loss.name] if loss.name in self.own else loss.of
            sums[loss.name] = function(encoded) * encoded.sizes[loss.unit]
        if not encoded.sizes["constituents"]:
            # No loss depends on parser and choice, but other processes wait for their gradients.
            nothing = 0 * sum(parameter.sum() for parameter in self.parameters())
            sums = {name: value + nothing for name, value in sums.items()}
        return sums

    def encode(self, inputs: dict[str, Tensor], guidance: Guidance) -> EncodedBatch:
        """Encode a batch as the guidance says.

        Raises:
            ValueError: for scores of another shape, or NaN.
        """
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
