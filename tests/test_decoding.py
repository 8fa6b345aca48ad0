"""Which tree a model returns: its own, or that of minimum risk."""

import dataclasses

import pytest
import torch

from modeling_fast_r2d2.tree_distribution import TreeDistribution


def test_a_tree_of_minimum_risk_has_the_same_root_and_is_a_tree(tiny_model, a_batch):
    model = tiny_model.model
    best = model(**a_batch, encoding="chart")
    ours = model(**a_batch, encoding="minimum_risk")
    assert torch.equal(best.pooler_output, ours.pooler_output) and torch.equal(best.log_prob, ours.log_prob)
    assert torch.equal(best.spans == -1, ours.spans == -1) and not torch.equal(best.spans, ours.spans)
    lengths = a_batch["attention_mask"].sum(1).tolist()
    for row, n in enumerate(lengths):
        spans = {tuple(span) for span in ours.spans[row, : n - 1].tolist()}
        assert len(spans) == n - 1 and (n == 1 or (0, n - 1) in spans)


def test_a_bonus_is_added_to_scores_and_in_minimum_risk_to_the_encoders_choice(tiny_model, a_batch):
    model = tiny_model.model
    bonus = 3 * torch.randn(a_batch["input_ids"][:, 1:].shape)
    scores = model.parse(**a_batch).split_scores + bonus
    raised = {"split_scores": scores}
    assert torch.equal(model.parse(**a_batch, split_bonus=bonus).spans, model.parse(**a_batch, **raised).spans)
    for encoding in ("forced", "chart"):
        ours, expected = (model(**a_batch, encoding=encoding, **more) for more in ({"split_bonus": bonus}, raised))
        assert torch.equal(ours.spans, expected.spans) and torch.equal(ours.split_scores, scores)
        assert torch.equal(ours.pooler_output, expected.pooler_output)
    batch = model.read_batch(**a_batch, atom_spans=None, **raised)
    chart, encoded = model.encode_batch(batch, "chart", reachable_only=True)
    of_encoder = TreeDistribution(chart, encoded.choices()).add_bonus(batch.sentences.flatten(bonus))
    of_parser = TreeDistribution.of_parser(chart, batch.sentences.flatten(scores))
    chosen = of_encoder.minimum_risk(of_parser)
    expected = model.output_fields(batch, chart, dataclasses.replace(encoded, chosen=chosen))["spans"]
    options = {"encoding": "minimum_risk"}
    assert torch.equal(model(**a_batch, **options, split_bonus=bonus).spans, expected)
    assert not torch.equal(model(**a_batch, **options, **raised).spans, expected)


def test_infinite_scores_have_no_minimum_risk_and_no_losses(tiny_model, a_batch):
    infinite = torch.full(a_batch["input_ids"][:, 1:].shape, float("inf"))
    with pytest.raises(ValueError, match="infinity in split_scores; a tree of minimum risk needs finite scores and a"):
        tiny_model.model(**a_batch, encoding="minimum_risk", split_bonus=infinite)
    with pytest.raises(ValueError, match="infinity in split_scores"):
        tiny_model.model(**a_batch, encoding="minimum_risk", split_scores=infinite)
    with pytest.raises(ValueError, match="encoding must be one of forced, chart, heuristic, got 'minimum_risk'"):
        tiny_model(**a_batch, encoding="minimum_risk")
