import copy
import math
from dataclasses import asdict
from functools import partial

import pytest
import torch
from accelerate import Accelerator

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from pretraining.loop import clip_gradients, drop_gradients, set_learning_rates
from pretraining.losses import Objective, sizes
from pretraining.options import DataOptions, ModelOptions, Options, OutputOptions, TrainingOptions
from pretraining.recipe import Plan, Ramp, Settings, Stage
from pretraining.run import Progress, make_optimizer

from .test_losses import take_one_step, with_bounds


@pytest.fixture
def optimizer(tiny_model):
    options = TrainingOptions(learning_rate=0.5, parser_learning_rate=0.25, weight_decay=0.1)
    return make_optimizer(Objective(tiny_model), options)


@pytest.mark.parametrize("fused", [False, True])
def test_a_float16_step_of_infinite_gradients_is_skipped_and_the_scale_falls(tiny_model, a_batch, fused, monkeypatch):
    """A fused optimiser leaves its weights alone without a word to accelerate."""
    accelerator, objective = Accelerator(cpu=True), Objective(tiny_model)
    accelerator.native_amp, accelerator.scaler = True, torch.amp.GradScaler("cpu")
    monkeypatch.setattr(Accelerator, "mixed_precision", "fp16")  # which accelerate has on a GPU only
    optimizer = accelerator.prepare(make_optimizer(objective, TrainingOptions(), "cuda" if fused else "cpu"))
    step = partial(take_one_step, objective, [with_bounds(a_batch)], Settings(), optimizer, accelerator=accelerator)
    before, weight = copy.deepcopy(tiny_model.state_dict()), tiny_model.model.composition.blend.weight
    overflow = weight.register_hook(lambda gradient: gradient * math.inf)
    for _ in range(2):
        assert step() is None
    torch.testing.assert_close(tiny_model.state_dict(), before, rtol=0, atol=0)
    assert accelerator.scaler.get_scale() == 65536 / 4
    overflow.remove()
    assert step() is not None
    assert not weight.equal(before["model.composition.blend.weight"])


