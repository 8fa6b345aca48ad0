"""Trees against slow, obvious twins."""

import re
import unicodedata

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree


def tree_of_order(order, i=0, j=None) -> dict[int, tuple[int, int]]:
    """Split (i, j) where `order`, {split point: key}, is least."""
    j = len(order) if j is None else j
    if i >= j:
        return {}
    k = min(range(i, j), key=lambda split: order[split])
    return {k: (i, j), **tree_of_order(order, i, k), **tree_of_order(order, k + 1, j)}


def as_tree(spans: dict[int, tuple[int, int]]) -> BinaryTree:
    return BinaryTree(tuple(spans[k] for k in sorted(spans)))


a_priority = st.integers(0, 14).flatmap(lambda n: st.permutations(range(n)))
a_tree = a_priority.map(lambda priority: as_tree(tree_of_order(list(priority))))
a_word = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=6)


def branching(n: int, right: bool) -> BinaryTree:
    return BinaryTree(tuple((k, n - 1) if right else (0, k + 1) for k in range(n - 1)))


@given(tree=a_tree)
def test_a_padded_row_of_spans_is_read_back(tree):
    row = torch.tensor([*tree.spans, (-1, -1), (-1, -1)])
    assert BinaryTree.from_spans(row) == tree
    assert BinaryTree.from_spans([*row]) == tree
    assert tree.num_leaves == len(tree.spans) + 1


@given(tree=a_tree, data=st.data())
def test_brackets_are_read_back_and_agree_with_nltk(tree, data):
    words = data.draw(st.lists(a_word, min_size=tree.num_leaves, max_size=tree.num_leaves))
    text = tree.brackets(words)
    assert text.count("(") == text.count(")") == len(tree.spans)
    escaped = [word.replace("(", "-LRB-").replace(")", "-RRB-") for word in words]
    assert BinaryTree.from_brackets(text) == (tree, escaped)
    if tree.spans:
        flat = " ".join(str(tree.to_nltk(escaped)).split())
        assert flat.replace("(X ", "(") == text
    assert tree.to_nltk(words).leaves() == words


@given(tree=a_tree)
def test_triples_are_preorder_and_heights_count_constituents(tree):
    def preorder(i, j):
        if i == j:
            return []
        k = tree.spans.index((i, j))
        return [(i, j, k), *preorder(i, k), *preorder(k + 1, j)]

    def height(i, j):
        k = tree.spans.index((i, j)) if i < j else None
        return 0 if k is None else 1 + max(height(i, k), height(k + 1, j))

    assert list(tree) == list(tree.triples) == preorder(0, tree.num_leaves - 1)
    assert tree.height == height(0, tree.num_leaves - 1)
    for k, (i, j) in enumerate(tree.spans):
        above = [span for span in tree.spans if span[0] <= i and j <= span[1] and span != (i, j)]
        assert tree.depths[k] == len(above)
        smallest = min(above, key=lambda span: span[1] - span[0], default=None)
        assert tree.parents[k] == (-1 if smallest is None else tree.spans.index(smallest))


@given(tree=a_tree)
def test_constituents_to_score_leave_out_the_sentence_and_its_leaves(tree):
    sentence, leaves = (0, tree.num_leaves - 1), {(leaf, leaf) for leaf in range(tree.num_leaves)}
    assert tree.constituents() == {span for span in tree.spans if span != sentence}
    assert tree.constituents(trivial=True) == tree.constituents() | leaves | {sentence}


@settings(max_examples=200)
@given(tree=a_tree, data=st.data())
def test_word_tree_is_the_one_that_the_splits_between_words_tell(tree, data):
    starts = data.draw(st.lists(st.booleans(), min_size=len(tree.spans), max_size=len(tree.spans)))
    word_ids = [sum(starts[:leaf]) for leaf in range(tree.num_leaves)]
    between = [k for k, starts_word in enumerate(starts) if starts_word]
    order = [(tree.depths[k], tree.spans[k][0] - tree.spans[k][1], k) for k in between]
    words = tree.to_words(word_ids)
    assert words == as_tree(tree_of_order(order))
    pieces = {w: [leaf for leaf, word in enumerate(word_ids) if word == w] for w in word_ids}
    if all((p[0], p[-1]) in tree.constituents(trivial=True) for p in pieces.values()):
        contracted = {(word_ids[i], word_ids[j]) for i, j in tree.spans} - {(w, w) for w in word_ids}
        assert set(words.spans) == contracted


