"""Sentences as a parser reads them, with punctuation and without."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AddedToken

from fast_r2d2_entry_points.command_line.formats import as_json
from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.parsing_pipeline import METHODS
from tokenization_fast_r2d2.reading import pad_batch, sentences_to_parse

TEXT = 'Mr. Smith, a well-known man, isn\'t "here" (yet) -- he said.'
LEAVES = 'Mr. Smith , a well-known man , is n\'t " here " ( yet ) -- he said .'.split()
MARKS = {",", '"', "(", ")", "--", "."}
PARTS = 'Mr. Smith New York "the old" (man), unbelievabilities sleeps. ... 3.5 ‘don\'t’ 他 !'.split()
TEXTS = st.lists(st.sampled_from([*PARTS, ""])).map(" ".join)


def test_a_text_is_words_and_marks(tokenizer):
    [read] = sentences_to_parse(tokenizer, [TEXT], set_marks_aside=True)
    assert read.leaves == LEAVES and set(read.marks) == MARKS
    assert tokenizer.decode(read.input_ids).replace(" ", "") == "mr.smithawell-knownmanisn'thereyethesaid"
    spans = [tokenizer.decode(read.input_ids[i : j + 1]).replace(" ", "") for i, j in read.atom_spans]
    assert spans == ["mr.", "well-known", "n't"]
    told = [read.words[read.word_ids[bound]] for bound in read.bounds]
    assert told == ["Smith", "man", "here", "yet"]


def test_tokens_that_were_added_are_words(tokenizer):
    """Longer ones first. Those that are words anyway change nothing."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens([AddedToken("New York", single_word=True)])
    assert sentences_to_parse(tokenizer, ["New Yorkers"])[0].words == ["New", "Yorkers"]
    tokenizer.add_tokens(["[NAME]", "<ent>", "<ent>[NAME]", "the"])
    [read] = sentences_to_parse(tokenizer, ["We met [NAME] (<ent>) there, <ent>[NAME]"])
    assert read.words == ["We", "met", "[NAME]", "(", "<ent>", ")", "there", ",", "<ent>[NAME]"]
    assert tokenizer.convert_tokens_to_ids("[NAME]") == read.input_ids[read.word_ids.index(2)]


@pytest.mark.parametrize(("text", "left"), [
    ("Mr. Vinken , 61 years old , will n't join .", "Mr. Vinken | 61 years old | will n't join"),
    ("Mr. Vinken, 61, isn't here (yet): the cats' tails", "Mr. Vinken 61 | is n't here | yet | the cats ' tails"),
    ("the board's well-known, 3.5% of U.S. firms...", "the board 's well-known | 3.5 % of U.S. firms"),
    ('`` So , " he said , `` go . ""', "So | he said go"),
    ('`` So , " he said , `` we go . ""', "So | he said | we go"),
    ("他說，我們去。", "他 說 | 我 們 去"),
    (", . ! ?", ", . ! ?"),
    ("", "[UNK]"),
])  # fmt: skip
def test_bounds_are_where_marks_were(tokenizer, text, left):
    [read] = sentences_to_parse(tokenizer, [text], set_marks_aside=True)
    last_pieces = [*read.word_split_points, len(read.word_ids)]
    shown = [word + " |" * (last in read.bounds) for word, last in zip(read.words, last_pieces, strict=True)]
    assert " ".join(shown) == left


def test_given_words_are_the_same_but_for_their_own_bounds(tokenizer):
    words = "Mr. Smith , a well-known man -LRB- the cats ' -RRB- , sleeps ''".split()
    [read] = sentences_to_parse(tokenizer, [words], is_split_into_words=True, set_marks_aside=True)
    assert read.leaves == words and read.marks == [",", "-LRB-", "-RRB-", ",", "''"]
    assert [read.words[read.word_ids[bound]] for bound in read.bounds] == ["Smith", "man", "'"]


def tree_by(scores) -> BinaryTree:
    """The tree in which every span splits at its highest score, which must be the only one."""
    left_first, right_first = BinaryTree.from_order([-score for score in scores]), BinaryTree.from_split_scores(scores)
    assert left_first == right_first
    return left_first


@given(st.data(), st.booleans(), st.booleans(), st.booleans())
def test_splitting_at_the_highest_score_gives_the_tree(model, tokenizer, data, aside, pieces, keep_words):
    """Whatever the scores: the drawn ones have ties and lie next to each other in float32."""
    words = data.draw(st.lists(st.sampled_from([*LEAVES, "unbelievable", "''", "-LRB-", "\u201d"]), min_size=1))
    [read] = sentences_to_parse(tokenizer, [words], is_split_into_words=True, set_marks_aside=aside)
    batch = pad_batch([read], keep_words)
    value, count = st.sampled_from([-1e4, 0, 1, 1 + 2**-23, 1 + 2**-22, 7]), len(read.input_ids) - 1
    given_scores = np.float32([data.draw(st.lists(value, min_size=count, max_size=count))])
    del batch["split_signs"]
    spans = model.parse(**batch, split_scores=torch.from_numpy(given_scores)).spans[0]
    read = read.with_pieces_as_words(read.input_ids) if pieces else read
    tree = read.tree(spans)
    scores = read.scores(given_scores[0], tree)
    assert scores.dtype == np.float32 and tree_by(scores) == tree


