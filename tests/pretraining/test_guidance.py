"""What settings ask of the model, and what a step makes of its losses."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from pretraining.batches import Step
from pretraining.count_teacher import CountTeacher, UnitCounts
from pretraining.guidance import CollatorWithBounds, Guide, argument_names, check_arguments, loss_weights
from pretraining.optimisation import make_optimizer, objective
from pretraining.options import TrainingOptions
from pretraining.settings import Ramp, Settings, Stage
from pretraining.step import Counts, loss_sums, take_step

TAUGHT = {"chart_scores": "mixed", "counts_share": Ramp(1, 0), "choice_loss": 0.5, "lm_trains_choice": False,
          "height_penalty": 2.0}  # fmt: skip


@pytest.fixture(scope="module")
def teacher():
    counts = np.random.default_rng(0).integers(1, 50, (3, 100))
    return CountTeacher(UnitCounts(*counts), skew=1.0)


@pytest.fixture
def guided(a_batch):
    """A batch with places of punctuation, the first two split points of each sentence."""
    bounds = torch.zeros(len(a_batch["input_ids"]), a_batch["input_ids"].shape[1] - 1, dtype=torch.bool)
    bounds[:, :2] = True
    return a_batch | {"bounds": bounds}


def asked(guide, settings, batch):
    """Arguments beside the batch's own."""
    arguments = guide.arguments(settings, batch)
    return {name: value for name, value in arguments.items() if name not in batch}


def test_the_papers_settings_ask_for_nothing(guided):
    arguments = Guide(None, None).arguments(Settings(), guided)
    assert arguments.keys() == guided.keys() - {"bounds"}
    assert argument_names(Stage("", 1)) == set()


def test_settings_become_arguments(guided, teacher):
    scores, guide = teacher(guided["input_ids"]), Guide(teacher, None)
    [(name, found)] = asked(guide, Settings(chart_scores="counts"), guided).items()
    assert name == "chart_scores" and torch.equal(found, scores)
    arguments = asked(guide, Stage("", 1, None, TAUGHT).at(0.5), guided)
    assert arguments.keys() == argument_names(Stage("", 1, None, TAUGHT))
    assert torch.equal(arguments["choice_scores"], scores) and torch.equal(arguments["chart_scores"], scores)
    assert arguments["lm_trains_choice"] is False and arguments["height_threshold"] == 0.35


def test_the_share_of_counts_is_a_share_of_the_sentences(teacher):
    ids = torch.ones(4000, 2, dtype=torch.long)
    batch, guide = {"input_ids": ids, "bounds": torch.zeros(4000, 1, dtype=torch.bool)}, Guide(teacher, None)
    rows = asked(guide, Settings("mixed", counts_share=0.3), batch)["chart_rows"]
    assert rows.dtype == torch.bool and rows.float().mean() == pytest.approx(0.3, abs=0.03)
    assert "chart_scores" not in asked(guide, Settings("mixed", counts_share=0.0), batch)
    assert "chart_rows" not in asked(guide, Settings("mixed", counts_share=1.0), batch)


def test_punctuation_raises_scores_by_its_bonus(guided, teacher, tiny_model):
    tiny_model.train()
    guide, bonus = Guide(teacher, tiny_model), 3.0 * guided["bounds"]
    own = tiny_model.eval().parse(guided["input_ids"], guided["attention_mask"]).split_scores
    tiny_model.train()
    by_counts = asked(guide, Settings("counts", choice_loss=1, bounds_bonus=3), guided)
    assert torch.equal(by_counts["chart_scores"], teacher(guided["input_ids"]) + bonus)
    assert torch.equal(by_counts["choice_scores"], by_counts["chart_scores"])
    settings = Settings(choice_loss=1, choice_scores="snapshot", bounds_bonus=3)
    guide.take_snapshot()
    torch.nn.init.zeros_(tiny_model.model.parser.score.bias)
    torch.nn.init.constant_(tiny_model.model.parser.score.weight, 0.5)
    now = tiny_model.eval().parse(guided["input_ids"], guided["attention_mask"]).split_scores
    tiny_model.train()
    by_parser = asked(guide, settings, guided)
    wanted = {"choice_loss": 1, "choice_scores": "snapshot", "bounds_bonus": 3}
    assert by_parser.keys() == argument_names(Stage("", 1, None, wanted)) and tiny_model.training
    assert torch.allclose(by_parser["choice_scores"], own + bonus) and not torch.allclose(own, now)
    assert torch.allclose(by_parser["chart_scores"], now + bonus) and not by_parser["chart_scores"].requires_grad
    by_snapshot = asked(guide, Settings("snapshot", bounds_bonus=2), guided)
    assert by_snapshot.keys() == argument_names(Stage("", 1, None, {"chart_scores": "snapshot"})) == {"chart_scores"}
    assert torch.allclose(by_snapshot["chart_scores"], own + bonus * 2 / 3)
    assert torch.allclose(asked(guide, Settings("snapshot"), guided)["chart_scores"], own)
    mixed = asked(guide, Settings("mixed", counts_share=0.5, bounds_bonus=3), guided)["chart_scores"]
    for row in range(len(mixed)):
        assert any(torch.equal(mixed[row], one["chart_scores"][row]) for one in (by_counts, by_parser))