def test_each_group_is_clipped_by_its_own_norm(optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.full_like(parameter, 3.0 if group["name"] == "encoder" else 1e-5)
    before = {group["name"]: group["params"][0].grad.clone() for group in optimizer.param_groups}
    norms = clip_gradients(optimizer, 1.0)
    assert norms["encoder"] > 1 > norms["parser"] > 0
    encoder = [p.grad for g in optimizer.param_groups if g["name"] == "encoder" for p in g["params"]]
    assert torch.cat([g.flatten() for g in encoder]).norm() == pytest.approx(1, rel=1e-4)
    parser = next(g["params"][0].grad for g in optimizer.param_groups if g["name"] == "parser")
    assert torch.equal(parser.flatten()[:1], before["parser"].flatten()[:1])
    clip_gradients(optimizer, 0)  # clips nothing
    assert torch.cat([g.flatten() for g in encoder]).norm() == pytest.approx(1, rel=1e-4)


def test_a_forgotten_group_begins_afresh(tiny_config):
    """Its first update is of the learning rate's size, however late it comes."""
    model = FastR2D2ForPreTraining(tiny_config)
    optimizer = make_optimizer(Objective(model), TrainingOptions(parser_learning_rate=1e-2))
    weight = model.model.parser.dense.weight
    before = weight.detach().clone()
    for step in range(50):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.full_like(parameter, 0.5)
        if step < 49:
            drop_gradients(optimizer, "parser")
        optimizer.step()
        assert step == 49 or torch.equal(weight, before)
    assert (weight - before * (1 - 1e-4)).abs().max().item() == pytest.approx(1e-2, rel=1e-3)


def rates_of(optimizer, num_steps, plan, **options):
    """Those of encoder and parser, step by step."""
    options = TrainingOptions(learning_rate=0.5, parser_learning_rate=0.25, **options)
    for step in range(num_steps):
        set_learning_rates(optimizer, step, num_steps, plan.at(step), options)
        yield tuple({group["name"]: group["lr"] for group in optimizer.param_groups}.values())


def test_rates_rise_and_fall_linearly(optimizer):
    rates = list(rates_of(optimizer, 12, Plan(), warmup_steps=4))
    seen = [encoder / 0.5 for encoder, _ in rates]
    assert seen == pytest.approx([0, 0.25, 0.5, 0.75, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert all(encoder == 2 * parser for encoder, parser in rates)


def test_a_stage_sets_its_own_rates(optimizer):
    stages = Stage("up", 4, None, {"learning_rate": Ramp(0, 1)}), Stage("usual", 4)
    encoder, parser = zip(*rates_of(optimizer, 8, Plan(stages), warmup_steps=2), strict=True)
    assert encoder == pytest.approx([0, 0.25, 0.5, 0.75, 0.5 * 4 / 6, 0.5 * 3 / 6, 0.5 * 2 / 6, 0.5 * 1 / 6])
    assert parser == pytest.approx([0, 0.125, 0.25, 0.25 * 5 / 6, *(0.25 * k / 6 for k in (4, 3, 2, 1))])


def test_stages_are_checked_with_the_options():
    def options(values, **data):
        size = data.pop("per_device_train_batch_size", 64)
        training = TrainingOptions(size, max_steps=data.pop("max_steps", None))
        stages = (Stage("", 3, None, values),)
        return Options(DataOptions(["a"], **data), ModelOptions(), training, OutputOptions("out"), stages)

    for values, more, message in [
        ({}, {"max_steps": 3}, "leave --max_steps out"),
        ({"memory_weight": 1.0}, {}, "keeps what a given model knows; give one as --model"),
        ({"chart_scores": "grammar"}, {"streaming": True}, "learnt from all over the corpus; leave --streaming out"),
        ({"topic_weight": 1.0}, {"streaming": True}, "count vectors need the whole corpus; leave --streaming out"),
    ]:
        with pytest.raises(ValueError, match=message):
            options(values, **more)
    plain = options({}, streaming=True).that_decide_weights()
    taught = options({"choice_loss": 1.0}, counts_skew=1.0).that_decide_weights()
    assert "counts_skew" not in plain and taught["counts_skew"] == 1.0 and "recipe" not in taught
    fallen = {"choice_scores": "snapshot", "choice_loss": 1.0, "skew": 0.1}  # by a share of counts_skew
    loosened = {"chart_scores": "minimum_risk", "pairs_bonus": 3}
    for values in (fallen, loosened):
        assert options(values, counts_skew="2").that_decide_weights()["counts_skew"] == "2"
    assert taught["stages"] == [{"name": "", "steps": 3, "tokens": None, "values": {"choice_loss": 1.0}}]


def test_points_of_the_curve_are_means_over_tokens_and_sentences():
    progress = Progress()
    progress.add({"lm": 2.0, "tree": 1.0}, sizes(tokens=10, sentences=1), seconds=1.0)
    progress.skip(seconds=1.0)
    progress.add({"lm": 5.0, "tree": 4.0, "choice": 0.5}, sizes(tokens=30, sentences=2), seconds=1.0)
    point = progress.end_point({})
    assert (point["step"], point["skipped"], point["tokens"]) == (3, 1, 40)
    assert (point["lm_loss"], point["tree_loss"], point["tokens_per_second"]) == (4.25, 3.0, 20.0)
    assert point["choice_loss"] == 0.5 and "choice_number" not in point
    assert "lm_loss" not in progress.end_point({})
    assert Progress(**asdict(progress)) == progress


@pytest.mark.parametrize("data, training, message", [
    ({}, {"num_train_epochs": 0}, "num_train_epochs must be >= 1, got 0"),
    ({"max_length": 0}, {}, "max_length must be >= 1"),
    ({"max_length": 300}, {"per_device_train_batch_tokens": 200}, "per_device_train_batch_tokens, got 200"),
    ({}, {"seed": -1}, "seed must be >= 0, got -1"),
    ({}, {"learning_rate": float("nan")}, "learning_rate must be >= 0, got nan"),
    ({"num_proc": 0}, {}, "num_proc must be >= 1"),
    ({"vocab_size": "300.5"}, {}, "vocab_size must be auto or a whole number"),
    ({"length": "0"}, {}, "length must be auto or a finite number above 0, got '0'"),
    ({"streaming": True}, {}, "give --max_steps"),
    ({"streaming": True, "dataloader_num_workers": 1}, {"max_steps": 5}, "leave --dataloader_num_workers at 0"),
])  # fmt: skip
def test_options_are_checked(data, training, message):
    with pytest.raises(ValueError, match=message):
        Options(DataOptions(["a"], **data), ModelOptions(), TrainingOptions(**training), OutputOptions("out"))
