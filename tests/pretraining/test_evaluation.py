"""What a run is measured by: losses on other text, trees of a treebank, and what is said of chains."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from modeling_fast_r2d2 import BinaryTree, FastR2D2Config, FastR2D2ForPreTraining
from modeling_fast_r2d2.grammar_induction import from_spans
from pretraining.batches import Limits
from pretraining.counts import CountTeacher, UnitCounts
from pretraining.data import unigram_losses
from pretraining.evaluation import (
    TreebankScorer,
    chain_warnings,
    draw_trees,
    read_gold_trees,
    tree_figures,
    validation_losses,
)
from tokenization_fast_r2d2 import DataCollatorForFastR2D2, tokenize_sentences


@pytest.fixture
def teacher(tokenizer):
    random = np.random.default_rng(0)
    begins, ends = random.integers(0, 50, (2, len(tokenizer)))
    return CountTeacher(UnitCounts(np.full(len(tokenizer), 50), begins, ends), skew=0.5)


@pytest.fixture(scope="module")
def gold(sentences):
    return [from_spans(sentence.split(), []) for sentence in sentences[:20]]


def run_with(model, tokenizer, sentences):
    features = [{"input_ids": ids} for ids in tokenize_sentences(tokenizer, sentences)["input_ids"]]
    data, epochs = SimpleNamespace(validation=features, tokenizer=tokenizer), SimpleNamespace(limits=Limits(7, 60))
    return SimpleNamespace(accelerator=Accelerator(cpu=True), model=model, data=data, epochs=epochs)


def test_validation_losses_do_not_depend_on_batches(model, tokenizer, sentences):
    run = run_with(model, tokenizer, sentences[:40])
    losses = validation_losses(run)
    collate = DataCollatorForFastR2D2(tokenizer)
    tokens, lm_sum, tree_sum = 0, 0.0, 0.0
    model.eval()
    for feature in run.data.validation:
        output = model(**collate([feature]))
        tokens += len(feature["input_ids"])
        lm_sum += output.lm_loss.item() * len(feature["input_ids"])
        tree_sum += output.tree_loss.item()
    expected = {"validation_lm_loss": lm_sum / tokens, "validation_tree_loss": tree_sum / 40}
    assert losses == pytest.approx(expected, rel=1e-5)


def test_evaluation_draws_no_random_numbers(model, tokenizer, teacher, sentences):
    scorer = TreebankScorer([from_spans(["the", "cat"], [(0, 1)])], model, tokenizer, teacher)
    before = torch.get_rng_state()
    validation_losses(run_with(model, tokenizer, sentences[:4]))
    scorer()
    draw_trees(model, tokenizer, sentences[:2])
    assert torch.equal(torch.get_rng_state(), before)


def test_trees_are_drawn_by_parser_and_chart(model, tokenizer):
    drawing = draw_trees(model, tokenizer, ["the old man walks"])
    assert drawing.startswith("parser:\n") and "\n\nchart:\n" in drawing and drawing.count("walks") == 2


def test_a_scorer_knows_the_trees_of_its_model(model, tokenizer, teacher):
    """Gold trees that are the parser's own have F1 100."""
    words = ["the", "old", "underold", "man", "walks", "quickly"]
    encoded = tokenize_sentences(tokenizer, [words], is_split_into_words=True)
    feature = {"input_ids": encoded["input_ids"][0], "atom_spans": encoded["atom_spans"][0]}
    model.eval()
    output = model.model(**DataCollatorForFastR2D2(tokenizer)([feature]), encoding="forced")
    own = BinaryTree.from_spans(output.spans[0]).to_words(encoded["word_ids"][0])
    assert TreebankScorer([from_spans(words, own.spans)], model, tokenizer, teacher)()["f1"] == 100
    other = frozenset({(0, 1)} - set(own.spans)) or frozenset({(1, 2)})
    assert TreebankScorer([from_spans(words, other)], model, tokenizer, teacher)()["f1"] < 100


def test_unigrams_know_frequencies_alone():
    train, validation = np.array([0, 2, 2, 4]), np.array([0, 1, 0, 1])
    figures = unigram_losses(train, validation)
    assert figures["unigram_entropy"] == pytest.approx(1.5 * math.log(2))
    assert figures["unigram_validation_loss"] == pytest.approx(-(math.log(3 / 12) + math.log(5 / 12)) / 2)


def test_gold_trees_are_taken_by_half_and_have_two_words(tmp_path):
    trees = tmp_path / "trees.mrg"
    trees.write_text("(S (DT The) (NN cat) (. .))\n(S (NN one) (. .))\n(S (A a) (B b))\n", encoding="utf-8")
    assert [tree.words for tree in read_gold_trees(str(trees))] == [("The", "cat"), ("a", "b")]
    assert len(read_gold_trees(str(trees), half="even")) == 2
    with pytest.raises(ValueError, match="no tree of two or more words"):
        read_gold_trees(str(trees), half="odd")
    trees.rename(tmp_path / "wsj_2200.mrg")
    (tmp_path / "wsj_2300.mrg").write_text("(S (A test) (B text))")
    assert len(read_gold_trees(str(tmp_path), "validation")) == 2


def test_the_encoders_trees_are_the_best_of_charts_of_window_4(model, tokenizer, teacher, gold):
    found = TreebankScorer(gold, model, tokenizer, teacher, batch_tokens=60).encoder_trees()
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


def test_some_sentences_are_taken_evenly(model, tokenizer, teacher, gold):
    for number, expected in ((5, gold[::4]), (3, [gold[0], gold[6], gold[13]]), (20, gold), (500, gold), (None, gold)):
        scorer = TreebankScorer(gold, model, tokenizer, teacher, number)
        assert scorer.some == expected
    assert {"f1", "f1_counts", "right_share_counts"} <= scorer().keys()


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
    assert chain_warnings(chain, chain, (0.5, 0.29)) == [parser]  # as gold trees of Japanese begin with the first word
