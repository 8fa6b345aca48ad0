"""The grammar's posteriors against sums over all trees and classes; its rules against counts of the trees."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors
from pretraining import grammar as module
from pretraining.grammar import LEAST_POSTERIOR, Grammar, kept_spans, learn_grammar
from pretraining.guidance import Guide, minimum_risk_scores
from pretraining.recipe import Settings

LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@pytest.fixture
def few_classes(monkeypatch):
    monkeypatch.setattr(module, "NUM_CLASSES", 3)
    monkeypatch.setattr(module, "NUM_PIECE_CLASSES", 2)


def drawn_grammar(seed, vocab_size=9):
    torch.manual_seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NUM_CLASSES", 2)
        patch.setattr(module, "NUM_PIECE_CLASSES", 3)
        grammar = Grammar(vocab_size)
    grammar.rules.copy_(torch.rand(grammar.rules.shape).flatten(1).softmax(1).view_as(grammar.rules))
    grammar.roots.copy_(torch.rand(2).softmax(0))
    grammar.piece_classes.copy_(torch.randint(2, 5, (vocab_size,)))
    return grammar


def trees_with_weights(grammar, ids, scores, first, last):
    """Every tree over ``first ... last`` as a set of spans, with its weight for each class of the whole."""
    if first == last:
        yield set(), {int(grammar.piece_classes[ids[first]]): 1.0}
        return
    total = sum(math.exp(score) for score in scores[first:last])
    for split in range(first, last):
        share = math.exp(scores[split]) / total
        parts = (trees_with_weights(grammar, ids, scores, *ends) for ends in ((first, split), (split + 1, last)))
        for (left, of_left), (right, of_right) in itertools.product(*parts):
            weights = dict.fromkeys(range(len(grammar.roots)), 0.0)
            for whole, a, b in itertools.product(weights, of_left, of_right):
                weights[whole] += share * grammar.rules[whole, a, b].item() * of_left[a] * of_right[b]
            yield left | right | {(first, last)}, weights


@given(st.integers(0, 99), LENGTHS, st.sampled_from([0.3, 2.0, 9.0]))
def test_posteriors_are_sums_over_all_trees_and_classes(seed, lengths, spread):
    grammar = drawn_grammar(seed)
    ids = torch.randint(0, 9, (len(lengths), max(lengths)))
    scores = spread * torch.randn(len(lengths), max(lengths) - 1, dtype=torch.double)
    found = grammar.span_posteriors(ids, scores, torch.tensor(lengths))
    assert found.shape == (len(lengths), max(lengths), max(lengths) + 1) and not found.requires_grad
    kept = kept_spans(scores, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        expected, total = torch.zeros_like(found[row]), 0.0
        for tree, weights in trees_with_weights(grammar, ids[row], scores[row].tolist(), 0, length - 1):
            if tree and all(kept[row, first, last - first + 1] for first, last in tree):
                weight = sum(grammar.roots[whole].item() * weight for whole, weight in weights.items())
                total += weight
                for first, last in tree:
                    expected[first, last - first + 1] += weight
        torch.testing.assert_close(found[row], expected / max(total, 1e-300), atol=1e-6, rtol=1e-5)


def test_long_sentences_neither_overflow_nor_vanish():
    grammar, scores = drawn_grammar(1), 30 * torch.randn(1, 149)
    found = grammar.span_posteriors(torch.randint(0, 9, (1, 150)), scores, torch.tensor([150]))
    assert found.isfinite().all() and found.sum() == pytest.approx(149, rel=1e-3)


@given(st.integers(0, 99), LENGTHS)
def test_the_kept_spans_are_those_that_the_parser_does_not_exclude_and_hold_a_tree(seed, lengths):
    torch.manual_seed(seed)
    scores, lengths = 9 * torch.randn(len(lengths), max(lengths) - 1), torch.tensor(lengths)
    posteriors, kept = span_posteriors(scores, lengths), kept_spans(scores, lengths)
    assert kept[posteriors > LEAST_POSTERIOR].all()
    for row, tree in enumerate(minimum_risk_trees(posteriors, lengths)):
        spans = [(first, last) for first, last in tree.tolist() if first >= 0]
        assert all(kept[row, first, last - first + 1] for first, last in spans)
        others = kept[row] & (posteriors[row] <= LEAST_POSTERIOR)
        assert others.sum() <= len(spans)


def test_without_preferences_it_is_the_parsers_distribution(few_classes):
    scores, lengths = 2 * torch.randn(2, 5), torch.tensor([6, 4])
    ids, mask = torch.randint(0, 9, (2, 6)), (torch.arange(6) < lengths[:, None]).long()
    batch = {"input_ids": ids, "attention_mask": mask}
    assert torch.equal(minimum_risk_scores(scores, batch, Grammar(9)), minimum_risk_scores(scores, batch))


def test_words_are_kept_whole_whatever_the_rules():
    batch = {"input_ids": torch.randint(0, 9, (1, 6)), "attention_mask": torch.ones(1, 6, dtype=torch.long),
             "atom_spans": torch.tensor([[[1, 3], [-1, -1]]])}  # fmt: skip
    for grammar in (None, *map(drawn_grammar, range(5))):
        scores = minimum_risk_scores(torch.tensor([[0.0, 9.0, 0.0, 0.0, 0.0]]), batch, grammar)
        tree = BinaryTree.from_split_scores(scores[0].tolist())
        assert (1, 3) in tree.spans
        assert grammar is not None or (2, 3) in tree.spans


def test_rules_are_counts_of_the_classes_in_trees(few_classes, model, tokenizer):
    model.eval()
    chance = torch.Generator().manual_seed(0)
    batches = []
    for lengths in ([5, 3], [4], [7, 6, 2]):
        ids = torch.randint(5, len(tokenizer), (len(lengths), max(lengths)), generator=chance)
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        ids = ids.masked_fill(mask == 0, tokenizer.pad_token_id)
        batches.append(({"input_ids": ids, "attention_mask": mask},
                        torch.randn(len(lengths), max(lengths) - 1, generator=chance)))  # fmt: skip
    grammar = learn_grammar(model.model, batches, len(tokenizer))
    vectors, trees = [], []
    for batch, scores in batches:
        output = model.model(**batch, split_scores=scores, encoding="forced")
        for row, length in enumerate(batch["attention_mask"].sum(1).tolist()):
            tree = BinaryTree.from_split_scores(scores[row, : length - 1].tolist())
            trees.append((batch["input_ids"][row].tolist(), tree))
            size = batch["input_ids"].shape[1]
            vectors += [output.last_hidden_state[row, size + k].tolist() for k in range(length - 1)]
    vectors = np.array(vectors, np.float32)
    vectors = (vectors - vectors.mean(0)) / (vectors.std(0) + 1e-6)
    found = module.MiniBatchKMeans(3, n_init=3, random_state=0, batch_size=8192).fit_predict(vectors)
    classes, rules, roots = iter(found.tolist()), torch.full((3, 5, 5), module.SMOOTHING), torch.ones(3)
    for ids, tree in trees:
        of_span = {tree.spans[k]: next(classes) for k in range(tree.num_leaves - 1)}
        roots[of_span[0, tree.num_leaves - 1]] += 1
        for (first, last), whole in of_span.items():
            split = next(k for k in range(first, last) if tree.spans[k] == (first, last))
            parts = [of_span[span] if span in of_span else int(grammar.piece_classes[ids[span[0]]])
                     for span in ((first, split), (split + 1, last))]  # fmt: skip
            rules[(whole, *parts)] += 1
    torch.testing.assert_close(grammar.rules, rules / rules.sum((1, 2), keepdim=True))
    torch.testing.assert_close(grammar.roots, roots / roots.sum())
    assert grammar.piece_classes.min() >= 3 and grammar.piece_classes.max() < 5


def test_charts_of_a_grammar_come_from_the_snapshot_with_its_bonus(tokenizer, model):
    ids = torch.randint(5, len(tokenizer), (3, 8))
    signs = torch.zeros(3, 7, dtype=torch.int8)
    signs[:, 2] = 1
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    guide, settings = Guide(None, model), Settings("grammar", bounds_bonus=3)
    guide.take_snapshot()
    guide.learn_grammar(settings, [batch | {"split_signs": signs}] * 5)
    assert model.training
    found = guide(settings, batch | {"split_signs": signs})[1].chart_scores
    own = guide.snapshot(ids, torch.full((3,), 8)) + 3.0 * signs
    assert torch.equal(found, minimum_risk_scores(own, batch, guide.grammar))
