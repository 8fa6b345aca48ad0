"""What the first word of a constituent tells of its tree: whether all that follows belongs together.

A parser that learnt from raw text joins too early: ``((to (buy shares)) (of the bank))``. One such decision is often
wrong, but those about one word are mostly right together: what follows *to* is mostly one constituent, as in ``(to
((buy shares) (of the bank)))``, and *the* is mostly part of a shorter one. So the odds that a sentence gives are
multiplied by those of the word.

Trees are ``(batch, seq_len - 1, 2)`` long, as of `consensus.minimum_risk_trees`, over pieces or over words. In a
constituent of three parts, the first of them a word, this word is apart if the other two are a constituent, and joined
if the first two are.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

PRIOR_COUNT = 5.0  # of a word that is never seen, with the odds of all words together
SMOOTHING = 0.001  # added to posteriors


class FirstWords(nn.Module):
    """For each word the odds that it is apart. Words are known by their first pieces.

    Attributes:
        odds: ``(vocab_size,)`` float32.
    """

    def __init__(self, vocab_size: int):
        super().__init__()
        self.register_buffer("odds", torch.ones(vocab_size))

    def learn(self, trees: Iterable[tuple[Tensor, Tensor, Tensor]]) -> "FirstWords":
        """Count in trees, given with ``input_ids`` and ``word_ends`` as for a call."""
        apart, joined = torch.zeros(2, len(self.odds)).to(self.odds)
        for spans, input_ids, word_ends in trees:
            (first, _, end), are_apart, are_joined = first_words(spans, word_ends)
            pieces = input_ids.gather(1, first)
            apart += torch.bincount(pieces[are_apart], minlength=len(apart))
            joined += torch.bincount(pieces[are_joined], minlength=len(joined))
        share = (apart.sum() + 1) / (apart.sum() + joined.sum() + 2)
        self.odds.copy_((apart + PRIOR_COUNT * share) / (joined + PRIOR_COUNT * (1 - share)))
        return self

    def forward(self, spans: Tensor, posteriors: Tensor, input_ids: Tensor, word_ends: Tensor) -> Tensor:
        """Trees in which joined words are apart where that is more probable, until none is left.

        Args:
            spans: the trees.
            posteriors: ``(batch, seq_len, seq_len + 1)``, of spans by first token and width, as in `consensus`.
            input_ids: ``(batch, seq_len)`` long.
            word_ends: ``(batch, seq_len)`` long, the last token of the word that begins at each token.
        """
        spans = spans.clone()
        while True:
            (first, last, end), _, are_joined = first_words(spans, word_ends)
            row, split = are_joined.nonzero(as_tuple=True)
            first, last, end = (tensor[row, split] for tensor in (first, last, end))
            apart = posteriors[row, end + 1, last - end] + SMOOTHING
            joined = posteriors[row, first, split - first + 1] + SMOOTHING
            [changed] = (self.odds[input_ids[row, first]] * apart > joined).nonzero(as_tuple=True)
            if not len(changed):
                return spans
            row, split, first, last, end = (tensor[changed] for tensor in (row, split, first, last, end))
            spans[row, end] = torch.stack([first, last], -1)
            spans[row, split] = torch.stack([end + 1, last], -1)


def ends_of_words(are_between: Tensor) -> Tensor:
    """From ``(batch, seq_len - 1)`` bool, the split points that do not lie within a word, to ``word_ends``."""
    last = are_between.shape[1]
    ends = torch.arange(last, device=are_between.device).where(are_between, last)
    ends = torch.cat([ends, ends.new_full((len(ends), 1), last)], 1)
    return ends.flip(1).cummin(1).values.flip(1)


def first_words(spans: Tensor, word_ends: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor, Tensor]:
    """Of the constituent at each split point ``(batch, seq_len - 1)``: its first and last token and the end of its
    first word, long; and whether this word is apart, and whether it is joined, bool."""
    first, last = spans.clamp(min=0).unbind(-1)
    end = word_ends.gather(1, first)
    split = torch.arange(spans.shape[1], device=spans.device).expand_as(first)
    at_end = end.clamp(max=max(spans.shape[1] - 1, 0))
    of_word = spans.gather(1, at_end[..., None].expand_as(spans))  # what splits behind the first word
    are_joined = (spans[..., 0] >= 0) & (split > end) & (of_word == torch.stack([first, split], -1)).all(-1)
    are_apart = (split == end) & (last > word_ends.gather(1, (end + 1).clamp(max=word_ends.shape[1] - 1)))
    return (first, last, end), are_apart, are_joined
