"""Binary trees as nested pairs, whose leaves are words, and these are lists of pieces; and the same as a `WordTree`."""

import torch
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from pretraining.substitution import WordTree

WORDS = st.lists(st.integers(1, 99), min_size=1, max_size=3)
NESTED = st.recursive(WORDS, lambda below: st.tuples(below, below), max_leaves=9)


def is_word(tree) -> bool:
    return isinstance(tree, list)


def flat(tree) -> WordTree:
    if is_word(tree):
        return WordTree([tree], [])
    left, right = map(flat, tree)
    length, last = len(left.words), len(left.words) + len(right.words) - 1
    moved = [(first + length, end + length) for first, end in right.spans]
    return WordTree(left.words + right.words, [*left.spans, (0, last), *moved])


def batch_of(trees) -> tuple[torch.Tensor, torch.Tensor]:
    """Spans, padded with -1, and the first pieces of words, padded with 0."""
    rows = list(map(flat, trees))
    spans = [torch.tensor(row.spans, dtype=torch.long).reshape(-1, 2) for row in rows]
    pieces = [torch.tensor([word[0] for word in row.words]) for row in rows]
    return pad_sequence(spans, batch_first=True, padding_value=-1), pad_sequence(pieces, batch_first=True)
