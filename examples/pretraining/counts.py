"""What is counted in the raw text before any training, once: split scores, and vectors of tokens and spans.

Words beside punctuation and at the ends of sentences behave like words at the edges of constituents (Spitkovsky et al.,
2012, D12-1063). A *unit* is the text between two such places. Split point ``k`` has the score

    v_k = log P(a unit ends | token k) + log P(a unit begins | token k + 1) - skew * k

Vectors say which tokens stand near which: positive pointwise mutual information, factorised (Levy & Goldberg, 2014,
"Neural word embedding as implicit matrix factorization"); a span is the mean of its tokens, the rarer ones weighing
more, without what all sentences share (Arora et al., 2017, "A simple but tough-to-beat baseline for sentence
embeddings").
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pretraining.corpus import Corpus

VECTORS_FILE = "count_vectors.safetensors"
WINDOW = 5  # tokens to either side
RARE = 1e-4  # a token is counted with probability sqrt(RARE / its share of the text), at most 1
CONTEXT_EXPONENT = 0.75
SIF = 1e-3  # a token weighs SIF / (SIF + its share of the text)
NUM_COMPONENTS, NUM_SENTENCES = 3, 20_000  # of sentences, what they have in common and how many tell it
TOKENS_AT_ONCE = 5_000_000
SEED = 0

sparse = partial(torch.sparse_coo_tensor, check_invariants=False)  # torch warns if it is not told


@dataclass(frozen=True)
class UnitCounts:
    """How often each token occurs, begins a unit and ends a unit; ``(vocab_size,)`` int64 each."""

    occurrences: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


class CountTeacher:
    """Split scores of token ids.

    Args:
        counts: of the training text.
        skew: nats by which a split point scores lower than the one before it. Values above 0 are a prior for branching
            to the right, which suits English; 0 is no prior.
    """

    def __init__(self, counts: UnitCounts, skew: float = 0.0, device: torch.device | str = "cpu"):
        self.skew = skew
        self.ends = torch.from_numpy(log_share(counts.ends, counts.occurrences)).to(device)
        self.begins = torch.from_numpy(log_share(counts.begins, counts.occurrences)).to(device)

    def __call__(self, input_ids: Tensor) -> Tensor:
        """From ``(batch, seq_len)`` int64 token ids to ``(batch, seq_len - 1)`` float32 scores in nats.

        A piece that continues a word hardly ever begins a unit, so that words tend to stay whole. The model's span
        constraints make sure that they do.
        """
        position = torch.arange(input_ids.shape[1] - 1, device=input_ids.device)
        return self.ends[input_ids[:, :-1]] + self.begins[input_ids[:, 1:]] - self.skew * position


def log_share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Smoothed ``log(part / whole)`` by token, float32.

    One is added to each part. The number added to each whole gives a token that was never seen the share of all tokens
    together.
    """
    share = (part.sum() + 1) / (whole.sum() + 1)
    return np.log((part + 1) / (whole + 1 / share)).astype(np.float32)


def count_units(corpus: Corpus, vocab_size: int) -> UnitCounts:
    """Count the units of a text. If the model sees punctuation, a mark is a unit of its own. If not, marks only bound
    other units."""
    tokens, begins = corpus.token_ids(), corpus.are_unit_begins()
    ends = np.roll(begins, -1)  # the last token ends a unit, since the first begins one
    return UnitCounts(*(np.bincount(part, minlength=vocab_size) for part in (tokens, tokens[begins], tokens[ends])))


