"""Any text has a tree with a leaf for each word, the same alone and among others."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree, TreeParser, bundled_checkpoint
from strategies import texts

pytestmark = pytest.mark.slow
KINDS = list(product(("parser", "chart"), ("keep", "aside")))  # methods and what becomes of punctuation


@pytest.fixture(scope="module")
def parsers() -> dict[tuple[str, str], TreeParser]:
    load = partial(TreeParser.from_pretrained, bundled_checkpoint(), with_vectors=True)
    return {kind: load(method=kind[0], punctuation=kind[1]) for kind in KINDS}


@given(lines=st.lists(texts, min_size=1, max_size=20), kind=st.sampled_from(KINDS))
def test_every_text_has_a_tree(parsers, lines, kind):
    parser, (method, _) = parsers[kind], kind
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
