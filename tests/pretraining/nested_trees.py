"""Binary trees as nested pairs, whose leaves are words, and these are lists of pieces; and the same as a `WordTree`."""

from hypothesis import strategies as st

from pretraining.substitution import WordTree

WORDS = st.lists(st.integers(1, 99), min_size=1, max_size=3)
NESTED = st.recursive(WORDS, lambda below: st.tuples(below, below), max_leaves=9)


def flat(tree) -> WordTree:
    if isinstance(tree, list):
        return WordTree([tree], [])
    left, right = map(flat, tree)
    length, last = len(left.words), len(left.words) + len(right.words) - 1
    moved = [(first + length, end + length) for first, end in right.spans]
    return WordTree(left.words + right.words, [*left.spans, (0, last), *moved])
