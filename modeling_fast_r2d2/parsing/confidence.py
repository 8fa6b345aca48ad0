"""How sure a parser is of its constituents: their probabilities under its split scores, calibrated on a treebank."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.trees import Span

MOST = 1 - 1e-12  # of probabilities whose log-odds are taken


def split_probabilities(scores: np.ndarray, spans: Sequence[Span]) -> np.ndarray:
    """How probable constituents are where every span splits at point ``k`` with probability ``softmax(scores)[k]``.

    This is the parser's distribution over trees (paper, Section 3.2): the trees of its scores with Gumbel noise. There
    a span is a constituent if the two split points at its ends come before all within it, which has a closed form.

    Args:
        scores: ``(leaves - 1,)``, one per split point, finite.
        spans: the first and last leaf of each, inclusive; ``first < last``.

    Returns:
        ``(spans,)`` float64, from 0 to 1. The whole sentence has 1.
    """
    scores = scores.astype(np.float64)
    first, last = np.array(spans, dtype=int).reshape(-1, 2).T[:, :, None]
    points = np.arange(len(scores))
    inside = np.where((first <= points) & (points < last), scores, -np.inf)
    inside = np.logaddexp.reduce(inside, axis=1, initial=-np.inf)
    ends = np.concatenate([[np.inf], scores, [np.inf]])  # the sentence's own ends always come first
    left, right = ends[first[:, 0]], ends[last[:, 0] + 1]
    left_then_right = _first(left, np.logaddexp(inside, right)) * _first(right, inside)
    return left_then_right + _first(right, np.logaddexp(inside, left)) * _first(left, inside)


def _first(score: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The probability that a score comes before others, whose exponentials sum to that of ``others``. Of two infinite
    scores each comes first in half of the cases."""
    with np.errstate(invalid="ignore"):
        difference = np.where(score == others, 0.0, score - others)
    return 1 / (1 + np.exp(-np.clip(difference, -700, 700)))


def calibrated(probabilities: np.ndarray, scale: float, bias: float) -> np.ndarray:
    """Probabilities whose log-odds are scaled and moved (Platt, 1999); those of 1 stay 1."""
    return np.where(probabilities < MOST, 1 / (1 + np.exp(-(scale * log_odds(probabilities) + bias))), 1.0)


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """``log(p / (1 - p))``, at most 28 either way."""
    clipped = np.clip(probabilities, 1 - MOST, MOST)
    return np.log(clipped) - np.log1p(-clipped)


def confidences(
    read: ReadSentence, words: Sequence[int], word_scores: np.ndarray, spans: Sequence[Span], scale: float, bias: float
) -> np.ndarray:
    """How sure a parser is of the constituents of a sentence.

    Args:
        read: the sentence, whose ``words`` may be pieces.
        words: ``(read.words,)``, the word number of each.
        word_scores: ``(words - 1,)``, the scores of the split points between words.
        spans: of the constituents over its leaves, which are words and marks.
        scale, bias: see `calibrated`.

    Returns:
        ``(spans,)`` float32. A constituent is as sure as its words without marks. What every tree has is 1: the whole
        sentence, a word with its marks, and what lies within a word.
    """
    found = np.ones(len(spans), np.float32)
    leaves = [number + bisect_right(read.places, number) for number in range(len(words))]
    inner = [(bisect_left(leaves, first), bisect_right(leaves, last) - 1) for first, last in spans]
    over_words = [(words[first], words[last]) if first <= last else (0, 0) for first, last in inner]
    rows = [row for row, (first, last) in enumerate(over_words) if first < last]
    if rows:
        probabilities = split_probabilities(word_scores, [over_words[row] for row in rows])
        found[rows] = calibrated(probabilities, scale, bias)
    return found
