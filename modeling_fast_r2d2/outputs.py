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
    """``loss = lm_loss + tree_loss``, scalars in nats; ``choice_loss``, in nats, and ``height_loss`` where they were
    asked for (see `guidance`); the other fields as in `FastR2D2Output`."""

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
        loss: scalar, with labels: the sum of four losses in training, the task loss in evaluation.
        logits: ``(batch, num_labels)`` of the encoding asked for.
        lm_loss, tree_loss: scalars in nats, the parts of ``loss`` that need no labels; in training only.
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