def test_names_lower_scores_by_their_bonus(guided, teacher):
    bounds = guided["bounds"].to(torch.int8)
    bounds[:, 2] = -1
    guided, scores = guided | {"bounds": bounds}, teacher(guided["input_ids"])
    settings = Settings("counts", choice_loss=1, bounds_bonus=3, names_bonus=5, choice_bonus=2)
    found = asked(Guide(teacher, None), settings, guided)
    names = -5.0 * (bounds < 0)
    assert torch.equal(found["chart_scores"], scores + (3.0 * (bounds > 0) + names))
    assert torch.equal(found["choice_scores"], scores + (2.0 * (bounds > 0) + names))
    assert argument_names(Stage("", 1, None, {"names_bonus": 5})) == {"chart_scores"}


def test_the_copied_scores_may_have_a_bonus_of_their_own(guided, teacher):
    scores = teacher(guided["input_ids"])
    for settings in (
        Settings("counts", choice_loss=1, choice_bonus=3),
        Settings("counts", choice_loss=1, bounds_bonus=3, choice_bonus=0),
    ):
        found = asked(Guide(teacher, None), settings, guided)
        assert torch.equal(found["choice_scores"], scores + settings.choice_bonus * guided["bounds"])
        assert torch.equal(found["chart_scores"], scores + settings.bounds_bonus * guided["bounds"])


def test_batches_know_where_punctuation_stood(tokenizer):
    features = [
        {"input_ids": [1, 2, 3], "bounds": [1], "names": [0]},
        {"input_ids": [1, 2, 3, 4], "bounds": [0, 2]},
        {"input_ids": [1]},
    ]
    batch = CollatorWithBounds(tokenizer)(features)
    assert batch["bounds"].tolist() == [[-1, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert CollatorWithBounds(tokenizer)(features[2:])["bounds"].shape == (1, 0)


def test_a_stage_that_the_model_cannot_serve_is_refused(tiny_model):
    def forward(input_ids, chart_scores=None, chart_rows=None, choice_scores=None): ...

    check_arguments((Stage("plain", 1, None, {"window_size": 2}),), tiny_model.forward)
    with pytest.raises(ValueError, match="stage late needs a model whose forward takes height_threshold, lm_trains"):
        check_arguments((Stage("plain", 1), Stage("late", 1, None, TAUGHT)), forward)


def test_losses_are_summed_over_what_they_are_means_of():
    def model(input_ids, attention_mask):
        means = {"lm_loss": 2.0, "tree_loss": 3.0, "height_loss": 0.25}
        return SimpleNamespace(choice_loss=None, **{name: torch.tensor(mean) for name, mean in means.items()})

    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    sums = loss_sums(model, {"input_ids": mask, "attention_mask": mask})
    assert sums.tolist() == [2 * 5, 3 * 2, 0, 0.25 * 2]
    assert objective(sums, 10, 4, 1).item() == pytest.approx(1 + 1.5)
    weights = loss_weights(Settings(tree_weight=0.5, height_penalty=2.0, choice_loss=9.0))
    assert objective(sums, 10, 4, 3, weights).item() == pytest.approx(3 * (1 + 0.75 + 2 * 0.125))


class Served(FastR2D2ForPreTraining):
    """Takes what is asked for and returns losses that say whether it came."""

    def forward(self, chart_scores=None, choice_scores=None, height_threshold=None, **batch):
        output = super().forward(**batch)
        output["choice_loss"] = choice_scores.mean().abs() if choice_scores is not None else None
        output["height_loss"] = None if height_threshold is None else output.tree_loss
        self.seen = chart_scores
        return output


def test_a_step_weighs_what_a_stage_asks_for(tiny_config, guided, teacher):
    model, accelerator = Served(tiny_config), Accelerator(cpu=True)
    optimizer = accelerator.prepare(make_optimizer(model, TrainingOptions()))
    tokens = int(guided["attention_mask"].sum())
    step, counts = Step([guided], tokens, 5), Counts(tokens, 5, 0, {})
    settings = Settings(chart_scores="counts", choice_loss=0.5, height_penalty=2.0)
    losses = take_step(accelerator, model, optimizer, step, counts, 1.0, settings, Guide(teacher, model)).losses
    assert losses["choice_loss"] == pytest.approx(teacher(guided["input_ids"]).mean().abs().item())
    assert losses["height_loss"] == pytest.approx(losses["tree_loss"]) and model.seen is not None
    guide = Guide(None, model)
    assert take_step(accelerator, model, optimizer, step, counts, 1.0, guide=guide).losses.keys() == {
        "lm_loss",
        "tree_loss",
    }
