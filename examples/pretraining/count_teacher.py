"""Split scores before any training, from where units of the training text begin and end.

Words beside punctuation and at the ends of sentences behave like words at the edges of constituents (Spitkovsky et al.,
2012, D12-1063). A *unit* is the text between two such places. Split point ``k`` has the score

    v_k = log P(a unit ends | token k) + log P(a unit begins | token k + 1) - skew * k

These scores join a function word and what follows it too early: ``((to buy) (the house))``. But units hardly ever end
with "to buy", so constituents hardly ever do. Such *edge scores* come from pairs of tokens.

Raw text is enough. It is counted once, when it is read.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from modeling_fast_r2d2.text_files import write_aside
from pretraining.corpus import Corpus

Kind = TypeVar("Kind")
COUNTS_FILE = "unit_counts.safetensors"
COUNTED_TOKENS = 20_000_000  # of the text, for pairs
RAREST_PAIR = 3  # occurrences; rarer pairs say nothing of their own
PRIOR = 20  # occurrences that what is known otherwise counts for


@dataclass(frozen=True)
class UnitCounts:
    """How often tokens, and pairs of tokens side by side in a unit, occur, begin a unit and end one; int64.

    Attributes:
        occurrences, begins, ends: ``(vocab_size,)``, of each token.
        pairs: ``(num_pairs,)``, ascending, ``first * vocab_size + second``.
        pair_occurrences, pair_begins, pair_ends: ``(num_pairs,)``; none for pairs that are not in ``pairs``.
    """

    occurrences: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    pairs: np.ndarray
    pair_occurrences: np.ndarray
    pair_begins: np.ndarray
    pair_ends: np.ndarray

    def save(self, folder: Path) -> None:
        """Write the file whole or not at all."""
        write_aside(folder / COUNTS_FILE, lambda path: save_file(vars(self), path))

    @classmethod
    def load(cls, folder: Path) -> "UnitCounts | None":
        """Read the file of `save`; None if there is none. Raises ValueError if it is damaged."""
        return load_counts(cls, folder / COUNTS_FILE, load_file)


def load_counts(kind: Callable[..., Kind], path: Path, load_file: Callable[[Path], dict]) -> Kind | None:
    """What a run's folder keeps of its text; None if the file is not there. Raises ValueError if it is damaged."""
    try:
        return kind(**load_file(path)) if path.exists() else None
    except (SafetensorError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, and the text is counted again") from error


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
        self.edge_scores = EdgeScores(counts, begins=skew < 0, device=device)

    def __call__(self, input_ids: Tensor) -> Tensor:
        """From ``(batch, seq_len)`` int64 token ids to ``(batch, seq_len - 1)`` float32 scores in nats.

        A piece that continues a word hardly ever begins a unit, so that words tend to stay whole. The model's span
        constraints make sure that they do.
        """
        position = torch.arange(input_ids.shape[1] - 1, device=input_ids.device)
        return self.ends[input_ids[:, :-1]] + self.begins[input_ids[:, 1:]] - self.skew * position


class EdgeScores:
    """How much rarer a unit ends after a pair of tokens than after any token; or begins before it than before any.

    A pair of few occurrences is judged by its tokens, whose odds are multiplied.

    Args:
        begins: whether constituents are judged by where they begin, which suits languages that branch to the left.
    """

    def __init__(self, counts: UnitCounts, begins: bool = False, device: torch.device | str = "cpu"):
        self.begins, self.size = begins, len(counts.occurrences)
        of_token, of_pair = (counts.begins, counts.pair_begins) if begins else (counts.ends, counts.pair_ends)
        self.share = float((of_token.sum() + 1) / (counts.occurrences.sum() + 2))

        def log_odds(part: np.ndarray, whole: np.ndarray) -> Tensor:
            shares = (part + PRIOR * self.share) / (whole + PRIOR)
            return torch.from_numpy(np.log(shares) - np.log1p(-shares)).float().to(device)

        others = counts.pairs % self.size if begins else counts.pairs // self.size
        of_others = (np.bincount(others, part, self.size) for part in (of_pair, counts.pair_occurrences))
        self.at_edge, self.beside_it = log_odds(of_token, counts.occurrences), log_odds(*of_others)
        # The last one is above every pair, so that a search ends at one of them.
        listed = ((counts.pairs, self.size**2), (counts.pair_occurrences, 0), (of_pair, 0))
        lists = (torch.from_numpy(np.append(part, last)).to(device) for part, last in listed)
        self.pairs, self.occurrences, self.at_edges = lists

    def __call__(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """The scores of spans, as `span_posteriors` takes them.

        Args:
            input_ids: ``(batch, seq_len)`` long.
            lengths: ``(batch,)`` long.

        Returns:
            ``(batch, seq_len, seq_len + 1)`` float32 nats, at most 0, and 0 at the edge of the sentence.
        """
        size, device = input_ids.shape[1], input_ids.device
        first = torch.arange(size, device=device)[:, None]
        edge = first.expand(-1, size + 1) if self.begins else first + torch.arange(-1, size, device=device)
        is_inside = edge > 0 if self.begins else edge < lengths[:, None, None] - 1
        return self._of_tokens(input_ids)[:, edge.clamp(0, size - 1)] * is_inside

    def _of_tokens(self, input_ids: Tensor) -> Tensor:
        """``(batch, seq_len)``, for constituents that end (begin) with each token; 0 for the first (last)."""
        first, second = input_ids[:, :-1], input_ids[:, 1:]
        edge, beside = (first, second) if self.begins else (second, first)
        of_two = (self.at_edge[edge] + self.beside_it[beside] - math.log(self.share / (1 - self.share))).sigmoid()
        keys = first * self.size + second
        place = torch.searchsorted(self.pairs, keys)
        is_listed = self.pairs[place] == keys
        occurrences, at_edges = (part[place] * is_listed for part in (self.occurrences, self.at_edges))
        share = (at_edges + PRIOR * of_two) / (occurrences + PRIOR)
        return F.pad((share / self.share).log().clamp(max=0), (0, 1) if self.begins else (1, 0))


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
    singles = (np.bincount(part, minlength=vocab_size) for part in (tokens, tokens[begins], tokens[ends]))
    return UnitCounts(*singles, *count_pairs(*(part[:COUNTED_TOKENS] for part in (tokens, begins, ends)), vocab_size))


def count_pairs(tokens: np.ndarray, begins: np.ndarray, ends: np.ndarray, vocab_size: int) -> list[np.ndarray]:
    """The pairs of `UnitCounts` and how often they occur, begin a unit and end one."""
    pairs = tokens[:-1].astype(np.int64) * vocab_size + tokens[1:]
    is_within = ~begins[1:]
    found, occurrences = np.unique(pairs[is_within], return_counts=True)
    found, occurrences = (part[occurrences >= RAREST_PAIR] for part in (found, occurrences))
    counts = []
    for chosen in (begins[:-1], ends[1:]):
        some, number = np.unique(pairs[is_within & chosen], return_counts=True)
        _, places, rows = np.intersect1d(found, some, assume_unique=True, return_indices=True)
        counts.append(np.zeros_like(occurrences))
        counts[-1][places] = number[rows]
    return [found, occurrences, *counts]
