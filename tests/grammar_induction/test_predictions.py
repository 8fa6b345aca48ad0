"""Files of predicted trees that are no trees: one line that names the file and the line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import read_predicted_trees
from modeling_fast_r2d2.grammar_induction.labelled_trees import check_spans
from modeling_fast_r2d2.grammar_induction.treebanks import read_predicted_tree

GOOD = {"leaves": ["the", "old", "cat"], "spans": [[1, 2], [0, 2]]}
BAD = {
    "{}": "needs the lists leaves and spans",
    '{"leaves": null, "spans": null}': "needs the lists leaves and spans",
    '{"leaves": "the", "spans": []}': "needs the lists leaves and spans",
    '{"leaves": ["the"]}': "needs the lists leaves and spans",
    '{"leaves": ["the", "old"': "not a line of JSON",
    '{"leaves": ' + "[" * 100_000: "not a line of JSON",
    '{"leaves": [' + "9" * 5000 + '], "spans": []}': "not a line of JSON|leaf 0: a text must be a string",
    json.dumps(GOOD | {"leaves": ["the", None, "cat"]}): "leaf 1: a text must be a string, got None",
    json.dumps(GOOD | {"leaves": ["the", "\ud800", "cat"]}): "leaf 1: a lone surrogate",
    json.dumps(GOOD | {"spans": [1]}): "a span must be two whole numbers, .* got 1",
    json.dumps(GOOD | {"spans": [[0, 1, 2]]}): r"a span must be two whole numbers, .* got \[0, 1, 2\]",
    json.dumps(GOOD | {"spans": [[0.0, 1.5]]}): r"a span must be two whole numbers, .* got \[0.0, 1.5\]",
    json.dumps(GOOD | {"spans": [[False, True]]}): "a span must be two whole numbers",
    json.dumps(GOOD | {"spans": [["0", "1"]]}): "a span must be two whole numbers",
    json.dumps(GOOD | {"spans": [[0, 3]]}): r"the span \(0, 3\) lies outside the leaves 0 \.\.\. 2",
    json.dumps(GOOD | {"spans": [[-1, 1]]}): r"the span \(-1, 1\) lies outside the leaves",
    json.dumps(GOOD | {"spans": [[2, 1]]}): r"the span \(2, 1\) lies outside the leaves",
    json.dumps(GOOD | {"spans": [[1, 2], [0, 1]]}): r"the spans \(0, 1\) and \(1, 2\) cross",
}


def test_blanks_around_a_line_change_nothing():
    line = "(S (NP (DT the) (NN cat)) (VBZ sleeps))"
    assert read_predicted_tree(f" {line} ", True, "here") == read_predicted_tree(line, True, "here")
    assert read_predicted_tree(f" {json.dumps(GOOD)}", False, "here").words == ("the", "old", "cat")


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_a_line_that_is_no_tree_is_named(tmp_path, line):
    (tmp_path / "trees.jsonl").write_text(f"{json.dumps(GOOD)}\n{line}\n")
    with pytest.raises(ValueError, match=f"trees.jsonl, line 2(:|, ).*({BAD[line]})"):
        read_predicted_trees(tmp_path / "trees.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=6,
)
SPANS = st.lists(st.lists(st.integers(-1, 4) | JSON, min_size=1, max_size=3) | JSON, max_size=4) | JSON
ROWS = st.fixed_dictionaries({"leaves": st.lists(st.text() | JSON, max_size=4) | JSON, "spans": SPANS})


@given(ROWS | st.dictionaries(st.sampled_from(["leaves", "spans", "x"]), JSON))
def test_any_json_is_a_tree_or_refused(row):
    try:
        tree = read_predicted_tree(json.dumps(row), False, "line 1")
    except ValueError as error:
        assert str(error).startswith("line 1")
    else:
        assert list(tree.words) == row["leaves"]
        assert tree.spans == {tuple(span) for span in row["spans"] if span[0] < span[1]}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=5))
def test_spans_that_cross_are_found(spans):
    spans = [(min(span), max(span)) for span in spans]
    if any(i < k <= j < last for i, j in spans for k, last in spans):
        with pytest.raises(ValueError, match="line 1: the spans .* cross"):
            check_spans(spans, 6, "line 1")
    else:
        check_spans(spans, 6, "line 1")
