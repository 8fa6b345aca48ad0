"""The losses of pretraining, and what a step makes of them."""

import copy
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from modeling_fast_r2d2 import parameter_groups
from pretraining.batches import Step
from pretraining.guidance import Guide
from pretraining.loop import Counts, take_step
from pretraining.losses import LOSSES, Guidance, Loss, Objective, check_stages, leave_parameters_out
from pretraining.options import TrainingOptions
from pretraining.recipe import Ramp, Settings, Stage
from pretraining.run import make_optimizer

LM, TREE, CHOICE = LOSSES[:3]
[TOPIC] = [loss for loss in LOSSES if loss.name == "topic"]


@pytest.fixture
def objective(tiny_model):
    return Objective(tiny_model)


def take_one_step(objective, batches, settings, optimizer=None, max_grad_norm=1.0, accelerator=None):
    """The means of a step's losses, after its update."""
    accelerator = accelerator or Accelerator(cpu=True)
    optimizer = accelerator.prepare(optimizer or make_optimizer(objective, TrainingOptions()))
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    sentences = sum(len(batch["input_ids"]) for batch in batches)
    step, counts = Step(batches, tokens, sentences), Counts(tokens, sentences)
    options = SimpleNamespace(training=TrainingOptions(max_grad_norm=max_grad_norm))
    run = SimpleNamespace(accelerator=accelerator, objective=objective, optimizer=optimizer, settings=settings,
                          guide=Guide(None, objective.model), options=options)  # fmt: skip
    return take_step(run, step, counts)


def with_bounds(batch):
    rows, length = batch["input_ids"].shape
    return batch | {"split_signs": torch.zeros(rows, length - 1, dtype=torch.int8)}


def test_the_papers_losses_are_those_of_the_model(objective, a_batch):
    expected, found = objective.model(**a_batch), objective(a_batch, Guidance(), [LM, TREE])
    assert found["lm"] / 27 == expected.lm_loss and found["tree"] / 5 == expected.tree_loss


def test_charts_are_pruned_by_given_scores_while_the_tree_loss_keeps_the_parsers(objective, a_batch):
    scores = torch.randn(5, 8)
    found = objective(a_batch, Guidance(chart_scores=scores), [LM, TREE])
    plain, given = objective.model(**a_batch), objective.model(**a_batch, split_scores=scores)
    assert found["lm"] / 27 == given.lm_loss != plain.lm_loss
    found["tree"].backward()
    assert all(parameter.grad is not None for parameter in objective.model.model.parser.parameters())


def test_forced_trees_may_be_those_of_given_scores(objective, a_batch):
    scores = torch.randn(5, 8)
    objective.eval()
    expected = objective.model.model(**a_batch, encoding="forced", split_scores=scores).pooler_output
    found = objective.encode(a_batch, Guidance("forced", chart_scores=scores))
    torch.testing.assert_close(found.encoded.nodes[found.chart.roots], expected)


@pytest.mark.parametrize("apart", [True, False])
def test_the_language_models_gradient_can_be_kept_from_the_choice(objective, a_batch, apart):
    if not apart:
        objective.model.model.composition.stack.register_forward_hook(lambda *_: None)
    score, values = objective.model.model.composition.score.weight, []
    for lm_trains_choice in (True, False):
        guidance = Guidance(lm_trains_choice=lm_trains_choice, choice_scores=torch.randn(5, 8))
        found = objective(a_batch, guidance, [LM, CHOICE])
        (gradient,) = torch.autograd.grad(found["lm"], score, retain_graph=True, materialize_grads=True)
        assert bool(gradient.any()) == lm_trains_choice
        (gradient,) = torch.autograd.grad(found["choice"], score)
        assert gradient.any()
        values.append(found["lm"].item())
    assert values[0] == values[1]


