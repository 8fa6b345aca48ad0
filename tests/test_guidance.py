"""What guides the choice, against the same by recursion over single cells."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import set_seed

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart
from modeling_fast_r2d2.guidance import choice_loss, height_loss


def a_chart(lengths: list[int], window: int, seed: int):
    """A chart, drawn log p̃ of its candidates with a gradient, and a teacher's merge order."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    shape = len(lengths), int(lengths.max()) - 1
    chart = plan_chart(merge_ranks(torch.randn(shape, generator=generator), lengths), lengths, window)
    logits = torch.randn(chart.splits.shape, generator=generator, dtype=torch.float64, requires_grad=True)
    candidates = logits.masked_fill(chart.splits < 0, float("-inf"))
    return chart, logits, candidates, merge_ranks(torch.randn(shape, generator=generator), lengths)


def height_of(chart, probabilities, node):
    if node < chart.num_tokens:
        return torch.zeros((), dtype=torch.float64)
    row = int(node) - chart.num_tokens
    below = [
        1 + torch.maximum(*(height_of(chart, probabilities, side[row, c]) for side in (chart.left, chart.right)))
        for c, split in enumerate(chart.splits[row].tolist()) if split >= 0
    ]  # fmt: skip
    return sum(p * height for p, height in zip(probabilities[row], below, strict=False))


CHARTS = {
    "lengths": st.lists(st.integers(1, 6), min_size=1, max_size=3), "window": st.integers(1, 3),
    "seed": st.integers(0, 99),
}  # fmt: skip


@given(**CHARTS, threshold=st.sampled_from([0.0, 0.3, 0.6]))
def test_height_loss(lengths, window, seed, threshold):
    chart, logits, candidates, _ = a_chart(lengths, window, seed)
    heights = torch.stack([height_of(chart, candidates.softmax(-1), root) for root in chart.roots])
    twin = (heights / torch.tensor(lengths) - threshold).relu().mean()
    ours = height_loss(chart, candidates, threshold)
    torch.testing.assert_close(ours, twin)
    gradients = [torch.autograd.grad(loss + 0 * logits.sum(), logits, retain_graph=True)[0] for loss in (ours, twin)]
    torch.testing.assert_close(*gradients)


@given(**CHARTS)
def test_choice_loss(lengths, window, seed):
    chart, logits, candidates, ranks = a_chart(lengths, window, seed)
    losses = []
    for row, splits in enumerate(chart.splits.tolist()):
        splits = [split for split in splits if split >= 0]
        if len(splits) > 1:
            best = max(range(len(splits)), key=lambda c: int(ranks[splits[c]]))
            losses.append(candidates[row, : len(splits)].logsumexp(0) - candidates[row, best])
    twin = torch.stack(losses).mean() if losses else torch.zeros((), dtype=torch.float64)
    ours = choice_loss(chart, candidates, ranks)
    torch.testing.assert_close(ours, twin)
    gradients = [torch.autograd.grad(loss + 0 * logits.sum(), logits, retain_graph=True)[0] for loss in (ours, twin)]
    torch.testing.assert_close(*gradients)


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
