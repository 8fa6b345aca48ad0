"""What the models return.

``attentions`` are always None, whatever ``output_attentions`` says. The tokens of a composition attend only to its two
children and to themselves, and a tree has many compositions, so there is no matrix of tokens by tokens.
"""

from dataclasses import dataclass

from torch import Tensor
from transformers.utils import ModelOutput


@dataclass
class FastR2D2Output(ModelOutput):
    """
    Args:
        last_hidden_state: ``(batch, 2 * seq_len - 1, hidden_size)``: leaves at 0 ... n-1, the constituent that splits
            at ``k`` at ``seq_len + k``, zeros elsewhere; not pooled.
        pooler_output: ``(batch, hidden_size)``, sentence vectors: those of the roots, through `FastR2D2Model.pool`.
        split_scores: ``(batch, seq_len - 1)``, the scores that made the trees: the parser's or those given, with
            ``split_bonus``. Those past the sentence mean nothing.
        spans: ``(batch, seq_len - 1, 2)`` long, first and last token of the constituent that splits at ``k``; -1 past
            the sentence.
        log_prob: ``(batch,)`` float32 or wider, nats: log p̃ of the root; None when forced.
        hidden_states: with ``output_hidden_states`` two tensors, the vectors of the tokens before any composition,
            ``(batch, seq_len, hidden_size)``, and ``last_hidden_state``; else None.
        attentions: None.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    split_scores: Tensor | None = None
    spans: Tensor | None = None
    log_prob: Tensor | None = None
    hidden_states: tuple[Tensor, Tensor] | None = None
    attentions: None = None


@dataclass
class FastR2D2ForPreTrainingOutput(ModelOutput):
    """
    Args:
        loss: scalar, nats: the sum of ``lm_loss`` and ``tree_loss``, each times its weight in the configuration.
        lm_loss, tree_loss: scalars, nats; None where the weight is 0.

    The other fields are as in `FastR2D2Output`.
    """

    loss: Tensor | None = None
    lm_loss: Tensor | None = None
    tree_loss: Tensor | None = None
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    split_scores: Tensor | None = None
    spans: Tensor | None = None
    log_prob: Tensor | None = None
    hidden_states: tuple[Tensor, Tensor] | None = None
    attentions: None = None


@dataclass
class FastR2D2ClassifierOutput(ModelOutput):
    """
    Args:
        loss: scalar, where labels are given: in training the sum of the four losses, each times its weight in the
            configuration; in evaluation the task loss.
        logits: ``(batch, num_labels)`` of the encoding that was asked for; None in training if the task loss of that
            encoding has weight 0, since it is not computed then.
        forced_loss, chart_loss, lm_loss, tree_loss: scalars, in training only: the parts of ``loss`` without their
            weights (the task along the parser's tree, the task over the chart, language model, tree KL); None where
            the weight is 0.
        hidden_states: as in `FastR2D2Output`, of the encoding that was asked for; one row per sentence, so two for a
            pair; None without ``output_hidden_states`` and where ``logits`` are.
        attentions: None.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    forced_loss: Tensor | None = None
    chart_loss: Tensor | None = None
    lm_loss: Tensor | None = None
    tree_loss: Tensor | None = None
    hidden_states: tuple[Tensor, Tensor] | None = None
    attentions: None = None


@dataclass
class FastR2D2ParserOutput(ModelOutput):
    """``split_scores`` and ``spans`` as in `FastR2D2Output`; ``loss``, a scalar in nats, where trees are given.

    ``hidden_states`` and ``attentions`` are None, since nothing is encoded.
    """

    loss: Tensor | None = None
    split_scores: Tensor | None = None
    spans: Tensor | None = None
    hidden_states: None = None
    attentions: None = None
