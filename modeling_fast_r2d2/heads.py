"""What is put on top of the vectors: the language model's head, with its contexts, and the classifiers'."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from .chart import Chart, widest_neighbours
from .configuration_fast_r2d2 import FastR2D2Config
from .cpu_operations import apply_linear, is_plain

ROWS_AT_ONCE = 256  # of logits, which then stay in a processor's cache


class LanguageModelHead(nn.Module):
    """Predicts every token from the widest nodes beside it; the output matrix is the token embedding's."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden: Tensor) -> Tensor:  # (tokens, hidden_size) -> (tokens, vocab_size)
        return apply_linear(self.decoder, self._transformed(hidden))

    def loss(self, hidden: Tensor, token_ids: Tensor) -> Tensor:
        """Mean cross entropy in nats, float32 or wider; where torch can do it, never all logits are in memory at once.

        Args:
            hidden: ``(tokens, hidden_size)``.
            token_ids: ``(tokens,)`` long.
        """
        transformed = self._transformed(hidden)
        if _has_chunked_loss(transformed) and is_plain(self.decoder):
            return F.linear_cross_entropy(
                transformed, self.decoder.weight, token_ids, linear_bias=self.decoder.bias,
                options=nn.LinearCrossEntropyOptions(batch_chunk_size=ROWS_AT_ONCE, allow_retain_graph=True),
            )  # fmt: skip
        return language_model_loss(apply_linear(self.decoder, transformed), token_ids)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.activation(apply_linear(self.transform, hidden))


def _has_chunked_loss(hidden: Tensor) -> bool:
    """Whether torch's fused loss may be used. It was measured on CPUs only. In half precision its sums would have half
    precision as well, and it ignores autocast."""
    return (
        hasattr(nn, "LinearCrossEntropyOptions")
        and hidden.device.type == "cpu"
        and hidden.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def language_model_loss(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Mean cross entropy in nats over ``(num_tokens, vocab_size)`` logits, in float32 or wider."""
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), token_ids)


def language_model_contexts(chart: Chart, nodes: Tensor, ends: Tensor) -> Tensor:
    """The contexts from which every token is predicted: the widest nodes beside it (paper, Equation 6).

    Args:
        nodes: ``(num_nodes, hidden_size)``.
        ends: ``(2, hidden_size)``, embeddings of ``[BOS]`` and ``[EOS]``, the contexts at a sentence's ends.

    Returns:
        ``(2, num_tokens, hidden_size)``, left and right, sentences end to end.
    """
    ids = torch.stack(widest_neighbours(chart))
    rows = nodes.index_select(0, ids.clamp(min=0).flatten()).view(*ids.shape, -1)
    return torch.where(ids[..., None] < 0, ends[:, None].to(nodes.dtype), rows)


class ClassificationHead(nn.Module):
    """A root vector to logits through one hidden layer."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(dropout)
        self.out_proj = nn.Linear(config.intermediate_size, config.num_labels or 1)

    def forward(self, root: Tensor) -> Tensor:  # (batch, hidden_size) -> (batch, num_labels)
        return self.out_proj(self.dropout(self.activation(self.dense(root))))
