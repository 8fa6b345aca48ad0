"""Bracketed strings to trees, against nltk's reader, and between words and pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk import Tree

from modeling_fast_r2d2.grammar_induction import LabelledTree, from_spans, parse_brackets, score_trees
from modeling_fast_r2d2.grammar_induction.labelled_trees import LabelledSpan, plain_label, spelling
from modeling_fast_r2d2.grammar_induction.systems import without_punctuation

PUNCTUATION = frozenset({".", ",", "-NONE-"})


@st.composite
def nested(draw, depth=4):
    """A tree with labels as nested lists; preterminals are pairs."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return (draw(st.sampled_from(["DT", "NN", "-NONE-", "."])), draw(st.sampled_from(["a", "b", "\\", "*T*-1"])))
    return [draw(st.sampled_from(["NP", "VP-SBJ", "S"])), *draw(st.lists(nested(depth - 1), min_size=1, max_size=3))]


def written(tree) -> str:
    if isinstance(tree, tuple):
        return f"({tree[0]} {tree[1]})"
    return f"({tree[0]} {' '.join(map(written, tree[1:]))})"


def slow_twin(tree, removed, words, constituents):
    """Words kept and constituents of two or more of them, children before parents."""
    if isinstance(tree, tuple):
        words += [tree] if tree[0] not in removed else []
        return
    first = len(words)
    for child in tree[1:]:
        slow_twin(child, removed, words, constituents)
    if len(words) - first > 1:
        constituents.append((first, len(words) - 1, tree[0].split("-")[0]))


@given(tree=nested(), removed=st.sampled_from([frozenset(), PUNCTUATION]))
def test_reading_is_what_a_recursion_over_the_tree_gives(tree, removed):
    words, constituents = [], []
    slow_twin(tree, removed, words, constituents)
    read = parse_brackets(written(tree))
    read = read.without(read.are_punctuation(removed))
    assert read.words == tuple(word for _, word in words) and read.tags == tuple(tag for tag, _ in words)
    assert [tuple(c) for c in read.constituents] == constituents


@given(tree=nested())
def test_what_is_written_reads_the_same_here_and_by_nltk(tree):
    read = parse_brackets(written(tree))
    read = read.without(read.are_punctuation(PUNCTUATION))
    if read.words:
        again = parse_brackets(read.brackets())
        assert (again.words, again.tags, again.constituents) == (read.words, read.tags, read.constituents)
        assert tuple(Tree.fromstring(read.brackets(), leaf_pattern=r"[^\s()]+").leaves()) == read.words


@pytest.mark.parametrize("leaf, is_punctuation", [
    ("(. .)", True), ("($ US$)", True), ("(PU 。)", True), ("(-LRB- -LRB-)", True), ("($-LRB- /)", True),
    ("('' ')", True), ("(Fia ¿)", True), ("(X 、)", True), ("(punct --)", True), ("(Z «)", True),
    ("(POS ')", False), ("(SYM -)", False), ("(NN %)", False), ("(CC &)", False), ("(X ॐ)", False),
])  # fmt: skip
def test_punctuation_is_told_by_the_tags_of_two_treebanks_and_by_unicode(leaf, is_punctuation):
    assert parse_brackets(f"(S (NN a) {leaf})").are_punctuation() == [False, is_punctuation]


def test_leaves_below_one_bracket_share_a_parent():
    tree = parse_brackets("(S (NP (NNP New) (NNP York)) (NP (NNP Bush)) (NNP Gore) (VBZ is))")
    assert tree.parents[0] == tree.parents[1] and tree.parents[3] == tree.parents[4]
    assert len(set(tree.parents)) == 3


@pytest.mark.parametrize("text", ["((the cat) (sat down))", "(the (cat (sat down)))", "(((the cat) sat) down)"])
def test_brackets_without_labels(text):
    tree = parse_brackets(text, has_labels=False)
    assert tree.words == ("the", "cat", "sat", "down") and (0, 3) in tree.spans and len(tree.spans) == 3


