"""Any text has a tree with a leaf for each word, the same alone and among others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree, TreeParser, bundled_checkpoint
from strategies import texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parsers() -> dict[tuple[str, str], TreeParser]:
    return {
        (method, punctuation): TreeParser.from_pretrained(
            bundled_checkpoint(), method, punctuation=punctuation, with_vectors=True
        )
        for method in ("parser", "chart")
        for punctuation in ("keep", "aside")
    }


@given(
    lines=st.lists(texts, min_size=1, max_size=20),
    method=st.sampled_from(["parser", "chart"]),
    punctuation=st.sampled_from(["keep", "aside"]),
)
def test_every_text_has_a_tree(parsers, lines, method, punctuation):
    parser = parsers[method, punctuation]
    found = parser(lines)
    assert len(found) == len(lines)
    for parsed in found:
        brackets = parsed.tree.brackets(parsed.leaves)
        assert parsed.tree.num_leaves == len(parsed.leaves) >= 1 and "\n" not in brackets and parsed.draw()
        assert BinaryTree.from_brackets(brackets)[0] == parsed.tree and np.isfinite(parsed.vector).all()
        assert (parsed.split_scores is None) == (method != "parser")
        if method == "parser":
            assert np.isfinite(parsed.split_scores).all()
            assert BinaryTree.from_split_scores(parsed.split_scores) == parsed.tree
    [alone] = parser(lines[:1])
    assert alone.leaves == found[0].leaves
    if method == "parser":
        np.testing.assert_allclose(alone.split_scores, found[0].split_scores, rtol=1e-3, atol=1e-3)