@pytest.mark.parametrize("right", [True, False])
def test_five_thousand_leaves_in_one_branch_work_everywhere(right):
    tree = branching(5000, right)
    assert tree.height == 4999
    assert BinaryTree.from_brackets(tree.brackets()) == (tree, list(map(str, range(5000))))
    assert len(tree.to_nltk()) == 2
    assert tree.to_words([leaf // 5 for leaf in range(5000)]) == branching(1000, right)
    assert len(list(tree)) == 4999 and len(tree.constituents(trivial=True)) == 9999
    note, text = tree.draw().splitlines()
    assert "4999 levels" in note and text == tree.brackets()


@given(tree=a_tree)
def test_a_sideways_drawing_has_a_line_for_each_leaf_and_a_mark_for_each_constituent(tree):
    words = [f"w{leaf}" for leaf in range(tree.num_leaves)]
    lines = tree.draw(words, width=1).splitlines()
    assert [line.split()[-1] for line in lines] == words
    assert sum(line.count("┬") for line in lines) == sum(line.count("└") for line in lines) == len(tree.spans)


def as_columns(line: str) -> str:
    """With a filler after each wide character, so that an index is a column."""
    return "".join(c + "~" * (unicodedata.east_asian_width(c) in "WF") for c in line)


@given(tree=a_tree, data=st.data())
def test_in_a_top_down_drawing_a_line_ends_above_each_word_whatever_its_width(tree, data):
    word = st.sampled_from(["我", "苹果很好", "I", "apples", "😀", "internationalizations"])
    words = data.draw(st.lists(word, min_size=tree.num_leaves, max_size=tree.num_leaves))
    *branches, leaves = map(as_columns, tree.draw(words, width=1000).splitlines())
    assert sum(line.count("•") for line in branches) == max(1, len(tree.spans))
    assert leaves.replace("~", "").split() == words
    for place in re.finditer(r"\S+", leaves):
        above = branches[-1][place.start() : place.end()] if tree.spans else "│"
        assert len(re.findall("[│┌┐]", above)) == 1


def test_a_combining_mark_takes_no_column():
    tree = branching(2, True)
    composed, decomposed = (tree.draw([word, "au lait"], width=80) for word in ("café", "cafe\u0301"))
    assert composed.splitlines()[:-1] == decomposed.splitlines()[:-1]


@pytest.mark.parametrize("width", [1, 80])
def test_spaces_in_words_break_neither_drawings_nor_brackets(width):
    tree, words = branching(3, True), ["New\nYork", "", "a\tb"]
    drawing = tree.draw(words, width=width)
    assert "New York" in drawing and "a b" in drawing
    assert BinaryTree.from_brackets(tree.brackets(words)) == (tree, ["New_York", "_", "a_b"])


def test_drawings_of_a_known_tree_and_that_from_the_top_down_needs_all_its_columns():
    tree, words = BinaryTree.from_brackets("((the cat) (sat down))")
    sideways, top_down = tree.draw(words, width=5), tree.draw(words, width=80)
    assert sideways == "┬─┬─ the\n│ └─ cat\n└─┬─ sat\n  └─ down"
    assert top_down.splitlines()[0].strip() == "•" and top_down.splitlines()[-1].split() == words
    needed = max(map(len, top_down.splitlines()))
    assert tree.draw(words, width=needed) == top_down and tree.draw(words, width=needed - 1) == sideways


@pytest.mark.parametrize("spans", [((0, 1), (0, 1)), ((0, 2),), ((0, 2), (0, 1), (3, 4)), ((5, 6),)])
def test_spans_that_are_no_tree_are_refused(spans):
    with pytest.raises(ValueError, match="not a binary tree"):
        BinaryTree(spans)
    with pytest.raises(ValueError, match="not a binary tree"):
        BinaryTree.from_spans(torch.tensor([*spans, (-1, -1)]))


def test_a_refusal_names_the_split_points_that_lack_a_constituent():
    with pytest.raises(ValueError, match=r"split points 1 \.\.\. 2 .* \(1, 3\), got \(1, 2\), \(1, 2\)"):
        BinaryTree.from_spans([(0, 3), (1, 2), (1, 2)])
    with pytest.raises(ValueError, match=r"split points 0 \.\.\. 2"):  # padding inside a sentence
        BinaryTree.from_spans([(0, 2), (-1, -1), (1, 2)])


@pytest.mark.parametrize("word_ids", [[1, 0, 0], [None, 0, 0], [0, 0]])
def test_word_ids_that_fit_no_leaves_are_refused(word_ids):
    with pytest.raises(ValueError, match="word_ids must"):
        branching(3, True).to_words(word_ids)


@pytest.mark.parametrize("text", ["", "(a b", "(a b c)", "(a) b", "a b", "((a b)", "(a b))"])
def test_text_that_is_no_binary_bracketing_is_refused(text):
    with pytest.raises(ValueError, match="binary bracketing"):
        BinaryTree.from_brackets(text)


def test_wrong_number_of_words_is_refused():
    with pytest.raises(ValueError, match="3 leaves, got 2 words"):
        branching(3, True).brackets(["a", "b"])