@pytest.mark.parametrize("text", ["Yes", "(Yes)"])
def test_a_single_word_is_a_tree(text):
    assert parse_brackets(text, has_labels=False) == LabelledTree(("Yes",), ("",), (), (0,))


@pytest.mark.parametrize("text, problem", [
    ("(S (A a) (B b)", "unclosed brackets: 1"),
    ("(S (A a)) (B b))", r"'\(' after the tree has ended"),
    ("(S (A a) ()", "a bracket without children after 'a'"),
    ("(S (NP ) (A a))", "a bracket without children"),
    (")", r"one '\)' too many"),
    ("", "it is empty"),
])  # fmt: skip
def test_what_is_no_tree_is_refused_with_its_place(text, problem):
    with pytest.raises(ValueError, match=f"file, line 7: not a bracketed tree: {problem}"):
        parse_brackets(text, place="file, line 7")


def test_a_tree_two_thousand_deep_is_read_and_written():
    text = "".join(f"(S (A w{n}) " for n in range(2000)) + "(A end)" + ")" * 2000
    tree = parse_brackets(text)
    assert tree.num_leaves == 2001 and len(tree.constituents) == 2000
    assert parse_brackets(tree.brackets()) == tree
    binary = parse_brackets("(" * 2000 + "w" + " w)" * 2000, has_labels=False)
    assert len(binary.spans) == 2000 and binary.num_leaves == 2001


def test_what_has_several_roots_or_brackets_in_tags_is_one_tree_that_can_be_read():
    tree = LabelledTree(("(", "a", "b"), ("$(", "A", ""), (LabelledSpan(1, 2, "NP(1)"),), (0, 1, 1))
    back = parse_brackets(tree.brackets())
    assert back.constituents == (LabelledSpan(1, 2, "NP"), LabelledSpan(0, 2, "X")), "the label's index is left out"
    assert back.words == ("-LRB-", "a", "b") and back.tags == ("$-LRB-", "A", "X")


def test_words_become_constituents_of_their_pieces_and_back():
    tree = parse_brackets("(S (NP (DT the) (NN discrepancy)) (VP (VBZ is) (JJ odd)))")
    pieces = [["the"], ["disc", "##re", "##pan", "##cy"], ["is"], ["o", "##dd"]]
    expanded = tree.expand(pieces)
    assert expanded.words == ("the", "disc", "##re", "##pan", "##cy", "is", "o", "##dd")
    labels = {(first, last): label for first, last, label in expanded.constituents}
    assert labels == {(1, 4): "WD", (6, 7): "WD", (0, 4): "NP", (5, 7): "VP", (0, 7): "S"}
    assert expanded.tags[1:5] == ("NN",) * 4 and expanded.word_ids == (0, 1, 1, 1, 1, 2, 3, 3)
    back = expanded.to_words(expanded.word_ids, tree.words)
    assert (back.constituents, back.tags, back.parents) == (tree.constituents, tree.tags, tree.parents)


def test_constituents_that_cut_a_word_are_lost_over_words():
    tree = from_spans(["a", "b", "##c", "d"], [(0, 1), (0, 2), (0, 3), (2, 3), (1, 2)])
    assert tree.to_words([0, 1, 1, 2], ["a", "bc", "d"]).spans == {(0, 1), (0, 2)}


def test_labels_and_words_are_compared_without_their_decorations():
    labels = ["NP-SBJ-1", "NP=2", "ADVP|PRT", "-LRB-", "S‧的", "NP"]
    assert [plain_label(label) for label in labels] == ["NP", "NP", "ADVP", "-LRB-", "S‧的", "NP"]
    assert spelling("1\\/2") == "1/2" and spelling("-LRB-") == "(" and spelling("Café") == "cafe"


def test_a_tree_without_its_punctuation_has_every_constituent_once():
    shown = parse_brackets("(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))")
    with_mark = from_spans(shown.words, [(0, 1), (0, 2), (0, 3)])
    found = without_punctuation(with_mark, shown)
    assert found.words == ("The", "cat", "sat") and len(found.constituents) == len(found.spans) == 2
    assert score_trees([found], [shown.without(shown.are_punctuation())]).script_sentence_f1 == 100
