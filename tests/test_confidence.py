"""Confidences of constituents: the closed form against the sum over all trees, and what flat trees leave out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import FastR2D2ForConstituencyParsing
from modeling_fast_r2d2.grammar_induction.consensus import span_posteriors
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from tokenization_fast_r2d2.confidence import Calibration, Evidence, confidences, evidence_of, split_probabilities
from tokenization_fast_r2d2.reading import sentences_to_parse

scores_lists = st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=9)
words_and_marks = st.sampled_from("the unbelievability New York's saw , ( ) car".split())


@given(scores_lists)
def test_probabilities_are_those_of_all_trees(scores):
    posteriors = span_posteriors(torch.tensor([scores], dtype=torch.float64), torch.tensor([len(scores) + 1]))[0]
    spans = [(i, j) for i in range(len(scores) + 1) for j in range(i + 1, len(scores) + 1)]
    found = split_probabilities(np.array(scores, np.float32), spans)
    np.testing.assert_allclose(found, [posteriors[i, j - i + 1] for i, j in spans], rtol=1e-6, atol=1e-12)
    for shift in (-2000, 2000):  # as a large bonus shifts the scores of a sentence of names alone
        np.testing.assert_allclose(split_probabilities(np.array(scores) + shift, spans), found, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("bonus", [100, 1000, 1e6])
def test_a_bonus_that_forces_a_split_says_nothing_of_what_lies_on_its_sides(bonus):
    spans = [(0, 7), (0, 3), (0, 2), (1, 2), (4, 7), (4, 6), (5, 6)]
    forced = split_probabilities(np.array([3, 0, 5, bonus, 2, -4, 1.0]), spans)
    sides = [split_probabilities(np.array(scores), of) for scores, of in (
        ([3, 0, 5.0], [(0, 2), (1, 2)]), ([2, -4, 1.0], [(0, 2), (1, 2)]),
    )]  # fmt: skip
    np.testing.assert_allclose(forced, [1, 1, *sides[0], 1, *sides[1]], rtol=1e-8)


def test_calibration_scales_and_moves_the_log_odds():
    odds = np.log(np.array([0.2, 0.5, 0.9]) / np.array([0.8, 0.5, 0.1]))
    moved = 0.5 * odds - 1 - 0.3 * np.array([1, 0, 0]) - 0.2 * np.log([2, 3, 9])
    nothing, places = np.zeros((9, 4)), np.zeros((4, 4), int)
    evidence = Evidence([0, 1, 2, 3], np.array([0.2, 0.5, 0.9, 1.0]), np.array([2, 3, 9, 4]), places)
    np.testing.assert_allclose(Calibration(0.5, -1, -0.3, -0.2)(evidence, nothing), [*(1 / (1 + np.exp(-moved))), 1.0])
    extreme = Evidence([0, 1], np.array([0.0, 1 - 1e-15]), np.array([2, 3]), places[:2])
    assert (Calibration()(extreme, nothing) >= 0).all()


@given(st.lists(words_and_marks, min_size=1, max_size=9), st.booleans())
def test_words_add_what_the_weights_say_of_their_places(model, tokenizer, words, pieces):
    """A weight that is drawn, against a sum for each constituent by hand; marks are looked past."""
    assert model.config.confidence_words
    of_parser, weight = model.model.parser, torch.randn(4, model.config.parser_embedding_size) / 5
    parser = TreeParser(model, tokenizer, pieces=pieces)
    of_parser.confidence_weight.zero_()
    [without] = parser([words], is_split_into_words=True)
    of_parser.confidence_weight.copy_(weight)
    [parsed] = parser([words], is_split_into_words=True)
    [read] = parser.read([words], is_split_into_words=True)
    ids, offsets = read.input_ids, read.piece_offsets
    odds = (of_parser.embeddings.weight @ weight.T).tolist()
    for (first, last), before, after in zip(parsed.span_offsets, without.confidences, parsed.confidences, strict=True):
        within = [piece for piece, (start, end) in enumerate(offsets) if first <= start and end <= last]
        if before == 1:
            assert after == 1
            continue
        beside = [(within[0], 0), (within[-1], 1), (within[0] - 1, 2), (within[-1] + 1, 3)]
        added = sum(odds[ids[piece]][place] for piece, place in beside if 0 <= piece < len(ids))
        moved = 1 / (1 + math.exp(-math.log(before / (1 - before)) - added))
        assert after == pytest.approx(moved, abs=1e-5)


def test_weights_of_words_begin_with_zero_and_are_kept_in_float32(tiny_config, tmp_path):
    plain = FastR2D2ForConstituencyParsing(tiny_config)
    assert "parser.confidence_weight" not in plain.state_dict()
    ids = torch.arange(20)
    assert plain.parser.word_odds(ids).count_nonzero() == 0
    plain.save_pretrained(tmp_path)
    model = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path, confidence_words=True)
    assert model.parser.word_odds(ids).count_nonzero() == 0
    model.parser.confidence_weight.normal_()
    model.half().save_pretrained(tmp_path)
    again = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert again.parser.confidence_weight.dtype == torch.float32
    assert torch.equal(again.parser.word_odds(ids), model.parser.word_odds(ids))


@pytest.mark.parametrize("method", ["parser", "minimum_risk"])
def test_parsed_sentences_say_how_sure_they_are(model, tokenizer, method):
    parser = TreeParser(model, tokenizer, method)
    [parsed] = parser(["The old man (he is 80), they say, saw it."])
    leaves = parsed.leaves
    sure = dict(zip(parsed.tree.spans, parsed.confidences.tolist(), strict=True))
    assert sure[0, len(leaves) - 1] == 1 and all(0 <= value <= 1 for value in sure.values())
    inner = [value for value in sure.values() if value < 1]  # the others are in every tree
    assert parsed.confidence == pytest.approx(sum(inner) / len(inner))
    assert parsed.flat(0).brackets(leaves) == parsed.tree.brackets(leaves)
    assert set(parsed.flat(0.5).spans) == {span for span, value in sure.items() if value >= 0.5}
    assert parsed.flat(1).brackets(leaves).count("(") == sum(value == 1 for value in sure.values())
    assert parser([["word"]], is_split_into_words=True)[0].confidence == 1
    for wrong in (-0.1, 1.5, math.nan, "0.5"):
        with pytest.raises(ValueError, match="min_confidence must be from 0 to 1"):
            parsed.draw(wrong)


def test_marks_and_pieces_do_not_change_how_sure_a_parser_is(model, tokenizer):
    """A constituent is as sure as its words; a word with its marks, and pieces within a word, are certain."""
    words = "the unbelievability that lasts".split()
    plain, marked = TreeParser(model, tokenizer)([words, [*words[:2], ",", *words[2:], "."]], is_split_into_words=True)
    [pieces] = TreeParser(model, tokenizer, pieces=True)([words], is_split_into_words=True)
    of_words = dict(zip(plain.tree.spans, plain.confidences.tolist(), strict=True))
    first = {word: pieces.word_ids.index(word) for word in range(4)}
    last = {word: len(pieces.leaves) - 1 - pieces.word_ids[::-1].index(word) for word in range(4)}
    of_pieces = dict(zip(pieces.tree.spans, pieces.confidences.tolist(), strict=True))
    for (i, j), value in of_words.items():
        assert of_pieces[first[i], last[j]] == pytest.approx(value, abs=1e-6)
    within = [value for (i, j), value in of_pieces.items() if pieces.word_ids[i] == pieces.word_ids[j]]
    assert within and set(within) == {1.0}
    assert len(marked.confidences) == 5 and not math.isnan(marked.confidence)


def test_a_constituent_that_tears_a_word_is_not_sure(tokenizer):
    """A chart may join a piece of a word with another word, which no tree over words does."""
    text = "the unbelievability lasts"
    [read] = sentences_to_parse(tokenizer, [text])
    words, leaves = read.word_ids, read.with_pieces_as_words(tokenizer.convert_ids_to_tokens(read.input_ids))
    first, last = words.index(1), len(words) - 1 - words[::-1].index(1)
    assert last - first > 1
    spans = [(0, first), (0, last), (first, last), (first, first + 1), (last, len(words) - 1), (0, len(words) - 1)]
    evidence = evidence_of(leaves, words, np.zeros(2, np.float32), spans)
    found = confidences(evidence, len(spans), Calibration(), np.zeros((len(words), 4)))
    np.testing.assert_allclose(found, [0, 0.5, 1, 1, 0, 1], atol=1e-6)
    assert found[0] == found[4] == 0
    [marked] = sentences_to_parse(tokenizer, ["unbelievability, dogs"], set_marks_aside=True)
    leaves = marked.with_pieces_as_words(tokenizer.convert_ids_to_tokens(marked.input_ids))
    last = marked.word_ids.index(1)  # where the comma stands; before it, the last piece of the first word
    spans = [(last - 1, last), (0, last), (0, last + 1)]
    evidence = evidence_of(leaves, marked.word_ids, np.zeros(1, np.float32), spans)
    assert confidences(evidence, 3, Calibration(), np.zeros((len(marked.word_ids), 4))).tolist() == [0, 1, 1]
