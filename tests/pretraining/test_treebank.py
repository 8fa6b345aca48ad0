"""The encoder's own trees, and what is said of chains."""

import numpy as np
import pytest
import torch

from modeling_fast_r2d2 import BinaryTree, FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.grammar_induction import from_spans
from pretraining.count_teacher import CountTeacher, UnitCounts
from pretraining.evaluation import EncoderTrees, TreebankScorer, chain_warnings, tree_figures
from tokenization_fast_r2d2 import DataCollatorForFastR2D2, tokenize_sentences


@pytest.fixture
def teacher(tokenizer):
    random = np.random.default_rng(0)
    begins, ends = random.integers(0, 50, (2, len(tokenizer)))
    return CountTeacher(UnitCounts(np.full(len(tokenizer), 50), begins, ends), skew=0.5)


@pytest.fixture(scope="module")
def gold(sentences):
    return [from_spans(sentence.split(), []) for sentence in sentences[:20]]


def test_the_encoders_trees_are_the_best_of_charts_of_window_4(model, tokenizer, teacher, gold):
    found = EncoderTrees(gold, model, tokenizer, teacher, batch_tokens=60)("counts")
    assert model.training and model.config.window_size == 2
    four = FastR2D2ForPreTraining(FastR2D2Config.from_dict(model.config.to_dict() | {"window_size": 4})).eval()
    four.load_state_dict(model.state_dict())
    for tree, own in zip(gold, found, strict=True):
        encoded = tokenize_sentences(tokenizer, [tree.words], is_split_into_words=True)
        feature = {"input_ids": encoded["input_ids"][0], "atom_spans": encoded["atom_spans"][0]}
        batch = DataCollatorForFastR2D2(tokenizer)([feature])
        output = four.model(**batch, split_scores=teacher(batch["input_ids"]), encoding="chart")
        expected = BinaryTree.from_spans(output.spans[0]).to_words(encoded["word_ids"][0])
        assert own.words == tree.words and own.spans == set(expected.spans)


def test_random_charts_are_the_same_each_time_and_however_they_are_batched(model, tokenizer, gold):
    before = torch.get_rng_state()
    one, other = (EncoderTrees(gold, model, tokenizer, None, tokens) for tokens in (30, 300))
    assert one.names == ["random"] and one("random") == one("random") == other("random")
    assert torch.equal(torch.get_rng_state(), before)


def test_some_sentences_are_taken_evenly(model, tokenizer, teacher, gold):
    for number, expected in ((5, gold[::4]), (3, [gold[0], gold[6], gold[13]]), (20, gold), (500, gold), (None, gold)):
        scorer = TreebankScorer(gold, model, tokenizer, teacher, number)
        assert scorer.encoder.gold == expected
    assert {"f1", "f1_counts", "f1_random", "right_share_counts"} <= scorer().keys()


def test_figures_are_of_the_labels_that_there_are():
    words = "abcd"
    gold = [from_spans(words, [(0, 1)])]
    chain = [from_spans(words, [(0, 3), (1, 3), (2, 3)])]
    assert tree_figures(chain, gold) == {"f1": 0, "right_share": 1, "left_share": 0}
    assert tree_figures([from_spans("ab", [(0, 1)])], [from_spans("ab", [(0, 1)])]) == {"f1": 100}


def test_a_chain_is_warned_of_at_the_second_evaluation():
    chain = {"right_share": 0.9, "left_share": 0.01, "right_share_counts": 0.5, "left_share_counts": 0.3}
    [parser, encoder] = chain_warnings(chain, chain)
    assert "90% of the spans of the parser's trees end with the last word" in parser and "to the right" in parser
    assert "30% of the spans of the encoder's own trees begin" in encoder and "to the left" in encoder
    assert chain_warnings({"right_share": 0.8}, chain) == [] == chain_warnings({}, {})
