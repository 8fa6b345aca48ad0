"""Constituents in the place of others of their class, and the trees of the sentences that this makes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import NESTED, flat

from modeling_fast_r2d2 import FastR2D2Model, TreeParser, bundled_checkpoint
from pretraining.substitution import LEFT_WEIGHT, Substitution, WordTree, constituent_vectors, model_batch, parts
from tokenization_fast_r2d2.reading import pad_batch

TEXTS = [
    "the man saw the dog that barked at the unbelievably old cat",
    "the old cat slept in the garden of the house",
    "a friend of the mayor bought a house that stood near the river",
    "no",
    "the naïve mayor, who slept, lost the car",
] * 4


def constituents(tree, start=0, words=False):
    """All pairs of trees with their spans, and all words if they are asked for."""
    if isinstance(tree, list):
        return [(tree, (start, start))] if words else []
    left, right = tree
    middle = start + len(flat(left).words)
    own = (tree, (start, start + len(flat(tree).words) - 1))
    return [own, *constituents(left, start, words), *constituents(right, middle, words)]


def replaced(tree, old, new, start=0):
    if (start, start + len(flat(tree).words) - 1) == old:
        return new
    if isinstance(tree, list):
        return tree
    left, right = tree
    return replaced(left, old, new, start), replaced(right, old, new, start + len(flat(left).words))


@given(NESTED, NESTED, st.data())
def test_the_tree_of_a_constituent_comes_with_it(tree, other, data):
    if isinstance(tree, list) or isinstance(other, list):
        return
    _, place = data.draw(st.sampled_from(constituents(tree, words=True)))
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


def replacements(new: WordTree, old: WordTree, classes: dict):
    """How one can have become the other: the part that was replaced, where it stands, and the words there now."""
    longer = len(new.words) - len(old.words)
    return [((i, j), context, new.words[i : j + longer + 1]) for (i, j), context in parts(old, classes)
            if new.words[:i] + new.words[j + longer + 1 :] == old.words[:i] + old.words[j + 1 :]
            and (i, j + longer) in new.spans]  # fmt: skip


def classes_of(substitution, trees):
    numbers = iter(substitution.classes(constituent_vectors(substitution.model, trees)).tolist())
    return [{span: next(numbers) for span in tree.spans} for tree in trees]


def test_longer_ones_that_stand_in_such_places_are_put_before_the_end(parsed, monkeypatch):
    monkeypatch.setattr("pretraining.substitution.NUM_CLASSES", 3)
    model, _, trees = parsed
    substitution = Substitution(model, trees, 3)
    made = substitution(trees, np.random.default_rng(0))
    assert len(made) > 3 * len(TEXTS) / 4 and made == substitution(trees, np.random.default_rng(0))
    assert made != substitution(trees, np.random.default_rng(1))
    pairs = list(zip(trees, classes_of(substitution, trees), strict=True))
    by_words = {str(tree.words[i : j + 1]): number for tree, found in pairs for (i, j), number in found.items()}
    standing = {(at, found[part]) for tree, found in pairs for part, at in parts(tree, found) if part in found}
    replaced = set()
    for new in made:
        ways = [(part, len(tree.words)) for tree, found in pairs for part, at, words in replacements(new, tree, found)
                if at[-1] is not None and (at, by_words.get(str(words))) in standing]  # fmt: skip
        assert any(last < length - 1 for (_, last), length in ways)
        replaced |= {last - first for (first, last), _ in ways}
    assert {0, 1} <= replaced  # words and constituents


def test_a_word_is_replaced_by_what_stands_in_such_a_place(monkeypatch):
    """*he*, before a constituent as *the man* is: both are the left part of a whole sentence, beside the same class."""
    monkeypatch.setattr("pretraining.substitution.LONGEST_PUT_IN", 2)  # each that is put in has a length that is drawn
    he, the, man, saw, it = [1], [2], [3], [4], [5]
    plain, short = flat(((the, man), (saw, it))), flat((he, (saw, it)))
    assert dict(parts(plain, {(0, 3): 0, (0, 1): 1, (2, 3): 2})) == {
        (0, 1): (0, "left", 2), (2, 3): (0, "right", 1), (0, 0): (1, "left", None), (1, 1): (1, "right", None),
        (2, 2): (2, "left", None), (3, 3): (2, "right", None),
    }  # fmt: skip
    substitution = Substitution.__new__(Substitution)
    substitution.standing = {(0, "left", 2): [1], (2, "left", None): [1]}
    substitution.found, substitution.widths = [[], [(plain, (0, 1))], []], [[], [2], []]
    [place] = substitution._places(short, {(0, 2): 0, (1, 2): 2})  # the other words stand beside a word, or at the end
    assert place == ((0, 0), [1], LEFT_WEIGHT)
    assert substitution._one(short, *place[:2], np.random.default_rng(0)) == plain


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
    pairs = list(zip(trees, classes_of(substitution, trees), strict=True))
    for new in substitution(trees, np.random.default_rng(0)):
        ways = [(part, words) for tree, found in pairs for part, _, words in replacements(new, tree, found)]
        assert any(last - first < 2 and last - first + 1 < len(words) <= 4 for (first, last), words in ways)


def test_of_a_word_alone_nothing_is_made():
    model = FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()
    word = WordTree([[9, 10]], [])
    with pytest.raises(ValueError, match="no sentence of two or more words"):
        Substitution(model, [word], 1)


def test_classes_are_the_nearest_centres():
    random, substitution = np.random.default_rng(0), Substitution.__new__(Substitution)
    substitution.mean, substitution.scale = random.normal(size=8), random.uniform(0.1, 3, 8)
    vectors, substitution.centres = random.normal(size=(99, 8)), random.normal(size=(5, 8))
    scaled = (vectors - substitution.mean) / substitution.scale
    distances = np.linalg.norm(scaled[:, None] - substitution.centres, axis=-1)
    assert substitution.classes(vectors).tolist() == distances.argmin(1).tolist()
