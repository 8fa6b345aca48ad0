"""How sure a parser is of its constituents: their probabilities under its split scores, calibrated on a treebank."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.tree_shape import FlatTree
from tokenization_fast_r2d2.trees import BinaryTree, Span

MOST = 1 - 1e-12  # of probabilities whose log-odds are taken
LOWEST = -600.0  # of scores below the highest, so that no weight is 0


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
    weights = np.exp(np.maximum(scores.astype(np.float64) - scores.max(initial=0), LOWEST)).tolist()
    return np.array([_probability(weights, first, last) for first, last in spans])


def _probability(weights: list[float], first: int, last: int) -> float:
    """Of one constituent; ``weights`` are the exponentials of the scores. Plain numbers are faster than arrays here."""
    inside = sum(weights[first:last])
    if first == 0:
        return weights[last] / (weights[last] + inside) if last < len(weights) else 1.0
    left = weights[first - 1]
    if last == len(weights):
        return left / (left + inside)
    right = weights[last]
    return (left * right / (right + inside) + right * left / (left + inside)) / (left + right + inside)


class Calibration(NamedTuple):
    """How log-odds are changed, so that confidences are how often a parser is right (Platt, 1999).

    Attributes:
        scale: what they are multiplied by.
        bias: what is added.
        pair: what is added for a constituent of two words: where gold trees are flat, these go wrong most.
        length: what is added for each nat of ``log(words)``.
    """

    scale: float = 1.0
    bias: float = 0.0
    pair: float = 0.0
    length: float = 0.0

    @classmethod
    def of(cls, config: Any) -> "Calibration":
        """The fields ``confidence_...`` of a `FastR2D2Config`."""
        return cls(*(getattr(config, f"confidence_{name}") for name in cls._fields))

    def __call__(self, probabilities: np.ndarray, num_words: np.ndarray) -> np.ndarray:
        """The probabilities of constituents of so many words, calibrated; those of 1 stay 1."""
        odds = features(probabilities, num_words) @ [self.scale, self.pair, self.length] + self.bias
        return np.where(probabilities < MOST, 1 / (1 + np.exp(-odds)), 1.0)


def features(probabilities: np.ndarray, num_words: np.ndarray) -> np.ndarray:
    """``(constituents, 3)``: what `Calibration` weighs by ``scale``, ``pair`` and ``length``."""
    return np.stack([log_odds(probabilities), num_words == 2, np.log(num_words)], axis=-1)


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """``log(p / (1 - p))``, at most 28 either way."""
    clipped = np.clip(probabilities, 1 - MOST, MOST)
    return np.log(clipped) - np.log1p(-clipped)


def confidences(
    read: ReadSentence, words: Sequence[int], word_scores: np.ndarray, spans: Sequence[Span], calibration: Calibration
) -> np.ndarray:
    """How sure a parser is of the constituents of a sentence.

    Args:
        read: the sentence, whose ``words`` may be pieces.
        words: ``(read.words,)``, the word number of each.
        word_scores: ``(words - 1,)``, the scores of the split points between words.
        spans: of the constituents over its leaves, which are words and marks.
        calibration: of the parser.

    Returns:
        ``(spans,)`` float32. A constituent is as sure as its words without marks. What every tree has is 1: the whole
        sentence, a word with its marks, and what lies within a word.
    """
    found = np.ones(len(spans), np.float32)
    of_leaves = [-1, *read.in_text_order(list(words), [-1] * len(read.marks))]
    before = list(accumulate(of_leaves, max))  # the last word before each leaf, and before the end; -1 for none
    over_words = [(before[first] + 1, before[last + 1]) for first, last in spans]
    rows = [row for row, (first, last) in enumerate(over_words) if first < last]
    if rows:
        of_words = [over_words[row] for row in rows]
        num_words = np.array([last - first + 1 for first, last in of_words])
        found[rows] = calibration(split_probabilities(word_scores, of_words), num_words)
    return found


def flat_tree(tree: BinaryTree, confidences: np.ndarray, min_confidence: float) -> FlatTree:
    """The tree without the constituents that are less sure.

    Raises:
        ValueError: if ``min_confidence`` is not from 0 to 1.
    """
    return tree.flat(confidences >= check_min_confidence(min_confidence))


def check_min_confidence(value: float) -> float:
    """The value, if it is from 0 to 1; else a ValueError."""
    if not 0 <= value <= 1:
        raise ValueError(f"min_confidence must be from 0 to 1, got {value!r}")
    return value
