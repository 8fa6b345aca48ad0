"""What the first word of a constituent tells of its tree: whether all that follows belongs together.

A parser that learnt from raw text joins too early: ``((to (buy shares)) (of the bank))``. One such decision is often
wrong, but those about one word are mostly right together: what follows *to* is mostly one constituent, as in ``(to
((buy shares) (of the bank)))``, and *the* is mostly part of a shorter one. So the odds that a sentence gives are
multiplied by those of the word, in relation to those of all words, which the sentence's contain already.

Words that are seldom apart are determiners, and what begins with one is an object: ``((to buy) (the shares))`` is ``(to
(buy (the shares)))``, unless the sentence is sure of the first tree.

Trees are over words, ``(batch, num_words - 1, 2)`` long, as of `consensus.minimum_risk_trees`. In a constituent of
three parts, the first of them a word, this word is apart if the other two are a constituent, and joined if the first
two are.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

PRIOR_COUNT = 5.0  # added to each word's, with the odds of all words together
SMOOTHING = 0.001  # added to posteriors
MOST_OF_DETERMINERS, BEFORE_OBJECTS = 1 / 3, 300.0  # odds


class FirstWords:
    """For each word the odds that it is apart, counted in trees, as a ratio to the odds of all words together. Words
    are known by their first pieces. A third part of one word is not counted: in ``(the (new car))`` *the* is apart.

    Args:
        vocab_size: the number of pieces.
        trees: trees, and the first pieces of their words, as for a call.

    Attributes:
        odds: ``(vocab_size,)`` float32; 1 for words that are never seen.
    """

    def __init__(self, vocab_size: int, trees: Iterable[tuple[Tensor, Tensor]]):
        apart, joined = torch.zeros(2, vocab_size)
        for spans, pieces in trees:
            first, last = spans.unbind(-1)
            is_long = last > _splits(spans) + 1
            for counts, found, words in ((apart, are_apart(spans), first - 1), (joined, are_joined(spans), first)):
                of_words = pieces.gather(1, words.clamp(min=0))
                counts += torch.bincount(of_words[found & is_long], minlength=vocab_size)
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
            odds, of_third = self.odds[pieces[row, first]], self.odds[pieces[row, split + 1]]
            is_pair = (split == first + 1) & (last > split + 1)
            has_object = is_pair & (of_third < MOST_OF_DETERMINERS) & (odds >= MOST_OF_DETERMINERS)
            is_wrong = odds * torch.where(has_object, BEFORE_OBJECTS, 1.0) * apart > joined
            if not is_wrong.any():
                return spans
            row, split, first, last = (tensor[is_wrong] for tensor in (row, split, first, last))
            spans[row, first] = torch.stack([first, last], -1)
            spans[row, split] = torch.stack([first + 1, last], -1)


def are_apart(spans: Tensor) -> Tensor:
    """``(batch, num_words - 1)`` bool: whether the constituent at each split point is what follows a word that is
    apart: both together are a constituent."""
    first, last = spans.unbind(-1)
    whole = spans.gather(1, (first - 1).clamp(min=0)[..., None].expand_as(spans))  # what splits in front of it
    return (first > 0) & (whole == torch.stack([first - 1, last], -1)).all(-1)


def are_joined(spans: Tensor) -> Tensor:
    """``(batch, num_words - 1)`` bool: whether the left part of the constituent at each split point begins with a word
    that is a part of it."""
    first, split = spans[..., 0], _splits(spans)
    of_first = spans.gather(1, first.clamp(min=0)[..., None].expand_as(spans))  # what splits behind the first word
    return (first >= 0) & (split > first) & (of_first == torch.stack([first, split], -1)).all(-1)


def _splits(spans: Tensor) -> Tensor:
    return torch.arange(spans.shape[1], device=spans.device).expand(spans.shape[:2])
