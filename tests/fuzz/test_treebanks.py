"""Brackets, whole and damaged: a tree and its scores, or a ValueError."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_r2d2_entry_points.command_line.scoring import read_predicted
from modeling_fast_r2d2.grammar_induction import parse_brackets, read_treebank, score_trees
from strategies import ORDINARY, brackets, damaged, junk

pytestmark = pytest.mark.slow
rows = junk | st.fixed_dictionaries({}, optional={"leaves": junk, "brackets": junk | brackets(), "spans": junk})


@given(text=damaged(brackets()))
def test_damaged_brackets_are_refused_or_nested(text):
    try:
        tree = parse_brackets(text)
    except ValueError:
        return
    for first, last in tree.spans:
        assert 0 <= first <= last < tree.num_leaves
        assert all(last < i or j < first or (first <= i and j <= last) or (i <= first and last <= j)
                   for i, j in tree.spans)  # fmt: skip


@given(
    gold=st.lists(brackets(), min_size=1, max_size=4),
    predicted=st.one_of(
        st.lists(damaged(brackets()), max_size=4).map("\n".join),
        st.lists(rows.map(json.dumps), max_size=4).map("\n".join),
        st.lists(damaged(rows.map(json.dumps)), max_size=4).map("\n".join),
        st.lists(st.sampled_from(["[UNK]", *ORDINARY]), max_size=9).map(" ".join),
    ),
)
def test_any_file_of_predictions_is_scored_or_refused(tmp_path, gold, predicted):
    (tmp_path / "gold.mrg").write_text("\n".join(gold), encoding="utf-8")
    (tmp_path / "predicted.txt").write_text(predicted, encoding="utf-8", errors="replace")
    try:
        trees = read_treebank(tmp_path / "gold.mrg")
        scores = score_trees(read_predicted(tmp_path / "predicted.txt", trees), trees)
    except ValueError:
        return
    assert 0 <= scores.sentence_f1 <= 100 and 0 <= scores.corpus_f1 <= 100
