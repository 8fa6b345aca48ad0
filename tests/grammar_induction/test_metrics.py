"""Scores against the definition of the public script, its edge cases, recall, alignment."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.grammar_induction import (
    LabelledTree,
    align,
    chain_shares,
    from_spans,
    inner_spans,
    parse_brackets,
    proper_noun_chunks,
    score_trees,
)
from modeling_fast_r2d2.grammar_induction.systems import BASELINES, baseline_trees, best_binary_trees


@st.composite
def gold_trees(draw):
    """Trees of any arity with unary chains, here and there around the whole sentence."""

    def node(first, last, depth):
        if first == last:
            return f"(T w{first})"
        cuts = sorted(draw(st.sets(st.integers(first, last - 1), min_size=1, max_size=3)))
        edges = zip([first, *(cut + 1 for cut in cuts)], [*cuts, last], strict=True)
        text = f"(X {' '.join(node(i, j, depth + 1) for i, j in edges)})"
        return f"(U {text})" if draw(st.integers(0, 3)) == 0 else text

    return [parse_brackets(node(0, draw(st.integers(0, 7)), 0)) for _ in range(draw(st.integers(1, 4)))]


def script_twin(predicted, gold):
    """What `compare_trees.py` prints: spans in the order in which brackets close, the last one left out."""
    sentence, counts = [], np.zeros(3)
    for ours, theirs in zip(predicted, gold, strict=True):
        if len(theirs.words) == 1:
            continue
        p, g = ({(first, last) for first, last, _ in t.constituents[:-1]} for t in (ours, theirs))
        overlap = len(p & g)
        precision, recall = overlap / (len(p) + 1e-8), overlap / (len(g) + 1e-8)
        if not g:
            recall = 1.0
            precision = 1.0 if not p else precision
        sentence.append(2 * precision * recall / (precision + recall + 1e-8))
        counts += [overlap, len(p) - overlap, len(g) - overlap]
    tp, fp, fn = counts
    return 100 * np.mean(sentence), 200 * tp / (2 * tp + fp + fn) if tp else 0.0


@given(gold=gold_trees(), name=st.sampled_from(BASELINES), seed=st.integers(0, 9))
def test_script_figures_are_those_of_its_definition(gold, name, seed):
    predicted = baseline_trees(gold, name, seed)
    if all(len(gold_tree.words) == 1 for gold_tree in gold):
        with pytest.raises(ValueError, match="no gold tree of two or more words"):
            score_trees(predicted, gold)
        return
    scores = score_trees(predicted, gold)
    assert (scores.script_sentence_f1, scores.script_corpus_f1) == pytest.approx(script_twin(predicted, gold), abs=1e-4)
    unchained = [from_spans(t.words, t.spans) for t in gold]
    plain = score_trees(predicted, unchained)
    assert plain.sentence_f1 == pytest.approx(scores.sentence_f1) == pytest.approx(plain.script_sentence_f1)
    assert plain.corpus_f1 == pytest.approx(scores.corpus_f1) == pytest.approx(plain.script_corpus_f1)


def f1(predicted: str, gold: str) -> tuple[float, float, float]:
    scores = score_trees([parse_brackets(predicted)], [parse_brackets(gold)])
    return scores.sentence_f1, scores.strict_sentence_f1, scores.script_sentence_f1


def test_edge_cases_of_the_convention():
    pair, flat, binary = "(X (T a) (T b))", "(X (T a) (T b) (T c))", "(X (X (T a) (T b)) (T c))"
    nothing_to_find = pytest.approx((100, math.nan, 100), nan_ok=True)
    assert f1(pair, pair) == nothing_to_find  # two words: no span counts
    assert f1(flat, flat) == nothing_to_find
    assert f1(binary, flat) == pytest.approx((0, math.nan, 0), nan_ok=True)  # found what is not there
    assert f1(flat, binary) == (0, 0, 0)  # found nothing
    assert f1(binary, binary) == (100, 100, 100)
    unrooted = from_spans("abc", [(0, 1)])  # as dependency trees of several roots are read
    assert score_trees([unrooted], [unrooted]).script_sentence_f1 == pytest.approx(100)
    assert score_trees([parse_brackets(flat)], [unrooted]).script_sentence_f1 == pytest.approx(0)
    chained = f1(pair, "(S (VP (T a) (T b)))")  # the script keeps the inner bracket around the whole sentence
    assert chained == pytest.approx((100, math.nan, 0), nan_ok=True)


def test_sentences_of_one_word_and_long_ones_are_left_out():
    texts = ["(T a)", "(X (T a) (T b))", "(X (X (T a) (T b)) (T c))"]
    gold = [*map(parse_brackets, texts), LabelledTree((), (), (), ())]
    assert score_trees(gold, gold).rows.tolist() == [1, 2]
    assert score_trees(gold, gold, max_length=2).rows.tolist() == [1]


@given(gold=gold_trees())
def test_no_binary_tree_is_better_than_the_best(gold):
    best = best_binary_trees(gold)
    for ours, theirs in zip(best, gold, strict=True):
        assert inner_spans(theirs) <= ours.spans and len(ours.spans) == len(theirs.words) - 1
    if any(len(gold_tree.words) > 1 for gold_tree in gold):
        bound = score_trees(best, gold)
        assert all(recall == total for recall, total in bound.labels.values())
        for name in BASELINES:
            assert score_trees(baseline_trees(gold, name), gold).sentence_f1 <= bound.sentence_f1 + 1e-9


def test_recall_counts_each_label_of_a_span_but_not_the_sentence():
    gold = parse_brackets("(S (NP (NP (NNP New) (NNP York)) (NN city)) (VP (ADVP (QP (A very) (B much)))))")
    scores = score_trees([from_spans(gold.words, [(0, 4), (0, 1), (3, 4), (2, 4)])], [gold])
    assert scores.labels == {
        "NP": (1, 2), "VP": (1, 1), "ADVP": (1, 1), "QP": (1, 1), "NNP chunk": (1, 1),
    }  # fmt: skip
    assert list(scores.labels) == ["NP", "ADVP", "NNP chunk", "QP", "VP"]  # in every process
    assert scores.recall("NP") == 50 and math.isnan(scores.recall("SBAR"))


def test_proper_nouns_are_a_chunk_below_one_bracket_only():
    gold = parse_brackets("(S (NNP A) (NP (NNP B) (NNP C) (NN d) (NNP E)) (NNP F) (NNP G) (NNP H))")
    assert proper_noun_chunks(gold) == {(1, 2), (5, 7)}
    pieces = gold.expand([["a"], ["b", "##b"], ["c"], ["d"], ["e", "##e"], ["f"], ["g"], ["h"]])
    assert proper_noun_chunks(pieces) == {(1, 3), (5, 6), (7, 9)}


def test_lengths_and_interval():
    gold = [parse_brackets("(X " + "(T a) " * n + ")") for n in (2, 10, 11, 20, 41, 100)]
    scores = score_trees(baseline_trees(gold, "right"), gold)
    assert {name: count for name, (_, count) in scores.by_length().items()} == {"2-10": 2, "11-20": 2, "over 40": 2}
    assert scores.confidence_interval() == scores.confidence_interval()
    low, high = scores.confidence_interval(samples=2000)
    p = scores.sentence_f1 / 100  # one sentence of six has 100, the others 0
    assert low <= scores.sentence_f1 <= high and p == pytest.approx(1 / 6)
    assert (low, high) == (0, 50)  # quantiles of a binomial distribution of six draws


def test_pieces_are_aligned_by_their_spelling():
    gold = [parse_brackets("(S (NP (NNP Corp.) (NN 1\\/2)) (-LRB- -LRB-) (VBD Café))")]
    leaves = ["corp", ".", "1", "\\", "/", "##2", "(", "ca", "##fe"]
    predicted = [from_spans(leaves, [(0, 8), (0, 5), (0, 1), (2, 5), (6, 8), (1, 2)])]
    [over_words], _ = align(predicted, gold)
    assert over_words.words == gold[0].words and over_words.spans == {(0, 3), (0, 1), (2, 3)}
    [same], [expanded] = align(predicted, gold, "pieces")
    assert same is predicted[0] and expanded.words == tuple(leaves)
    assert score_trees(predicted, gold, "pieces").labels == {"WD": (2, 3), "NP": (1, 1), "NNP chunk": (1, 1)}
    for leaves in (["<unk>", "1/2", "[UNK]", "cafe"], ["[UNK]", "[UNK]", "1", "[UNK]", "(", "c", "[UNK]", "##e"]):
        assert align([from_spans(leaves, [(0, len(leaves) - 1)])], gold)[0][0].words == gold[0].words
    for ours, theirs in (["ΟΔΟΣ", "a"], ["οδος", "a"]), (["10_000", "X"], ["10\u00a0000", "x"]):
        assert score_trees([from_spans(ours, [(0, 1)])], [from_spans(theirs, [(0, 1)])]).sentence_f1 == 100
    with pytest.raises(ValueError, match="different words: between its unknown leaves it spells others"):
        align([from_spans(["<unk>", "1/3", "[UNK]", "cafe"], [(0, 3)])], gold)


@pytest.mark.parametrize("words, message", [
    (["the", "dog"], "at word 2, 'dog' is predicted for 'cat'"),
    (["the"], "at word 2, the end is predicted for 'cat'"),
    (["the", "cat", "sat"], "at word 3, 'sat' is predicted for the end"),
    (["the", "ca"], "at word 2, the end is predicted for 'cat'"),
])  # fmt: skip
def test_other_words_are_refused_with_tree_and_word(words, message):
    with pytest.raises(ValueError, match=f"mine.txt, line 3 and gold.mrg, line 9 have different words: {message}"):
        align([from_spans(words, [], "mine.txt, line 3")],
              [from_spans(["the", "cat"], [(0, 1)], "gold.mrg, line 9")])  # fmt: skip


def test_another_number_of_trees_and_granularity_are_refused():
    gold = [parse_brackets("(X (T a) (T b))")]
    with pytest.raises(ValueError, match="0 predicted trees for 1 gold trees"):
        score_trees([], gold)
    with pytest.raises(ValueError, match="granularity must be one of words, pieces, got 'letters'"):
        score_trees(gold, gold, "letters")


def test_baselines_are_what_they_say():
    [four] = [from_spans("abcd", [])]
    spans = {name: baseline_trees([four], name)[0].spans for name in ("left", "right", "balanced")}
    assert spans["left"] == {(0, 3), (0, 2), (0, 1)} and spans["right"] == {(0, 3), (1, 3), (2, 3)}
    assert spans["balanced"] == {(0, 3), (0, 1), (2, 3)}
    drawn = [tree.spans for tree in baseline_trees([four] * 3000, "random", seed=1)]
    shares = {shape: drawn.count(shape) / 3000 for shape in set(drawn)}
    assert shares[frozenset(spans["balanced"])] == pytest.approx(1 / 3, abs=0.04)  # the middle of three splits
    assert len(shares) == 5 and baseline_trees([four], "random", 3) == baseline_trees([four], "random", 3)
    with pytest.raises(ValueError, match="a baseline must be one of"):
        baseline_trees([four], "upwards")


def test_chains_are_told_by_how_many_spans_reach_an_end():
    five = [from_spans("abcde", [])]
    assert chain_shares(baseline_trees(five, "right")) == (1.0, 0.0)
    assert chain_shares(baseline_trees(five, "left")) == (0.0, 1.0)
    mixed = from_spans("abcde", [(0, 4), (0, 1), (2, 4), (2, 3)])  # the whole sentence does not count
    assert chain_shares([mixed]) == pytest.approx((1 / 3, 1 / 3))
    assert chain_shares([mixed, *baseline_trees(five, "right")]) == pytest.approx((4 / 6, 1 / 6))
    assert all(math.isnan(share) for share in chain_shares([from_spans("ab", [(0, 1)])]))


def test_deep_trees_are_scored_in_linear_time(monkeypatch):
    """Spans are collected once per use, not once per constituent."""
    depth, collected = 3000, []
    text = "(S (NN a) " * depth + "(NN b)" + ")" * depth
    tree = parse_brackets(text)
    spans = LabelledTree.spans.fget
    monkeypatch.setattr(LabelledTree, "spans", property(lambda tree: collected.append(1) or spans(tree)))
    assert score_trees([tree], [tree]).sentence_f1 == 100 and len(collected) < 10
