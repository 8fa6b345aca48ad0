"""What guides a model's charts and choices in pretraining."""

import pytest
import torch
from transformers import set_seed

from modeling_fast_r2d2 import FastR2D2ForPreTraining


@pytest.fixture
def model(tiny_config):
    set_seed(0)
    return FastR2D2ForPreTraining(tiny_config).eval()


def test_charts_are_pruned_by_given_scores_while_the_tree_loss_keeps_the_parsers(model, a_batch):
    scores = torch.randn(5, 8)
    guided = model(**a_batch, chart_scores=scores)
    assert guided.split_scores.equal(model(**a_batch).split_scores)
    assert guided.lm_loss == model(**a_batch, split_scores=scores).lm_loss != model(**a_batch).lm_loss
    guided.tree_loss.backward()
    assert all(parameter.grad is not None for parameter in model.model.parser.parameters())
    some = torch.tensor([True, False, False, True, False])
    mixed = model(**a_batch, chart_scores=scores, chart_rows=some).pooler_output
    expected = torch.where(some[:, None], guided.pooler_output, model(**a_batch).pooler_output)
    torch.testing.assert_close(mixed, expected)


@pytest.mark.parametrize("apart", [True, False])
def test_the_language_models_gradient_can_be_kept_from_the_choice(model, a_batch, apart):
    if not apart:
        model.model.composition.stack.register_forward_hook(lambda *_: None)
    score = model.model.composition.score.weight
    for lm_trains_choice in (True, False):
        output = model(**a_batch, lm_trains_choice=lm_trains_choice, choice_scores=torch.randn(5, 8))
        (gradient,) = torch.autograd.grad(output.lm_loss, score, retain_graph=True, materialize_grads=True)
        assert bool(gradient.any()) == lm_trains_choice
        (gradient,) = torch.autograd.grad(output.choice_loss, score)
        assert gradient.any()
    assert output.lm_loss == model(**a_batch).lm_loss


def test_a_taught_choice_is_learnt(model, a_batch):
    scores = torch.randn(5, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = model(**a_batch, choice_scores=scores, lm_trains_choice=False).choice_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_losses_are_returned_where_they_are_asked_for(model, a_batch):
    plain = model(**a_batch)
    assert plain.choice_loss is None and plain.height_loss is None
    guided = model(**a_batch, choice_scores=torch.randn(5, 8), height_threshold=0.0)
    assert guided.loss == plain.loss and guided.choice_loss > 0 and guided.height_loss > 0
    assert model(**a_batch, height_threshold=2.0).height_loss == 0


@pytest.mark.parametrize("guidance", [{"chart_scores": torch.zeros(5, 8)}, {"lm_trains_choice": False}])
def test_the_heuristic_is_not_guided(model, a_batch, guidance):
    with pytest.raises(ValueError, match="without guidance"):
        model(**a_batch, encoding="heuristic", **guidance)


def test_scores_of_another_shape_are_refused(model, a_batch):
    with pytest.raises(ValueError, match="split_scores must be"):
        model(**a_batch, choice_scores=torch.zeros(5, 9))
