"""What a coordinator joins, against a definition on nested trees."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import flat
from torch.nn.utils.rnn import pad_sequence

from pretraining.conjuncts import join_conjuncts

AND, OTHER = [1], [2]
TREES = st.recursive(st.sampled_from([AND, OTHER]), lambda below: st.tuples(below, below), max_leaves=9)


def is_word(tree) -> bool:
    return isinstance(tree, list)


def first_word(tree):
    return tree if is_word(tree) else first_word(tree[0])


def join(tree):
    """The tree in which no coordinator with its own conjunct is a part of something that begins with it."""
    if is_word(tree):
        return tree
    left, right = tree
    if not is_word(right) and not is_word(right[0]) and first_word(right) == AND:
        return join(((left, right[0]), right[1]))
    return join(left), join(right)


def batch_of(trees) -> tuple[torch.Tensor, torch.Tensor]:
    rows = list(map(flat, trees))
    spans = [torch.tensor(row.spans, dtype=torch.long).reshape(-1, 2) for row in rows]
    are_coordinators = [torch.tensor([word == AND for word in row.words]) for row in rows]
    return pad_sequence(spans, batch_first=True, padding_value=-1), pad_sequence(are_coordinators, batch_first=True)


@given(st.lists(TREES, min_size=1, max_size=3))
def test_trees_are_those_of_the_definition(trees):
    spans, are_coordinators = batch_of(trees)
    before = spans.clone()
    expected, _ = batch_of(map(join, trees))
    assert join_conjuncts(spans, are_coordinators).equal(expected) and spans.equal(before)


def test_a_conjunct_is_joined_with_what_stands_in_front():
    john, mary, slept, well = [2], [3], [4], [5]
    spans, are_coordinators = batch_of([(john, ((AND, mary), (slept, well)))])
    expected, _ = batch_of([((john, (AND, mary)), (slept, well))])
    assert join_conjuncts(spans, are_coordinators).equal(expected)
    first = batch_of([((AND, mary), (slept, well))])  # a coordinator that has nothing in front
    assert join_conjuncts(*first).equal(first[0])
