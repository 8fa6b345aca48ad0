"""Every token given is a leaf, and those that the model cannot see do not change the tree over the others."""

from itertools import count

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nltk import Tree

from modeling_fast_r2d2 import BinaryTree, bundled_checkpoint
from modeling_fast_r2d2.parsing.nltk import FastR2D2NltkParser
from modeling_fast_r2d2.parsing.pretokenized import parse_tokens, with_unseen
from modeling_fast_r2d2.parsing.tree_parser import TreeParser

SENTENCES = ["The cat sat on the unbelievably old mat", "Yes", "It rained all day", "Dogs bark", "a", "He left early"]
ODD = ["a b", "(", "c)", "", " ", "\n", "\x00", "\xad", "\u200b", "☃", "日本", "[UNK]", "[PAD]", "don't", "x" * 300]
WORDS = ["the", "cat", "Sat", "unbelievably", "e-mail", "3.14"]
UNSEEN = ["", " ", "\n\t", "\x00", "\xad\x7f"]


@pytest.fixture(scope="module")
def tree_parser():
    return TreeParser.from_pretrained(bundled_checkpoint())


@pytest.fixture(scope="module")
def parser(tree_parser):
    return FastR2D2NltkParser(tree_parser, chunk_size=4)


@given(st.permutations([sentence.split() for sentence in SENTENCES]), st.integers(1, 7))
def test_sentences_do_not_change_each_others_trees(parser, sentences, chunk_size):
    chunked = FastR2D2NltkParser(parser.parser, chunk_size)
    assert [next(trees) for trees in chunked.parse_sents(sentences)] == [parser.parse_one(s) for s in sentences]


@given(st.lists(st.sampled_from(WORDS + ODD) | st.text(max_size=8), min_size=1, max_size=12))
def test_leaves_are_the_tokens(parser, tokens):
    [tree] = parser.parse(tokens)
    assert tree.leaves() == tokens
    assert all(len(constituent) == 2 for constituent in tree.subtrees()) or len(tokens) == 1


def test_trees_are_flat_where_the_parser_is_less_sure(tree_parser):
    tokens = WORDS * 2
    [tree] = FastR2D2NltkParser(tree_parser, min_confidence=1).parse(tokens)
    assert tree == Tree("X", tokens)
    [whole] = FastR2D2NltkParser(tree_parser).parse(tokens)
    [parsed] = tree_parser([tokens], is_split_into_words=True)
    middle = float(np.median(parsed.confidences))
    [flat] = FastR2D2NltkParser(tree_parser, min_confidence=middle).parse(tokens)
    with pytest.raises(ValueError, match="min_confidence must be from 0 to 1"):
        FastR2D2NltkParser(tree_parser, min_confidence=50)
    assert len(list(flat.subtrees())) == (parsed.confidences >= middle).sum() < len(list(whole.subtrees()))


@given(st.lists(st.sampled_from(WORDS) | st.sampled_from(UNSEEN), min_size=1, max_size=12))
def test_unseen_tokens_do_not_change_the_tree_over_the_others(tree_parser, tokens):
    seen = [place for place, token in enumerate(tokens) if token in WORDS]
    assume(seen)
    (tree, sure), (over_words, confidences) = parse_tokens(tree_parser, [tokens, [tokens[place] for place in seen]])
    inside = [[number for number, place in enumerate(seen) if i <= place <= j] for i, j in tree.spans]
    assert {(words[0], words[-1]) for words in inside if len(words) > 1} == set(over_words.spans)
    of_words = dict(zip(over_words.spans, confidences.tolist(), strict=True))
    for words, value in zip(inside, sure.tolist(), strict=True):
        assert value == pytest.approx(of_words.get((words[0], words[-1]), 1.0) if words else 1.0, abs=1e-5)


@given(st.data())
def test_unseen_tokens_go_with_the_one_to_their_left(data):
    order = data.draw(st.permutations(range(data.draw(st.integers(0, 6)))))
    groups = data.draw(st.lists(st.integers(1, 4), min_size=len(order) + 1, max_size=len(order) + 1))
    tree, leaf, number, seen = BinaryTree.from_order(order), count(), count(), []
    expected = " ".join(grouped(word, groups[next(leaf)], number, seen) for word in tree.brackets().split())
    seen[0] += data.draw(st.integers(0, groups[0] - 1))  # which of the first tokens is seen makes no difference
    assert with_unseen(tree, seen, sum(groups)).brackets() == expected


def grouped(word: str, size: int, number, seen: list[int]) -> str:
    """A leaf in its brackets, become several tokens that branch to the left."""
    seen.append(next(number))
    group = str(seen[-1])
    for _ in range(size - 1):
        group = f"({group} {next(number)})"
    opened, closed = word.count("("), word.count(")")
    return "(" * opened + group + ")" * closed


def test_a_sentence_without_tokens_has_no_tree_as_elsewhere_in_nltk(parser):
    assert list(parser.parse([])) == [] and parser.parse_one([]) is None
    assert [len(list(trees)) for trees in parser.parse_sents([["a"], [], ["b"]])] == [1, 0, 1]
    assert [len(list(trees)) for trees in parser.raw_parse_sents(["a", " \n", "\x00", "b"])] == [1, 0, 0, 1]
    [tree] = parser.raw_parse("It rained,  all day")
    assert tree.leaves() == ["It", "rained", ",", "all", "day"]
    with pytest.raises(NotImplementedError):
        parser.grammar()


def test_sentences_are_read_as_needed(parser):
    trees = parser.parse_sents(["a", "b"] for _ in count())
    assert [next(next(trees)).leaves() for _ in range(9)] == [["a", "b"]] * 9


def test_what_cannot_be_parsed_is_refused(tree_parser):
    with pytest.raises(ValueError, match="row 1 must be a list of one or more strings, its words, got none"):
        parse_tokens(tree_parser, [["a"], []])
    assert len(parse_tokens(tree_parser, (sentence.split() for sentence in SENTENCES))) == len(SENTENCES)
    with pytest.raises(ValueError, match="chunk_size must be >= 1, got 0"):
        FastR2D2NltkParser(tree_parser, chunk_size=0)
    with pytest.raises(ValueError, match="pieces=False"):
        FastR2D2NltkParser.from_pretrained(bundled_checkpoint(), pieces=True)


def test_trees_of_a_chart_are_given_too():
    parser = FastR2D2NltkParser.from_pretrained(bundled_checkpoint(), method="chart")
    [expected] = parse_tokens(TreeParser.from_pretrained(method="chart"), [SENTENCES[0].split()])
    assert parser.parse_one(SENTENCES[0].split()) == expected.tree.to_nltk(SENTENCES[0].split())
