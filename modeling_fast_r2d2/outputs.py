"""What the models return."""

from dataclasses import dataclass

from torch import Tensor
from transformers.utils import ModelOutput


@dataclass
class FastR2D2Output(ModelOutput):
    """
    Args:
        last_hidden_state: ``(batch, 2 * seq_len - 1, hidden_size)``: leaves at 0 ... n-1, the constituent that splits
            at ``k`` at ``seq_len + k``, zeros elsewhere.
        pooler_output: ``(batch, hidden_size)``, root vectors.
        split_scores: ``(batch, seq_len - 1)``, the parser's raw scores, 0 past the sentence.
        spans: ``(batch, seq_len - 1, 2)`` long, first and last token of the constituent that splits at ``k``; -1 past
            the sentence.
        log_prob: ``(batch,)`` float32 or wider, nats: log p̃ of the root; None when forced.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    split_scores: Tensor | None = None
    spans: Tensor | None = None
    log_prob: Tensor | None = None


@dataclass
class FastR2D2ForPreTrainingOutput(ModelOutput):
    """
    Args:
        loss: scalar, nats: the sum of ``lm_loss`` and ``tree_loss``, each times its weight in the configuration.
        lm_loss, tree_loss: scalars, nats; None where the weight is 0.
        choice_loss, height_loss: scalars, the first in nats, where they were asked for (see `guidance`). They are not
            part of ``loss``.

    The other fields are as in `FastR2D2Output`.
    """

    loss: Tensor | None = None
    lm_loss: Tensor | None = None
    tree_loss: Tensor | None = None
    choice_loss: Tensor | None = None
    height_loss: Tensor | None = None
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    split_scores: Tensor | None = None
    spans: Tensor | None = None
    log_prob: Tensor | None = None


@dataclass
class FastR2D2ClassifierOutput(ModelOutput):
    """
    Args:
        loss: scalar, where labels are given: in training the sum of the four losses, each times its weight in the
            configuration; in evaluation the task loss.
        logits: ``(batch, num_labels)`` of the encoding that was asked for; None in training if the task loss of that
            encoding has weight 0, since it is not computed then.
        lm_loss, tree_loss: scalars, nats, in training only: the two losses that need no labels, without their weights.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    lm_loss: Tensor | None = None
    tree_loss: Tensor | None = None


@dataclass
class FastR2D2ParserOutput(ModelOutput):
    """``split_scores`` and ``spans`` as in `FastR2D2Output`; ``loss``, a scalar in nats, where trees are given."""

    loss: Tensor | None = None
    split_scores: Tensor | None = None
    spans: Tensor | None = None
