"""What a coordinator joins, against a definition on nested trees."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import batch_of, flat, is_word
from transformers import AutoModel, AutoTokenizer

from modeling_fast_r2d2 import bundled_checkpoint
from pretraining import conjuncts
from pretraining.conjuncts import join_alike, join_conjuncts

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


def join_all(tree):
    """A coordinator may begin what another one was joined into."""
    return tree if join(tree) == tree else join_all(join(tree))


@given(st.lists(TREES, min_size=1, max_size=3))
def test_trees_are_those_of_the_definition(trees):
    spans, pieces = batch_of(trees)
    before = spans.clone()
    expected, _ = batch_of(map(join_all, trees))
    assert join_conjuncts(spans, pieces == AND[0]).equal(expected) and spans.equal(before)


def test_a_conjunct_is_joined_with_what_stands_in_front():
    john, mary, slept, well = [2], [3], [4], [5]
    spans, pieces = batch_of([(john, ((AND, mary), (slept, well)))])
    expected, _ = batch_of([((john, (AND, mary)), (slept, well))])
    assert join_conjuncts(spans, pieces == AND[0]).equal(expected)
    spans, pieces = batch_of([((AND, mary), (slept, well))])  # a coordinator that has nothing in front
    assert join_conjuncts(spans, pieces == AND[0]).equal(spans)


def words_of(tree) -> list:
    return [tree] if is_word(tree) else [*words_of(tree[0]), *words_of(tree[1])]


def attached(left, conjunct, depth: int):
    return (left[0], attached(left[1], conjunct, depth - 1)) if depth else (left, conjunct)


def alike(tree, split: int, similarity, start: int = 0):
    """The tree in which what splits there is attached to the part in front that is most like the part behind."""
    left, right = tree
    behind = start + len(words_of(left))
    if split < behind - 1:
        return alike(left, split, similarity, start), right
    if split > behind - 1:
        return left, alike(right, split, similarity, behind)
    edge = [left]
    while not is_word(edge[-1]):
        edge.append(edge[-1][1])
    conjunct = (behind + 1, behind + len(words_of(right)) - 1)
    values = [similarity((behind - len(words_of(part)), split), conjunct) for part in edge]
    return attached(left, right, int(np.argmax(values)))


@given(st.lists(TREES, min_size=1, max_size=3), st.integers(0, 99))
def test_conjuncts_are_alike_as_in_the_definition(trees, seed):
    rows, noise = list(map(flat, trees)), np.random.default_rng(seed).normal(size=(9, 9, 4))
    leaves = SimpleNamespace(weight=torch.from_numpy(np.random.default_rng(seed + 1).normal(size=(3, 4))))
    words = conjuncts.standardised(leaves.weight.numpy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conjuncts, "constituent_vectors", lambda _, some: np.array(
            [noise[span] for tree in some for span in tree.spans]).reshape(-1, 4))  # fmt: skip
        patch.setattr(conjuncts, "standardised", lambda rows: words if len(rows) == 3 else rows)
        are_coordinators = [[word == AND for word in row.words] for row in rows]
        found = join_alike(SimpleNamespace(embeddings=leaves), rows, are_coordinators)
    for tree, given_row, row in zip(trees, rows, found, strict=True):
        of = {span: noise[span] for span in given_row.spans}
        single = {(place, place): words[word[0]] for place, word in enumerate(given_row.words)}

        def similarity(one, other, of=of, single=single):
            return sum(known[one] @ known[other] for known in (of, single) if one in known and other in known)

        for split, word in enumerate(words_of(tree)[1:]):
            if word == AND:
                tree = alike(tree, split, similarity)
        assert row.spans == flat(tree).spans and row.words == given_row.words


def test_a_conjunct_is_joined_with_its_like():
    checkpoint = bundled_checkpoint()
    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), AutoModel.from_pretrained(checkpoint)
    she, sold, a, new, car, house, bought, and_ = (
        [tokenizer.convert_tokens_to_ids(word)] for word in "she sold a new car house bought and".split()
    )
    sold_it, another = (sold, (a, car)), (a, (new, house))
    given_trees = ((she, sold_it), (and_, another)), ((she, sold_it), (and_, (bought, another)))
    wanted = (she, (sold, ((a, car), (and_, another)))), (she, (sold_it, (and_, (bought, another))))
    others = (she, (bought, (a, house))), ((a, car), (sold, (new, house))), ((she, and_), (bought, car))
    rows = list(map(flat, given_trees + others))
    found = join_alike(model.eval(), rows, [[word == and_ for word in row.words] for row in rows])
    assert found == list(map(flat, wanted + others))
    assert join_alike(model, rows, [[False] * len(row.words) for row in rows]) == rows
