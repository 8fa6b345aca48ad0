"""What a coordinator joins, against a definition on nested trees."""

from hypothesis import given
from hypothesis import strategies as st
from nested_trees import batch_of, is_word

from pretraining.conjuncts import join_conjuncts

AND, OTHER = [1], [2]
TREES = st.recursive(st.sampled_from([AND, OTHER]), lambda below: st.tuples(below, below), max_leaves=9)


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


@given(st.lists(TREES, min_size=1, max_size=3))
def test_trees_are_those_of_the_definition(trees):
    spans, pieces = batch_of(trees)
    before = spans.clone()
    expected, _ = batch_of(map(join, trees))
    assert join_conjuncts(spans, pieces == AND[0]).equal(expected) and spans.equal(before)


def test_a_conjunct_is_joined_with_what_stands_in_front():
    john, mary, slept, well = [2], [3], [4], [5]
    spans, pieces = batch_of([(john, ((AND, mary), (slept, well)))])
    expected, _ = batch_of([((john, (AND, mary)), (slept, well))])
    assert join_conjuncts(spans, pieces == AND[0]).equal(expected)
    spans, pieces = batch_of([((AND, mary), (slept, well))])  # a coordinator that has nothing in front
    assert join_conjuncts(spans, pieces == AND[0]).equal(spans)
