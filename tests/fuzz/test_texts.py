"""Any text: a tree with a leaf for each word, the same alone and among others, or a ValueError that names the row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree, FastR2D2Model, TreeParser, bundled_checkpoint
from profiles import of_texts
from strategies import any_word, not_texts, texts

pytestmark = pytest.mark.slow
several = st.lists(texts, min_size=1, max_size=20)


@pytest.fixture(scope="module")
def parsers() -> dict[tuple[str, str], TreeParser]:
    return {
        (method, punctuation): TreeParser.from_pretrained(bundled_checkpoint(), method, punctuation=punctuation)
        for method in ("parser", "chart")
        for punctuation in ("keep", "aside")
    }


def check(parsed) -> None:
    assert parsed.tree.num_leaves == len(parsed.leaves) >= 1
    tree, _ = BinaryTree.from_brackets(parsed.tree.brackets(parsed.leaves))
    assert tree == parsed.tree and parsed.draw() and "\n" not in parsed.tree.brackets(parsed.leaves)


@of_texts
@given(lines=several, method=st.sampled_from(["parser", "chart"]), punctuation=st.sampled_from(["keep", "aside"]))
def test_every_text_has_a_tree(parsers, drawn, lines, method, punctuation):
    drawn["texts"] += len(lines)
    parser = parsers[method, punctuation]
    found = parser(lines)
    assert len(found) == len(lines)
    for parsed in found:
        check(parsed)
        assert (parsed.split_scores is None) == (method != "parser")
        if method == "parser":
            assert np.isfinite(parsed.split_scores).all()
            assert BinaryTree.from_split_scores(parsed.split_scores) == parsed.tree
    [alone] = parser(lines[:1])
    assert alone.leaves == found[0].leaves
    if method == "parser":
        np.testing.assert_allclose(alone.split_scores, found[0].split_scores, rtol=1e-3, atol=1e-3)


@of_texts
@given(sentences=st.lists(st.lists(any_word, min_size=1, max_size=12), min_size=1, max_size=10))
def test_every_given_word_is_a_leaf(parsers, drawn, sentences):
    drawn["texts"] += len(sentences)
    for words, parsed in zip(sentences, parsers["parser", "keep"](sentences, is_split_into_words=True), strict=True):
        assert parsed.leaves == words and parsed.tree.num_leaves == len(words)


@of_texts
@given(lines=several, place=st.integers(0, 19), wrong=not_texts)
def test_what_is_no_text_is_refused_with_its_row(parsers, drawn, lines, place, wrong):
    drawn["texts"] += len(lines)
    place = min(place, len(lines))
    with pytest.raises(ValueError, match=str(place)):
        parsers["parser", "aside"]([*lines[:place], wrong, *lines[place:]])


@of_texts
@given(lines=several)
def test_every_text_has_a_finite_vector(drawn, lines, encoder):
    drawn["texts"] += len(lines)
    vectors = encoder.encode(lines)
    assert vectors.shape == (len(lines), encoder.config.hidden_size) and np.isfinite(vectors).all()


@pytest.fixture(scope="module")
def encoder() -> FastR2D2Model:
    return FastR2D2Model.from_pretrained(bundled_checkpoint())
