"""What the first word of a constituent tells of its tree: whether all that follows belongs together.

A parser that learnt from raw text joins too early: ``((to (buy shares)) (of the bank))``. One such decision is often
wrong, but those about one word are mostly right together: what follows *to* is mostly one constituent, as in ``(to
((buy shares) (of the bank)))``, and *the* is mostly part of a shorter one. So the odds that a sentence gives are
multiplied by those of the word, in relation to those of all words, which the sentence's contain already.

Trees are over words, ``(batch, num_words - 1, 2)`` long, as of `consensus.minimum_risk_trees`. In a constituent of
three parts, the first of them a word, this word is apart if the other two are a constituent, and joined if the first
two are.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

PRIOR_COUNT = 5.0  # added to each word's, with the odds of all words together
SMOOTHING = 0.001  # added to posteriors


class FirstWords:
    """For each word the odds that it is apart, counted in trees, as a ratio to the odds of all words together. Words
    are known by their first pieces.

    Args:
        vocab_size: the number of pieces.
        trees: trees, and the first pieces of their words, as for a call.

    Attributes:
        odds: ``(vocab_size,)`` float32; 1 for words that are never seen.
    """

    def __init__(self, vocab_size: int, trees: Iterable[tuple[Tensor, Tensor]]):
        apart, joined = torch.zeros(2, vocab_size)
        for spans, pieces in trees:
            first = pieces.gather(1, spans[..., 0].clamp(min=0))
            apart += torch.bincount(first[are_apart(spans)], minlength=vocab_size)
            joined += torch.bincount(first[are_joined(spans)], minlength=vocab_size)
        share = (apart.sum() + 1) / (apart.sum() + joined.sum() + 2)
        self.odds = (apart / share + PRIOR_COUNT) / (joined / (1 - share) + PRIOR_COUNT)

    def __call__(self, spans: Tensor, posteriors: Tensor, pieces: Tensor) -> Tensor:
        """Trees in which joined words are apart where that is more probable, until none is left.

        Args:
            spans: the trees.
            posteriors: ``(batch, num_words, num_words + 1)``, of spans by first word and width, as in `consensus`.
            pieces: ``(batch, num_words)`` long, the first piece of each word.
        """
        spans = spans.clone()
        while True:
            row, split = are_joined(spans).nonzero(as_tuple=True)
            first, last = spans[row, split].unbind(-1)
            apart = posteriors[row, first + 1, last - first] + SMOOTHING
            joined = posteriors[row, first, split - first + 1] + SMOOTHING
            is_wrong = self.odds[pieces[row, first]] * apart > joined
            if not is_wrong.any():
                return spans
            row, split, first, last = (tensor[is_wrong] for tensor in (row, split, first, last))
            spans[row, first] = torch.stack([first, last], -1)
            spans[row, split] = torch.stack([first + 1, last], -1)


def are_apart(spans: Tensor) -> Tensor:
    """``(batch, num_words - 1)`` bool: whether the constituent at each split point is a word and a constituent."""
    first, last = spans.unbind(-1)
    return (first == _splits(spans)) & (last > first + 1)


def are_joined(spans: Tensor) -> Tensor:
    """``(batch, num_words - 1)`` bool: whether the left part of the constituent at each split point begins with a word
    that is a part of it."""
    first, split = spans[..., 0], _splits(spans)
    of_first = spans.gather(1, first.clamp(min=0)[..., None].expand_as(spans))  # what splits behind the first word
    return (first >= 0) & (split > first) & (of_first == torch.stack([first, split], -1)).all(-1)


def _splits(spans: Tensor) -> Tensor:
    return torch.arange(spans.shape[1], device=spans.device).expand(spans.shape[:2])
