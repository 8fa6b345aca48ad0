"""Losses that ask vectors what their words are about, and losses between the sentences of a batch.

The model's pooler is read, whose first features are those of the count vectors. Its other features, if there are any,
are no loss's: they are what a model knew before it was made wider (`widening`).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modeling_fast_r2d2.encoder import encode_chart, encode_forced
from pretraining.encoded import EncodedBatch

SIMILARITY_TEMPERATURE = 0.1
COMPARED_CONSTITUENTS, COMPARED_LENGTH = 150, 5  # at most, of at least this many tokens
WHITENING_EPS = 1e-3


class CountLoss(nn.Module):
    """Base of the losses that compare vectors with those of `CountVectors`."""

    def __init__(self, model, guide):
        super().__init__()
        self.counts = guide.count_vectors

    def pooled(self, of: EncodedBatch, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """``(nodes, features)`` each, of length 1: pooled vectors, and what they should be.

        Args:
            nodes: long, or a slice.
        """
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