@dataclass(frozen=True)
class CountVectors:
    """All float32.

    Attributes:
        tokens: ``(vocab_size, features)``, rows of length 1, or 0 for tokens that do not occur.
        weights: ``(vocab_size,)``, above 0 and at most 1.
        mean: ``(features,)``, of sentences.
        components: ``(NUM_COMPONENTS, features)``, the directions in which sentences differ most.
    """

    tokens: Tensor
    weights: Tensor
    mean: Tensor
    components: Tensor

    def of_spans(self, token_ids: Tensor, spans: Tensor) -> Tensor:
        """``(num_spans, features)``: what spans are about, vectors of length 1.

        Args:
            token_ids: ``(num_tokens,)`` long.
            spans: ``(num_spans, 2)`` long, first and last token.
        """
        weighted = self.weights[token_ids, None] * self.tokens[token_ids]
        before = F.pad(weighted.double().cumsum(0), (0, 0, 1, 0))  # sums of long texts differ by little
        first, last = spans.T
        means = ((before[last + 1] - before[first]) / (last - first + 1)[:, None]).float() - self.mean
        return F.normalize(means - means @ self.components.T @ self.components, dim=-1)

    def to(self, device: torch.device | str) -> "CountVectors":
        return CountVectors(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def count_vectors(token_ids: np.ndarray, lengths: np.ndarray, vocab_size: int, features: int) -> CountVectors:
    """Count a corpus.

    Args:
        token_ids: ``(num_tokens,)``, sentences end to end.
        lengths: ``(num_sentences,)`` int64, their numbers of tokens.
        features: of a vector; less than ``vocab_size``.
    """
    share = np.bincount(token_ids, minlength=vocab_size) / len(token_ids)
    information = mutual_information(count_pairs(token_ids, lengths, share))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        tokens, _, _ = torch.svd_lowrank(information, min(features + 10, vocab_size), niter=4)
    tokens = F.normalize(tokens[:, :features], dim=-1)
    weights = torch.from_numpy(SIF / (SIF + share)).float()
    means = mean_of_sentences(weights[:, None] * tokens, token_ids, lengths)
    mean = means.mean(0)
    _, directions = torch.linalg.eigh(torch.cov(means.T))  # in ascending order
    return CountVectors(tokens.contiguous(), weights, mean, directions[:, -NUM_COMPONENTS:].T.contiguous())


def count_pairs(token_ids: np.ndarray, lengths: np.ndarray, share: np.ndarray) -> Tensor:
    """Sparse ``(vocab_size, vocab_size)`` float32: how often two tokens stand at most ``WINDOW`` apart in a sentence.

    Some occurrences of frequent tokens are left out before, so that rarer neighbours come nearer. ``share`` is that of
    each token in the text.
    """
    keep = np.random.default_rng(SEED).random(len(token_ids)) < np.sqrt(RARE / np.maximum(share, 1e-12))[token_ids]
    sentences = np.repeat(np.arange(len(lengths)), lengths)[keep]
    tokens, size = token_ids[keep].astype(np.int64), len(share)
    total = sparse(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), (size, size))
    for start in range(0, len(tokens), TOKENS_AT_ONCE):
        for distance in range(1, WINDOW + 1):
            left = np.arange(start, min(start + TOKENS_AT_ONCE, len(tokens) - distance))
            left = left[sentences[left] == sentences[left + distance]]
            pairs = torch.from_numpy(np.stack([tokens[left], tokens[left + distance]]))
            total = (total + sparse(pairs, torch.ones(len(left)), (size, size))).coalesce()
    return (total + total.t()).coalesce()


def mutual_information(pairs: Tensor) -> Tensor:
    """Sparse, in the shape of ``pairs``: positive pointwise mutual information, in nats, with smoothed contexts."""
    rows, columns = pairs.indices()
    occurrences = torch.zeros(len(pairs)).index_add_(0, rows, pairs.values())
    contexts = occurrences**CONTEXT_EXPONENT / (occurrences**CONTEXT_EXPONENT).sum()
    information = (pairs.values() / (occurrences[rows] * contexts[columns])).log()
    is_positive = information > 0
    return sparse(pairs.indices()[:, is_positive], information[is_positive], pairs.shape).coalesce()


def mean_of_sentences(weighted: Tensor, token_ids: np.ndarray, lengths: np.ndarray) -> Tensor:
    """``(sentences, features)``: means of the tokens' weighted vectors, of sentences from all over the corpus."""
    ends = lengths.cumsum()
    chosen = np.arange(0, len(lengths), max(1, len(lengths) // NUM_SENTENCES))
    tokens = np.concatenate([token_ids[ends[i] - lengths[i] : ends[i]] for i in chosen]).astype(np.int64)
    sentences = torch.from_numpy(np.repeat(np.arange(len(chosen)), lengths[chosen]))
    sums = torch.zeros(len(chosen), weighted.shape[1]).index_add_(0, sentences, weighted[torch.from_numpy(tokens)])
    return sums / torch.from_numpy(lengths[chosen])[:, None]
