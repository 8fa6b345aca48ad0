"""Split scores before any training, from where units of the training text begin and end.

Words beside punctuation and at the ends of sentences behave like words at the edges of constituents (Spitkovsky et al.,
2012, D12-1063). A *unit* is the text between two such places. Split point ``k`` has the score

    v_k = log P(a unit ends | token k) + log P(a unit begins | token k + 1) - skew * k

Raw text is enough. It is counted when it is read.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pretraining.corpus import Corpus


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
