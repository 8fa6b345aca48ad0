"""What settings ask of a batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors
from pretraining.counts import CountTeacher, UnitCounts
from pretraining.guidance import CollatorWithSplitSigns, Guide, loosen_pairs, minimum_risk_scores
from pretraining.losses import Guidance
from pretraining.recipe import Ramp, Settings, Stage

TAUGHT = {"chart_scores": "mixed", "counts_share": Ramp(1, 0), "choice_loss": 0.5, "lm_trains_choice": False}


@pytest.fixture(scope="module")
def teacher():
    counts = np.random.default_rng(0).integers(1, 50, (3, 100))
    return CountTeacher(UnitCounts(*counts), skew=1.0)


@pytest.fixture
def guided(a_batch):
    """A batch with places of punctuation, the first two split points of each sentence; the third is in a name."""
    signs = torch.zeros(len(a_batch["input_ids"]), a_batch["input_ids"].shape[1] - 1, dtype=torch.int8)
    signs[:, :3] = torch.tensor([1, 1, -1])
    return a_batch | {"split_signs": signs}


def asked(guide, settings, batch):
    """What the guidance asks for beside the paper's objective, by name."""
    guidance = vars(guide(settings, batch)[1])
    return {name: value for name, value in guidance.items() if value is not getattr(Guidance, name)}


def test_the_papers_settings_ask_for_nothing(guided):
    inputs, guidance = Guide(None, None)(Settings(), guided)
    assert inputs.keys() == guided.keys() - {"split_signs"}
    assert guidance == Guidance()


def test_settings_become_guidance(guided, teacher, tiny_model):
    scores, guide = teacher(guided["input_ids"]), Guide(teacher, tiny_model)
    found = asked(guide, Settings(chart_scores="counts"), guided)
    assert found.keys() == {"chart_scores"} and torch.equal(found["chart_scores"], scores)
    found = asked(guide, Stage("", 1, None, TAUGHT).at(0.5), guided)
    assert found.keys() == {"chart_scores", "choice_scores", "lm_trains_choice"}
    assert torch.equal(found["choice_scores"], scores)
    own = tiny_model.eval().parse(guided["input_ids"], guided["attention_mask"]).split_scores
    is_counts, is_own = ((found["chart_scores"] == each).all(1) for each in (scores, own))
    assert (is_counts ^ is_own).all()
    assert found["lm_trains_choice"] is False


def test_the_share_of_counts_is_a_share_of_the_sentences(teacher, tiny_model):
    ids = torch.ones(4000, 2, dtype=torch.long)
    signs, guide = torch.zeros(4000, 1, dtype=torch.bool), Guide(teacher, tiny_model)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "split_signs": signs}
    for share in (0.3, 1.0):
        rows = asked(guide, Settings("mixed", counts_share=share), batch)["chart_scores"] == teacher(ids)
        assert rows.float().mean() == pytest.approx(share, abs=0.03)
    assert "chart_scores" not in asked(guide, Settings("mixed", counts_share=0.0), batch)


def test_skew_lowers_every_score_from_left_to_right(guided, teacher, tiny_model):
    own = tiny_model.eval().parse(guided["input_ids"], guided["attention_mask"]).split_scores
    fall = 0.2 * 0.5 * torch.arange(guided["split_signs"].shape[1])
    guide = Guide(teacher, tiny_model, counts_skew=0.5)
    guide.take_snapshot()
    for settings in ({"chart_scores": "counts"}, {"choice_loss": 1.0, "choice_scores": "snapshot"}, {}):
        given = {"chart_scores", "choice_scores"} if "choice_loss" in settings else {"chart_scores"}
        plain, found = (asked(guide, Settings(**settings, skew=skew), guided) for skew in (0.0, 0.2))
        plain.setdefault("chart_scores", own)
        assert found.keys() & {"chart_scores", "choice_scores"} == given
        for name in given:
            torch.testing.assert_close(found[name], plain[name] - fall)
    assert "chart_scores" not in asked(Guide(teacher, tiny_model), Settings(), guided)


def test_punctuation_raises_scores_and_names_lower_them(guided, teacher, tiny_model):
    tiny_model.train()
    guide, punctuation = Guide(teacher, tiny_model), 3.0 * (guided["split_signs"] > 0)
    bonus = punctuation - 5.0 * (guided["split_signs"] < 0)
    own = tiny_model.eval().parse(guided["input_ids"], guided["attention_mask"]).split_scores
    tiny_model.train()
    by_counts = asked(guide, Settings("counts", choice_loss=1, bounds_bonus=3, names_bonus=5), guided)
    assert torch.equal(by_counts["chart_scores"], teacher(guided["input_ids"]) + bonus)
    assert torch.equal(by_counts["choice_scores"], by_counts["chart_scores"])
    settings = Settings(choice_loss=1, choice_scores="snapshot", bounds_bonus=3, names_bonus=5)
    guide.take_snapshot()
    torch.nn.init.zeros_(tiny_model.model.parser.score.bias)
    torch.nn.init.constant_(tiny_model.model.parser.score.weight, 0.5)
    now = tiny_model.eval().parse(guided["input_ids"], guided["attention_mask"]).split_scores
    tiny_model.train()
    by_parser = asked(guide, settings, guided)
    assert tiny_model.training
    assert torch.allclose(by_parser["choice_scores"], own + bonus) and not torch.allclose(own, now)
    assert torch.allclose(by_parser["chart_scores"], now + bonus) and not by_parser["chart_scores"].requires_grad
    by_snapshot = asked(guide, Settings("snapshot", bounds_bonus=2), guided)
    assert by_snapshot.keys() == {"chart_scores"}
    assert torch.allclose(by_snapshot["chart_scores"], own + punctuation * 2 / 3)
    assert torch.allclose(asked(guide, Settings("snapshot"), guided)["chart_scores"], own)
    mixed = asked(guide, Settings("mixed", counts_share=0.5, bounds_bonus=3, names_bonus=5), guided)["chart_scores"]
    for row in range(len(mixed)):
        assert any(torch.equal(mixed[row], one["chart_scores"][row]) for one in (by_counts, by_parser))