def test_scores_of_another_shape_are_refused(objective, a_batch):
    for name in ("chart_scores", "choice_scores"):
        with pytest.raises(ValueError, match="split_scores must be"):
            objective(a_batch, Guidance(**{name: torch.zeros(5, 9)}), [CHOICE])


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_step_follows_the_gradient_of_the_weighted_losses_however_it_is_cut(tiny_model, a_batch, is_cut):
    """Cut, it has a batch without split points, whose losses do not depend on all parameters."""
    plain = copy.deepcopy(tiny_model)
    output = plain(**a_batch)
    (0.25 * output.lm_loss + 0.5 * output.tree_loss).backward()
    whole, order = with_bounds(a_batch), torch.tensor([1, 0, 2, 3, 4])
    one = {name: value[1:2, : int(name != "split_signs")] for name, value in whole.items()}
    batches = [one, {name: value[order[1:]] for name, value in whole.items()}] if is_cut else [whole]
    settings = Settings(tree_weight=0.5, lm_weight=0.25)
    groups = parameter_groups(tiny_model, 1.0, 1.0, 0.0)
    means = take_one_step(Objective(tiny_model), batches, settings, torch.optim.SGD(groups), max_grad_norm=1e9)
    assert means == pytest.approx({"lm": output.lm_loss.item(), "tree": output.tree_loss.item()})
    for (name, now), before in zip(tiny_model.named_parameters(), plain.parameters(), strict=True):
        if not name.endswith("parser.score.bias"):
            torch.testing.assert_close(before - now, before.grad, atol=1e-5, rtol=1e-3)


class Span(nn.Module):
    """A loss with a parameter: constituents' vectors, mapped, are to be 1."""

    def __init__(self, model, guide):
        super().__init__()
        self.map = nn.Linear(model.config.hidden_size, 1)
        self.guide_was_given = guide is not None

    def forward(self, of):
        return (self.map(of.encoded.nodes[of.chart.num_tokens :]) - 1).square().mean()


@pytest.fixture
def span_loss():
    LOSSES.append(Loss("span", Span, "constituents", TOPIC.weight, needs_chart=False))
    yield LOSSES[-1]
    LOSSES.pop()


def test_one_entry_makes_a_loss_whose_parameters_are_trained_but_are_not_the_models(tiny_model, a_batch, span_loss):
    values = {"encoding": "forced", "topic_weight": 1.0, "lm_weight": 0.0, "tree_weight": 0.0}
    stages = (Stage("vectors", 1, None, values),)
    place = LOSSES.index(TOPIC)
    LOSSES.remove(TOPIC)
    try:
        objective = Objective(tiny_model, Guide(None, tiny_model), stages)
        before = {name: value.clone() for name, value in objective.state_dict().items()}
        check_stages(stages)
        means = take_one_step(objective, [with_bounds(a_batch)], stages[0].at(0))
    finally:
        LOSSES.insert(place, TOPIC)
    changed = {name for name, value in objective.state_dict().items() if not value.equal(before[name])}
    assert means.keys() == {"span"} and objective.own["span"].guide_was_given
    assert {"own.span.map.weight", "own.span.map.bias"} <= changed
    assert not any("parser" in name or "score" in name or "lm_head.transform" in name for name in changed)
    assert not any("span" in name for name in tiny_model.state_dict())
    assert not Objective(tiny_model, None, (Stage("plain", 1),)).own


def test_processes_are_told_whether_parameters_rest_in_a_stage(span_loss):
    plain, weighed = Stage("plain", 1), Stage("weighed", 1, None, {"topic_weight": 1.0})
    rising = Stage("rising", 1, None, {"topic_weight": Ramp(0, 1)})
    assert not leave_parameters_out(()) and not leave_parameters_out([plain]) and not leave_parameters_out([weighed])
    for stages in ([plain, weighed], [rising], [Stage("", 1, None, {"encoding": "forced"})],
                   [Stage("", 1, None, {"lm_weight": Ramp(1, 0)})],
                   [Stage("", 1, None, {"lm_trains_choice": False})]):  # fmt: skip
        assert leave_parameters_out(stages)


def test_stages_whose_encoding_has_no_chart_are_refused():
    forced = {"encoding": "forced", "tree_weight": 0.0}
    check_stages([Stage("plain", 1), Stage("forced", 1, None, forced)])
    for values, message in [
        ({"encoding": "forced"}, "stage late: forced encoding has no chart, so tree_weight must be 0"),
        (forced | {"choice_loss": Ramp(0, 1), "tree_weight": 1.0}, "so tree_weight, choice_loss must be 0"),
        (forced | {"lm_weight": Ramp(0, 1)}, "stage late: at its beginning, no loss has a weight above 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_stages([Stage("late", 1, None, values)])