@given(texts=st.lists(TEXTS, min_size=1, max_size=3), options=st.fixed_dictionaries({
    "pieces": st.booleans(), "keep_words": st.booleans(), "punctuation": st.sampled_from(["aside", "keep"]),
    "bounds_bonus": st.sampled_from([0.0, 2.0, 1e6]), "with_vectors": st.booleans(),
}))  # fmt: skip
def test_every_door_gives_scores_of_its_tree(model, tokenizer, texts, options):
    model.config.names_bonus = 3.0
    for parsed in TreeParser(model, tokenizer, **options)(texts):
        assert parsed.split_scores.dtype == np.float32
        assert tree_by(parsed.split_scores) == parsed.tree
        assert tree_by(json.loads(as_json(parsed, {}))["split_scores"]) == parsed.tree


def test_scores_of_words_are_the_models_and_marks_lie_between_them(model, tokenizer):
    [read] = sentences_to_parse(tokenizer, ["(The old man, he) said ..."], set_marks_aside=True)
    assert read.leaves == "( The old man , he ) said ...".split()
    given_scores = np.float32([1, 4, 8, 6])  # of the old | man | he | said
    tree = read.tree(np.array(BinaryTree.from_split_scores(given_scores).spans))
    assert read.scores(given_scores, tree).tolist() == [8.5, 1, 4, 6, 8, 5, 6, 9]
    [parsed] = TreeParser(model, tokenizer)(["The old man bought a new car."])
    [plain] = TreeParser(model, tokenizer)(["The old man bought a new car"])
    assert parsed.split_scores[:-1].tolist() == plain.split_scores.tolist()
    assert parsed.split_scores.argmax() == 6


@pytest.mark.parametrize("method", [method for method in METHODS if method != "parser"])
def test_a_tree_of_another_method_has_no_scores(model, tokenizer, method):
    [parsed] = TreeParser(model, tokenizer, method)(["The old man, who sleeps, saw a cat."])
    assert parsed.split_scores is None and "<rect" not in parsed._repr_svg_()
    assert json.loads(as_json(parsed, {}))["split_scores"] is None


def test_parsed_sentences_are_equal_by_value_and_not_hashable(model, tokenizer):
    parser = TreeParser(model, tokenizer, with_vectors=True)
    [first, other], [again] = parser(["The old man sleeps.", "The old man walks."]), parser(["The old man sleeps."])
    arrays = ("vector", "split_scores", "confidences")
    again = again._replace(**{name: getattr(first, name).copy() for name in arrays})  # apart from rounding
    assert first == again and not first != again and first in [other, again] and [other, first].index(again) == 1
    assert first != other and first not in [other] and first != tuple(first) and tuple(first) != first
    changed = {"split_scores": first.split_scores + 1, "vector": -first.vector, "word_ids": [0], "leaves": ["a"]}
    for name, value in [*changed.items(), ("vector", None), ("split_scores", None)]:
        assert first._replace(**{name: value}) != first != again._replace(**{name: value})
    assert first._replace(vector=None, split_scores=None) == again._replace(vector=None, split_scores=None)
    with pytest.raises(TypeError, match="unhashable type: 'ParsedSentence'"):
        hash(first)


@pytest.mark.parametrize("method", list(METHODS))
def test_words_have_the_tree_that_they_have_without_marks(model, tokenizer, method):
    with_marks, words = "the old man , who sleeps , saw a cat .", "the old man who sleeps saw a cat"
    [found] = TreeParser(model, tokenizer, method, punctuation="aside", bounds_bonus=0.0)([with_marks])
    [plain] = TreeParser(model, tokenizer, method, punctuation="keep")([words])
    is_word = np.array([leaf not in MARKS for leaf in found.leaves])
    last = np.cumsum(is_word) - 1  # the last word up to a leaf, and the first one from it on
    first = last + ~is_word
    assert {(first[i], last[j]) for i, j in found.tree.spans if first[i] < last[j]} == set(plain.tree.spans)


def test_a_bonus_splits_at_marks_first(model, tokenizer):
    parser = TreeParser(model, tokenizer, punctuation="aside", bounds_bonus=1e4)
    text = "yes , the old man said so"
    [found], [batched, _] = parser([text]), parser([text, "a b c d e , f"])
    assert found.tree.brackets(found.leaves).startswith("((yes ,) ")
    assert batched.tree == found.tree


def test_pieces_keep_their_words_numbers(model, tokenizer):
    [found] = TreeParser(model, tokenizer, pieces=True, punctuation="aside")(["unbelievabilities , he said"])
    assert found.leaves[-3:] == [",", "he", "said"] and len(found.word_ids) == len(found.leaves)
    assert found.word_ids[-3:] == [1, 2, 3] and set(found.word_ids[:-3]) == {0}


def test_what_cannot_be_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="punctuation must be keep or aside, got 'drop'"):
        TreeParser(model, tokenizer, punctuation="drop")
    with pytest.raises(ValueError, match="bounds_bonus must be >= 0 and finite, got nan"):
        TreeParser(model, tokenizer, bounds_bonus=float("nan"))


def test_a_bundled_name_is_enough_and_a_tree_shows_itself(tmp_path, monkeypatch):
    [parsed] = TreeParser.from_pretrained("fast-r2d2-tiny")(["The old man, who sleeps, saw a cat."])
    assert parsed._repr_svg_().startswith("<svg") and "sleeps" in parsed._repr_svg_()
    assert parsed.draw() == parsed.tree.draw(parsed.leaves)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fast-r2d2-tiny").mkdir()  # a folder of that name comes first
    with pytest.raises(ValueError, match="fast-r2d2-tiny has no config.json"):
        TreeParser.from_pretrained("fast-r2d2-tiny")
