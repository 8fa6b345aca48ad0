"""One tree from many: the posteriors of spans, averaged over parsers, and the tree of minimum risk under them.

The value of a tree is the sum of its spans' posteriors. The tree of the greatest value shares the most constituents, in
expectation, with a tree drawn from one of the parsers (Goodman, 1996, cmp-lg/9605013; for several systems: Shayegh et
al., 2024, 2310.01717).

Posteriors are ``(batch, num_words, num_words + 1)`` float: ``[row, first, width]`` is the probability that the words
``first ... first + width - 1`` are a constituent. It is 0 for widths below 2.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .labelled_trees import Span


def span_posteriors(split_scores: Tensor, lengths: Tensor) -> Tensor:
    """Posteriors of a parser's spans. It draws trees from the top down: a span splits at one of its split points,
    with the softmax of their scores as probabilities.

    Args:
        split_scores: ``(batch, num_words - 1)`` float, the scores of the split points between words.
        lengths: ``(batch,)`` long, the number of words of each sentence, at least 1.

    Returns:
        Posteriors, in the dtype of ``split_scores``.
    """
    batch, size = split_scores.shape[0], split_scores.shape[1] + 1
    by_first = split_scores.new_zeros(batch, size, size + 1)
    by_last = torch.zeros_like(by_first)  # the same spans, indexed by their last word
    by_first[torch.arange(batch), 0, lengths] = 1
    for width in range(size, 1, -1):
        starts = size - width + 1
        visits = by_first[:, :starts, width] + by_last[:, width - 1 :, width]
        by_first[:, :starts, width] = visits
        used = visits[..., None] * split_scores.unfold(1, width - 1, 1).softmax(-1)  # (batch, starts, split points)
        by_first[:, :starts, 1:width] += used
        by_last[:, width - 1 :, 1:width] += used.flip(-1)
    by_first[:, :, :2] = 0
    return by_first


def given_posteriors(probabilities: Sequence[dict[Span, float]], num_words: int) -> Tensor:
    """Posteriors of charts, and of trees, whose spans have 1.

    Args:
        probabilities: for each sentence those of its spans of two or more words, as first and last word, inclusive.
        num_words: the number of words of the longest sentence.

    Returns:
        Posteriors, float32.
    """
    posteriors = torch.zeros(len(probabilities), num_words, num_words + 1)
    for row, of_spans in enumerate(probabilities):
        for (first, last), probability in of_spans.items():
            posteriors[row, first, last - first + 1] = probability
    return posteriors


def minimum_risk_trees(posteriors: Tensor, lengths: Tensor) -> Tensor:
    """The binary trees with the greatest sums of posteriors. Of equal trees, the one that splits further left wins.

    Args:
        posteriors: of any device; the result is on the CPU.
        lengths: ``(batch,)`` long, the number of words of each sentence.

    Returns:
        ``(batch, num_words - 1, 2)`` long: for each split point, the first and last word of the constituent that splits
        there; -1 past the sentence.
    """
    batch, size = posteriors.shape[:2]
    by_first, by_last = torch.zeros_like(posteriors), torch.zeros_like(posteriors)  # values of the best trees
    choices = [torch.empty(0)] * (size + 1)  # for each width (batch, starts): the words of the left part, minus 1
    for width in range(2, size + 1):
        starts = size - width + 1
        below = by_first[:, :starts, 1:width] + by_last[:, width - 1 :, 1:width].flip(-1)
        best, choices[width] = below.max(-1)
        by_first[:, :starts, width] = by_last[:, width - 1 :, width] = best + posteriors[:, :starts, width]
    spans = torch.full((batch, size - 1, 2), -1)
    is_used = torch.zeros(batch, size, size + 1, dtype=torch.bool)
    is_used[torch.arange(batch), 0, lengths.cpu()] = True
    for width in range(size, 1, -1):
        row, first = is_used[:, :, width].nonzero(as_tuple=True)
        split = first + choices[width].cpu()[row, first]
        spans[row, split] = torch.stack([first, first + width - 1], dim=-1)
        is_used[row, first, split - first + 1] = True
        is_used[row, split + 1, first + width - 1 - split] = True
    return spans