@given(st.integers(0, 99), st.lists(st.integers(1, 7), min_size=1, max_size=3))
def test_the_best_tree_of_the_scores_of_minimum_risk_is_that_of_the_consensus(seed, lengths):
    torch.manual_seed(seed)
    scores = 2 * torch.randn(len(lengths), max(lengths) - 1)
    batch = {"attention_mask": (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()}
    expected = minimum_risk_trees(span_posteriors(scores, torch.tensor(lengths)), torch.tensor(lengths))
    noise = 10 * torch.rand(scores.shape)
    for row, length in enumerate(lengths):
        found = BinaryTree.from_split_scores((minimum_risk_scores(scores, batch) + noise)[row, : length - 1].tolist())
        assert found == BinaryTree.from_spans(expected[row])


def test_batches_know_where_punctuation_stood(tokenizer):
    features = [{"input_ids": [1, 2, 3], "bounds": [1], "names": [0]}, {"input_ids": [1, 2, 3, 4], "bounds": [0, 2]}]
    features.append({"input_ids": [1]})
    batch = CollatorWithSplitSigns(tokenizer)(features)
    assert batch["split_signs"].tolist() == [[-1, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert CollatorWithSplitSigns(tokenizer)(features[2:])["split_signs"].shape == (1, 0)


def loosened(tree, scores, bonus):
    """`loosen_pairs`, word by word: a tree is a word or ``(split point, left, right)``."""
    if not isinstance(tree, tuple):
        return tree
    split, left, right = tree
    pair = left if bonus > 0 else right
    is_pair = isinstance(pair, tuple) and not any(isinstance(child, tuple) for child in pair[1:])
    if is_pair and scores[pair[0]] + abs(bonus) > scores[split]:
        if bonus > 0:
            return pair[0], pair[1], (split, pair[2], loosened(right, scores, bonus))
        return pair[0], (split, loosened(left, scores, bonus), pair[1]), pair[2]
    return split, loosened(left, scores, bonus), loosened(right, scores, bonus)


def tree_over_words(spans, word_of, first, last):
    """The tree of some spans over words, which are numbers."""
    if word_of[first] == word_of[last]:
        return word_of[first]
    split = [tuple(span) for span in spans].index((first, last))
    return split, tree_over_words(spans, word_of, first, split), tree_over_words(spans, word_of, split + 1, last)


@given(st.integers(0, 999), st.lists(st.integers(1, 9), min_size=1, max_size=3), st.floats(-20, 20).filter(bool))
def test_pairs_are_loosened_as_one_would_by_hand(seed, lengths, bonus):
    random = np.random.default_rng(seed)
    spans = torch.full((len(lengths), max(lengths) - 1, 2), -1)
    scores = torch.from_numpy(random.normal(0, 5, spans.shape[:2]))
    words = [np.cumsum(np.append(0, random.random(length - 1) < 0.7)).tolist() for length in lengths]
    is_between = torch.ones(spans.shape[:2], dtype=torch.bool)
    for row, of_row in enumerate(words):
        between = torch.tensor(np.diff(of_row) > 0)
        is_between[row, : len(between)] = between
        merged = torch.where(between, scores[row, : len(between)], scores[row, : len(between)] - 1000)
        spans[row, : len(between)] = torch.tensor(BinaryTree.from_split_scores(merged.tolist()).spans).reshape(-1, 2)
    found = loosen_pairs(spans, scores, is_between, bonus)
    for row, of_row in enumerate(words):
        before, after = (tree_over_words(s[row].tolist(), of_row, 0, len(of_row) - 1) for s in (spans, found))
        assert after == loosened(before, scores[row].tolist(), bonus)


def test_a_bonus_for_pairs_goes_with_the_direction_of_the_language(guided, tiny_model):
    for skew in (0.0, 2.0, -2.0):
        guide = Guide(None, tiny_model.eval(), counts_skew=skew)
        guide.take_snapshot()
        with_bonus = asked(guide, Settings("snapshot", bounds_bonus=6), guided)["chart_scores"]
        for bonus in (0.0, 50.0):
            found = asked(guide, Settings("minimum_risk", bounds_bonus=6, pairs_bonus=bonus), guided)["chart_scores"]
            assert torch.equal(found, minimum_risk_scores(with_bonus, guided, pairs_bonus=bonus * skew))
            assert torch.equal(found, minimum_risk_scores(with_bonus, guided)) == (bonus * skew == 0)
