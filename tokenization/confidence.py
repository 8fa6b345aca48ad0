"""How sure a parser is of its constituents: their probabilities under its split scores, calibrated on a treebank.

A treebank's trees are flatter than binary ones, and words tell where: in ``(a (new car))``, what follows the determiner
is no constituent of most treebanks.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from .reading import ReadSentence
from .trees import Span

MOST = 1 - 1e-12  # of probabilities whose log-odds are taken
BEYOND = 1000.0  # nats by which an end of the sentence is above all scores, more than exponentials can hold


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
    end = BEYOND + 2 * np.abs(scores).max(initial=0.0)
    padded = np.concatenate([[end], scores, [end]])
    places = np.array(spans, int).reshape(-1, 2)
    inside = np.logaddexp.reduceat(padded[1:], places.ravel())[::2]
    left, right = padded[places[:, 0]], padded[places[:, 1] + 1]
    over_right, over_left = np.logaddexp(inside, right), np.logaddexp(inside, left)
    both = left + right - np.logaddexp(left, over_right)  # in logs, since a large bonus would make weights 0
    found = np.exp(both - over_right) + np.exp(both - over_left)
    return np.where(places[:, 1] - places[:, 0] == len(scores), 1.0, found)


class Evidence(NamedTuple):
    """What the confidences of a sentence's constituents depend on.

    Attributes:
        rows: which of the given spans they are. Those that every tree has are left out: a word with its marks, and what
            lies within a word.
        probabilities: ``(constituents,)`` float64, from `split_probabilities`.
        num_words: ``(constituents,)`` long.
        pieces: ``(constituents, 4)`` long, the numbers of the first piece, the last, and those before and after. At an
            end of the sentence the last two lead to a row past all pieces, as -1 or as their number.
    """

    rows: list[int]
    probabilities: np.ndarray
    num_words: np.ndarray
    pieces: np.ndarray

    def features(self) -> np.ndarray:
        """``(constituents, 3)``: what `Calibration` weighs by ``scale``, ``pair`` and ``length``."""
        return np.stack([log_odds(self.probabilities), self.num_words == 2, np.log(self.num_words)], axis=-1)

    def of_pieces(self, values: np.ndarray) -> np.ndarray:
        """From ``(pieces, size)`` to ``(constituents, 4, size)``, the values of their ``pieces``; 0 for none."""
        return np.concatenate([values, np.zeros_like(values[:1])])[self.pieces]


class Calibration(NamedTuple):
    """How log-odds are changed, so that confidences are how often a parser is right (Platt, 1999). What words add is in
    the parser's weights (`TopDownParser.word_odds`).

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

    def __call__(self, evidence: Evidence, word_odds: np.ndarray) -> np.ndarray:
        """The confidences of a sentence's constituents, ``(constituents,)`` float64. Probabilities of 0 and 1 stay.

        Args:
            word_odds: ``(pieces, 4)``, what each piece of the sentence adds by its place.
        """
        of_words = evidence.of_pieces(word_odds).diagonal(axis1=1, axis2=2).sum(-1)
        odds = evidence.features() @ [self.scale, self.pair, self.length] + self.bias + of_words
        found = np.where(evidence.probabilities < MOST, 1 / (1 + np.exp(-odds)), 1.0)
        return np.where(evidence.probabilities > 0, found, 0.0)


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """``log(p / (1 - p))``, at most 28 either way."""
    clipped = np.clip(probabilities, 1 - MOST, MOST)
    return np.log(clipped) - np.log1p(-clipped)


def evidence_of(read: ReadSentence, words: Sequence[int], word_scores: np.ndarray, spans: Sequence[Span]) -> Evidence:
    """What tells how sure a parser is of the constituents of a sentence, by their words without the marks.

    Args:
        read: the sentence, whose ``words`` may be pieces.
        words: ``(read.words,)``, the word number of each.
        word_scores: ``(words - 1,)``, the scores of the split points between words.
        spans: of the constituents over its leaves, which are words and marks, or pieces and marks.
    """
    of_leaves = [-1, *read.in_text_order(list(words), [-1] * len(read.marks))]
    before = list(accumulate(of_leaves, max))  # the last word before each leaf, and before the end; -1 for none
    goes_on = [word == last != -1 for last, word in pairwise([*of_leaves, -1])]  # whether a leaf begins within a word
    over_words = [(before[first] + (not goes_on[first]), before[last + 1]) for first, last in spans]
    are_torn = [goes_on[first] or goes_on[last + 1] for first, last in spans]  # no tree over words has these
    rows = [
        row for row, (first, last) in enumerate(spans)  # within a word all trees agree, but not about its marks
        if over_words[row][0] < over_words[row][1] or (are_torn[row] and -1 in of_leaves[first + 1 : last + 2])
    ]  # fmt: skip
    of_words = [over_words[row] for row in rows]
    firsts, lasts = np.array(of_words, int).reshape(-1, 2).T
    starts = np.searchsorted([words[word] for word in read.word_ids], np.arange(len(word_scores) + 2))  # first pieces
    begin, end = starts[firsts], starts[lasts + 1]
    pieces = np.stack([begin, end - 1, begin - 1, end], axis=-1)
    probabilities = np.where([are_torn[row] for row in rows], 0.0, split_probabilities(word_scores, of_words))
    return Evidence(rows, probabilities, lasts - firsts + 1, pieces)


def confidences(evidence: Evidence, num_spans: int, calibration: Calibration, word_odds: np.ndarray) -> np.ndarray:
    """How sure a parser is of each of ``num_spans`` constituents, float32. What every tree has is 1."""
    found = np.ones(num_spans, np.float32)
    found[evidence.rows] = calibration(evidence, word_odds)
    return found
