"""What a coordinator joins: *and Mary* needs someone in front, so ``(John ((and Mary) slept))`` is ``((John (and Mary))
slept)``.

A parser that learnt from raw text finds such pairs at the end of a sentence, but takes the verb into them where one
follows. And it joins them with too much, though both parts should be alike: ``((sold (a car)) (and (a house)))`` is
``(sold ((a car) (and (a house))))``.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pretraining.right_edges import attach, splits_to_the_right
from pretraining.substitution import WordTree, constituent_vectors
from tokenization_fast_r2d2.trees import Span


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


def join_alike(model, trees: Sequence[WordTree], are_coordinators: Sequence[Sequence[bool]]) -> list[WordTree]:
    """Trees in which what a coordinator joins is as much alike as possible, by the model's vectors.

    Args:
        model: a `FastR2D2Model` in evaluation, on the CPU.
        are_coordinators: for each tree and word, whether it joins equals; what is past a sentence does not count.
    """
    if not any(map(any, are_coordinators)):
        return list(trees)
    phrases = iter(standardised(constituent_vectors(model, trees)))
    words, found = standardised(model.embeddings.weight.detach().float().numpy()), []
    for tree, are_here in zip(trees, are_coordinators, strict=True):
        of_phrases, spans = {span: next(phrases) for span in tree.spans}, list(tree.spans)
        of_words = {(place, place): words[word[0]] for place, word in enumerate(tree.words)}
        for split, is_coordinator in enumerate(are_here[1 : len(tree.words)]):
            if is_coordinator:
                _join_alike(spans, split, of_phrases, of_words)
        found.append(tree._replace(spans=spans))
    return found


def _join_alike(spans: list[Span], split: int, *vectors: dict[Span, np.ndarray]) -> None:
    """Attach what a coordinator begins to the part in front that is most like the part behind it; of those equally
    alike, such as words and constituents, to the widest."""
    first, last = spans[split]
    behind = (split + 2, last)
    starts = [first, *(inner + 1 for inner in splits_to_the_right(spans, (first, split)))]
    alike = [sum(of[start, split] @ of[behind] for of in vectors if {(start, split), behind} <= of.keys())
             for start in starts]  # fmt: skip
    attach(spans, split, starts[int(np.argmax(alike))])


def standardised(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1, all features of which have equal weight."""
    rows = (rows - rows.mean(0)) / (rows.std(0) + 1e-6)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-6)
