"""What a coordinator joins: *and Mary* needs someone in front, so ``(John ((and Mary) slept))`` is ``((John (and Mary))
slept)``.

A parser that learnt from raw text finds such pairs at the end of a sentence, but takes the verb into them where one
follows.
"""

import torch
from torch import Tensor


def join_conjuncts(spans: Tensor, are_coordinators: Tensor) -> Tensor:
    """Trees in which a coordinator and what follows it are joined with what stands in front, before anything else is.

    Args:
        spans: ``(batch, num_words - 1, 2)`` long, trees over words as of `consensus.minimum_risk_trees`.
        are_coordinators: ``(batch, num_words)`` bool, the words that join equals.
    """
    spans, splits = spans.clone(), torch.arange(spans.shape[1], device=spans.device)
    while True:
        first, last = spans.unbind(-1)
        last_of_whole = last.gather(1, (first - 1).clamp(min=0))  # of what splits in front of the coordinator
        begin_so = are_coordinators.gather(1, first.clamp(min=0)) & (first > 0)
        are_apart = begin_so & (splits > first) & (last_of_whole == last)
        row = are_apart.any(1).nonzero()[:, 0]
        if not len(row):
            return spans
        split = are_apart[row].int().argmax(1)  # one of each sentence at a time, since one may be within the other
        begin, end, coordinator = spans[row, first[row, split] - 1, 0], last[row, split], first[row, split]
        spans[row, coordinator - 1] = torch.stack([begin, split], -1)
        spans[row, split] = torch.stack([begin, end], -1)
