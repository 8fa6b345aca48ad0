"""Sentences as a parser reads them, with punctuation and without."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import pipeline

from modeling_fast_r2d2.parsing.tree_parser import METHODS, TreeParser
from modeling_fast_r2d2.reading import pad_batch, sentences_to_parse

TEXT = 'Mr. Smith, a well-known man, isn\'t "here" (yet) -- he said.'
LEAVES = 'Mr. Smith , a well-known man , isn\'t " here " ( yet ) -- he said .'.split()
MARKS = {",", '"', "(", ")", "--", "."}


def test_a_text_is_words_and_marks(tokenizer):
    [read] = sentences_to_parse(tokenizer, [TEXT], set_marks_aside=True)
    assert read.leaves == LEAVES and set(read.marks) == MARKS
    assert tokenizer.decode(read.input_ids).replace(" ", "") == "mr.smithawell-knownmanisn'thereyethesaid"
    spans = [tokenizer.decode(read.input_ids[i : j + 1]).replace(" ", "") for i, j in read.atom_spans]
    assert spans == ["mr.", "well-known", "isn't"]
    told = [read.words[read.word_ids[bound]] for bound in read.bounds]
    assert told == ["Smith", "man", "here", "yet"]


def test_given_words_are_the_same_but_for_their_own_bounds(tokenizer):
    words = "Mr. Smith , a well-known man -LRB- the cats ' -RRB- , sleeps ''".split()
    [read] = sentences_to_parse(tokenizer, [words], is_split_into_words=True, set_marks_aside=True)
    assert read.leaves == words and read.marks == [",", "-LRB-", "-RRB-", ",", "''"]
    assert [read.words[read.word_ids[bound]] for bound in read.bounds] == ["Smith", "man", "'"]


@pytest.mark.parametrize("text", ["...", ",", "\u201c!\u201d"])
@pytest.mark.parametrize("is_split", [False, True])
def test_a_sentence_of_marks_alone_keeps_them(tokenizer, text, is_split):
    [aside] = sentences_to_parse(
        tokenizer, [[text] if is_split else text], is_split_into_words=is_split, set_marks_aside=True
    )
    [kept] = sentences_to_parse(tokenizer, [[text] if is_split else text], is_split_into_words=is_split)
    assert aside == kept and aside.marks == []


@given(st.text("ab1 ,.'\"-()他，%"))
def test_nothing_of_a_text_is_lost(tokenizer, text):
    for aside in (False, True):
        [read] = sentences_to_parse(tokenizer, [text], set_marks_aside=aside)
        leaves = "".join(read.leaves).replace(" ", "")
        assert leaves == (text.replace(" ", "") or tokenizer.unk_token)
        assert sorted(set(read.word_ids)) == list(range(len(read.words))) and len(read.input_ids) == len(read.word_ids)


@given(
    st.lists(st.sampled_from(["the", "unbelievable", ",", "''", "-LRB-", "cat"]), min_size=1, max_size=9), st.booleans()
)
def test_scores_are_those_of_the_words_split_points(tokenizer, words, aside):
    [read] = sentences_to_parse(tokenizer, [words], is_split_into_words=True, set_marks_aside=aside)
    scores = read.scores(np.arange(1, len(read.input_ids), dtype=np.float32))
    assert len(scores) == len(read.leaves) - 1
    if len(read.words) > 1:
        assert (np.diff(scores) >= 0).all() and set(scores) <= set(range(1, len(read.input_ids)))


def test_batches_know_bounds(tokenizer):
    read = sentences_to_parse(tokenizer, ["a , b c", "a b , c , d"], set_marks_aside=True)
    batch = pad_batch(read)
    assert batch["bounds"].tolist() == [[True, False, False], [False, True, True]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("method", list(METHODS))
def test_words_have_the_tree_that_they_have_without_marks(model, tokenizer, method):
    with_marks, words = "the old man , who sleeps , saw a cat .", "the old man who sleeps saw a cat"
    [found] = TreeParser(model, tokenizer, method, punctuation="aside", bounds_bonus=0.0)([with_marks])
    [plain] = TreeParser(model, tokenizer, method, punctuation="keep")([words])
    number = np.cumsum([leaf not in MARKS for leaf in found.leaves]) - 1
    is_word = [leaf not in MARKS for leaf in found.leaves]
    spans = {
        (number[i] + (not is_word[i]), number[j])
        for i, j in found.tree.spans
        if number[i] + (not is_word[i]) < number[j]
    }
    assert spans == set(plain.tree.spans)


def test_a_bonus_splits_at_marks_first(model, tokenizer):
    parser = TreeParser(model, tokenizer, punctuation="aside", bounds_bonus=1e4)
    text = "yes , the old man said so"
    [found], [batched, _] = parser([text]), parser([text, "a b c d e , f"])
    assert found.tree.brackets(found.leaves).startswith("((yes ,) ")
    assert batched.tree == found.tree
    pipe = pipeline("constituency-parsing", model=model, tokenizer=tokenizer)
    model.config.punctuation, model.config.bounds_bonus = "aside", 1e4
    for result in pipe([text, "a b c d e , f"], batch_size=2)[:1] + [pipe(text)]:
        assert result["brackets"] == found.tree.brackets(found.leaves) and result["words"] == found.leaves


def test_pieces_keep_their_words_numbers(model, tokenizer):
    [found] = TreeParser(model, tokenizer, pieces=True, punctuation="aside")(["unbelievabilities , he said"])
    assert found.leaves[-3:] == [",", "he", "said"] and len(found.word_ids) == len(found.leaves)
    assert found.word_ids[-3:] == [1, 2, 3] and set(found.word_ids[:-3]) == {0}


def test_what_cannot_be_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="punctuation must be keep or aside, got 'drop'"):
        TreeParser(model, tokenizer, punctuation="drop")
    with pytest.raises(ValueError, match="bounds_bonus must be >= 0 and finite, got nan"):
        TreeParser(model, tokenizer, bounds_bonus=float("nan"))


def test_given_scores_take_the_parsers_place(model):
    ids = torch.tensor([[20, 30, 40, 50]])
    output = model.parse(ids, split_scores=torch.tensor([[0.0, 2.0, 1.0]]))
    assert output.spans.tolist() == [[[0, 1], [0, 3], [2, 3]]]


def test_a_bundled_name_is_enough_and_a_tree_shows_itself(tmp_path, monkeypatch):
    [parsed] = TreeParser.from_pretrained("fast-r2d2-tiny")(["The old man, who sleeps, saw a cat."])
    assert parsed._repr_svg_().startswith("<svg") and "sleeps" in parsed._repr_svg_()
    assert parsed.draw() == parsed.tree.draw(parsed.leaves)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fast-r2d2-tiny").mkdir()  # a folder of that name comes first
    with pytest.raises(ValueError, match="fast-r2d2-tiny has no config.json"):
        TreeParser.from_pretrained("fast-r2d2-tiny")
