"""Constituents in the place of others of their class, and the trees of the sentences that this makes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import FastR2D2Model, TreeParser, bundled_checkpoint
from pretraining.substitution import Substitution, WordTree, constituent_vectors, model_batch
from tokenization_fast_r2d2.reading import pad_batch

TEXTS = [
    "the man saw the dog that barked at the unbelievably old cat",
    "the old cat slept in the garden of the house",
    "a friend of the mayor bought a house that stood near the river",
    "no",
    "the naïve mayor, who slept, lost the car",
] * 4
WORDS = st.lists(st.integers(1, 99), min_size=1, max_size=3)
NESTED = st.recursive(WORDS, lambda below: st.tuples(below, below), max_leaves=9)


def flat(tree) -> WordTree:
    """From a word, which is a list of pieces, or a pair of trees."""
    if isinstance(tree, list):
        return WordTree([tree], [])
    left, right = map(flat, tree)
    length, last = len(left.words), len(left.words) + len(right.words) - 1
    moved = [(first + length, end + length) for first, end in right.spans]
    return WordTree(left.words + right.words, [*left.spans, (0, last), *moved])


def constituents(tree, start=0):
    """All pairs of trees with their spans."""
    if isinstance(tree, list):
        return []
    left, right = tree
    middle = start + len(flat(left).words)
    own = (tree, (start, start + len(flat(tree).words) - 1))
    return [own, *constituents(left, start), *constituents(right, middle)]


def replaced(tree, old, new, start=0):
    if isinstance(tree, list):
        return tree
    if (start, start + len(flat(tree).words) - 1) == old:
        return new
    left, right = tree
    return replaced(left, old, new, start), replaced(right, old, new, start + len(flat(left).words))


@given(NESTED, NESTED, st.data())
def test_the_tree_of_a_constituent_comes_with_it(tree, other, data):
    if isinstance(tree, list) or isinstance(other, list):
        return
    _, place = data.draw(st.sampled_from(constituents(tree)))
    new, span = data.draw(st.sampled_from(constituents(other)))
    assert flat(tree).put_in(place, flat(other), span) == flat(replaced(tree, place, new))


@pytest.fixture(scope="module")
def parsed():
    """A model, sentences as they are read, and their trees."""
    parser = TreeParser.from_pretrained(method="minimum_risk")
    read = parser.read(TEXTS)
    spans, _, _ = parser.run(read)
    rows = [tree.word_tree(row) for tree, row in zip(read, spans, strict=True)]
    return parser.model, read, [WordTree.of(sentence, row.spans) for sentence, row in zip(read, rows, strict=True)]


def test_batches_are_those_of_the_sentences_and_have_their_trees(parsed):
    model, read, trees = parsed
    batch, expected = model_batch(trees, model.config.pad_token_id), pad_batch(read)
    labels = batch.pop("labels")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in batch.items())
    found = model(**batch, split_scores=(labels[..., 1] - labels[..., 0]).float(), encoding="forced").spans
    assert torch.equal(found[labels >= 0], labels[labels >= 0]) and (labels[3] == -1).all()


def test_vectors_are_those_of_the_constituents(parsed):
    model, read, trees = parsed
    vectors = iter(constituent_vectors(model, trees))
    for sentence, tree in zip(read, trees, strict=True):
        scores = torch.zeros(1, max(len(sentence.input_ids) - 1, 0))
        for split, (first, last) in zip(sentence.word_split_points, tree.spans, strict=True):
            scores[0, split] = last - first
        output = model(torch.tensor([sentence.input_ids]), split_scores=scores, encoding="forced",
                       atom_spans=torch.tensor([sentence.atom_spans]) if sentence.atom_spans else None)  # fmt: skip
        for split in sentence.word_split_points:
            expected = output.last_hidden_state[0, len(sentence.input_ids) + split]
            np.testing.assert_allclose(next(vectors), expected.detach(), atol=1e-5)
    assert next(vectors, None) is None


def test_longer_ones_of_the_same_class_are_put_before_the_end(parsed, monkeypatch):
    monkeypatch.setattr("pretraining.substitution.NUM_CLASSES", 3)
    model, _, trees = parsed
    substitution = Substitution(model, trees, 2)
    made = substitution(trees, np.random.default_rng(0))
    assert len(made) > len(TEXTS) / 2 and made == substitution(trees, np.random.default_rng(0))
    assert made != substitution(trees, np.random.default_rng(1))
    of_constituent = {}
    vectors = constituent_vectors(model, trees)
    classes = iter(substitution.classes(vectors))
    for tree in trees:
        for span, number in zip(tree.spans, classes, strict=False):
            of_constituent[str(tree.words[span[0] : span[1] + 1])] = number
    for new in made:
        assert any(_is_made_of(new, tree, of_constituent) for tree in trees)


def test_whole_sentences_and_long_constituents_stay_where_they_are(parsed, monkeypatch):
    monkeypatch.setattr("pretraining.substitution.NUM_CLASSES", 1)
    monkeypatch.setattr("pretraining.substitution.LONGEST_REPLACED", 2)
    monkeypatch.setattr("pretraining.substitution.LONGEST_PUT_IN", 4)
    model, _, trees = parsed
    substitution = Substitution(model, trees, 3)
    [found] = substitution.found
    assert {end - first for _, (first, end) in found} == {1, 2, 3} and len(trees[1].words) > 4
    assert all(end - first < len(tree.words) - 1 for tree, (first, end) in Substitution(model, trees[3:4] + [
        WordTree([[9], [10]], [(0, 1)]), WordTree([[9], [10], [11]], [(0, 1), (0, 2)])
    ], 1).found[0])  # fmt: skip
    for new in substitution(trees, np.random.default_rng(0)):
        assert any(_is_longer_by(new, tree, (1, 2)) for tree in trees)


def _is_longer_by(new: WordTree, old: WordTree, lengths: tuple[int, ...]) -> bool:
    """Whether a constituent of two words has become one of three or four."""
    longer = len(new.words) - len(old.words)
    places = [(i, j) for i, j in old.spans if j - i == 1 and (i, j + longer) in new.spans]
    return longer in lengths and any(
        new.words[:i] + new.words[j + longer + 1 :] == old.words[:i] + old.words[j + 1 :] for i, j in places
    )


def _is_made_of(new: WordTree, old: WordTree, classes: dict[str, int]) -> bool:
    longer = len(new.words) - len(old.words)
    places = [(i, j) for i, j in old.spans if j < len(old.words) - 1 and (i, j + longer) in new.spans]
    return longer > 0 and any(
        new.words[:i] + new.words[j + longer + 1 :] == old.words[:i] + old.words[j + 1 :]
        and classes.get(str(new.words[i : j + longer + 1])) == classes[str(old.words[i : j + 1])]
        for i, j in places
    )


def test_of_a_word_alone_nothing_is_made():
    model = FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()
    word = WordTree([[9, 10]], [])
    with pytest.raises(ValueError, match="no sentence of two or more words"):
        Substitution(model, [word], 1)
