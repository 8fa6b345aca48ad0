"""What the first word of a constituent tells of its tree: whether all that follows belongs together.

A parser that learnt from raw text joins too early: ``((to (buy shares)) (of the bank))``. One such decision is often
wrong, but those about one word are mostly right together: what follows *to* is mostly one constituent, as in ``(to
((buy shares) (of the bank)))``, and *the* is mostly part of a shorter one. So the odds that a sentence gives are
multiplied by those of the word.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from pretraining.substitution import WordTree, width

PRIOR_COUNT = 5.0  # of a word that is never seen, with the odds of all words together
SMOOTHING = 0.001  # added to posteriors


class FirstWords:
    """For each word the odds that what follows it is one constituent, counted in trees.

    In a constituent of three parts, the first of them a word, either the last two belong together, or the first two.
    """

    def __init__(self, trees: Iterable[WordTree]):
        self.apart: Counter[tuple[int, ...]] = Counter()  # (word (part part))
        self.joined: Counter[tuple[int, ...]] = Counter()  # ((word part) part)
        for tree in trees:
            for split, span in enumerate(tree.spans):
                word = tuple(tree.words[span[0]])
                if split == span[0]:
                    self.apart[word] += width(span) > 2
                elif splits_off_its_first_word(tree, split):
                    self.joined[word] += 1
        apart, joined = self.apart.total() + 1, self.joined.total() + 1
        self.share = apart / (apart + joined)

    def odds(self, word: tuple[int, ...]) -> float:
        return (self.apart[word] + PRIOR_COUNT * self.share) / (self.joined[word] + PRIOR_COUNT * (1 - self.share))

    def __call__(self, tree: WordTree, posteriors: np.ndarray) -> WordTree:
        """The tree in which a first word stands before all else where that is more probable.

        Args:
            tree: a tree under the posteriors.
            posteriors: ``(words, words + 1)``, of spans by first word and width, as in `consensus`.
        """
        tree = WordTree(tree.words, list(tree.spans))
        for split in sorted(range(len(tree.spans)), key=lambda split: -width(tree.spans[split])):
            while splits_off_its_first_word(tree, split) and self._is_apart(tree, split, posteriors):
                first, last = tree.spans[split]
                tree.spans[first], tree.spans[split] = (first, last), (first + 1, last)
        return tree

    def _is_apart(self, tree: WordTree, split: int, posteriors: np.ndarray) -> bool:
        first, last = tree.spans[split]
        apart = posteriors[first + 1, last - first] + SMOOTHING
        joined = posteriors[first, split - first + 1] + SMOOTHING
        return self.odds(tuple(tree.words[first])) * apart > joined


def splits_off_its_first_word(tree: WordTree, split: int) -> bool:
    """Whether the left part of the constituent that splits there is a word and something else."""
    first, _ = tree.spans[split]
    return split > first and tree.spans[first] == (first, split)
