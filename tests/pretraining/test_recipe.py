"""Settings of a step are those that the file says; a bad file is refused with what is wrong with it."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pretrain import check_afterwards, parse_options, say_what_has_no_effect

from pretraining.afterwards import command_afterwards
from pretraining.decisions import apply_to_stages
from pretraining.models import read_as_given_model
from pretraining.recipe import Plan, Ramp, Settings, Stage, read_recipe

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"

RECIPE = """
options:
  corpus: [a.txt, b.txt]
  size: tiny
  learning_rate: 2e-3
  use_cpu: true
  treebank: null
stages:
  - name: copy
    steps: 10
    chart_scores: counts
    choice_loss: 1
    lm_trains_choice: false
    learning_rate: {from: 0, to: 2e-3}
  - steps: 4
    chart_scores: mixed
    counts_share: {from: 1, to: 0}
    choice_loss: 0.3
  - tokens: 1_000
    window_size: 3
afterwards:
  - distill: {methods: [parser, chart], substitutes: 3}
  - pretrain: {recipe: settle}
"""
KNOWN = ({"corpus", "size", "learning_rate", "use_cpu", "treebank", "recipe"},
         {"distill": {"methods", "substitutes"}, "pretrain": {"recipe"}})  # fmt: skip


def read(text, tmp_path):
    (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
    return read_recipe(tmp_path / "recipe.yaml", *KNOWN)


def test_settings_of_a_step_are_those_of_its_stage(tmp_path):
    arguments, stages, afterwards = read(RECIPE, tmp_path)
    assert arguments == "--corpus a.txt b.txt --size tiny --learning_rate 2e-3 --use_cpu yes".split()
    assert afterwards[0] == ("distill", "--methods", "parser", "chart", "--substitutes", "3")
    assert afterwards[1] == ("pretrain", "--recipe", "settle")
    plan = Plan(stages, 95.0)
    assert plan.num_steps == 10 + 4 + 11  # 1,000 tokens in steps of 95, rounded
    taught = {"chart_scores": "counts", "choice_loss": 1.0, "lm_trains_choice": False}
    for step in range(10):
        assert plan.at(step) == Settings(**taught, learning_rate=pytest.approx(2e-4 * step))
    shares = [plan.at(step).effective_counts_share for step in range(14)]
    assert shares == [1.0] * 10 + [1.0, 0.75, 0.5, 0.25]
    assert plan.at(10).learning_rate is None and plan.at(13).choice_loss == 0.3
    for step in (14, 24, 25, 1000):
        assert plan.at(step) == Settings(window_size=3) and plan.stage_number(step) == 2
    assert [stage.name for stage in stages] == ["copy", "2", "3"]


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=5))
def test_ramps_are_what_one_gets_by_counting(stages):
    plan = Plan(tuple(Stage("", steps, None, {"tree_weight": Ramp(*ends)}) for steps, *ends in stages))
    expected = [start + (end - start) * done / steps for steps, start, end in stages for done in range(steps)]
    assert [plan.at(step).tree_weight for step in range(plan.num_steps)] == pytest.approx(expected)
    assert plan.at(plan.num_steps).tree_weight == pytest.approx(stages[-1][2])


def test_without_stages_all_is_the_papers():
    assert Plan().at(7) == Settings() and Plan().num_steps == 0 and not Settings().needs_counts


@pytest.mark.parametrize("text, message", [
    ("stages: [", "no recipe could be read"),
    ("- a", "the file must have names and values"),
    ("option: {}", "the file has no option; there are afterwards, options, stages"),
    ("afterwards: [{distill: {size: tiny}}]", "distill has no size; there are methods, substitutes"),
    ("afterwards: [{evaluate: {}}]", "what comes afterwards has no evaluate; there are distill, pretrain"),
    ("afterwards: [{distill: {}, pretrain: {}}]", "what comes afterwards is one of distill, pretrain"),
    ("afterwards: [distill]", "what comes afterwards must have names and values"),
    ("afterwards: {distill: {}}", "afterwards must be a list with a '- distill: ...'"),
    ("options: {sizes: tiny}", "options has no sizes; there are corpus"),
    ("options: {recipe: other.yaml}", "options has no recipe"),
    ("options: {size: {a: b}}", "option size must have a value"),
    ("stages: {steps: 3}", "stages must be a list"),
    ("stages: [3]", "stage 1: a stage must have names"),
    ("stages: [{name: a}]", "stage 1 (a): a stage has either steps or tokens"),
    ("stages: [{steps: 3, tokens: 4}]", "either steps or tokens"),
    ("stages: [{steps: 3, always: 1}]", "always must be true or false, got 1"),
    ("stages: " + "[" * 3000 + "]" * 3000, "no recipe could be read"),
    ("options: {size: 2026-99-99}", "no recipe could be read"),
    ("stages: [{steps: 0}]", "a whole number >= 1; got steps 0"),
    ("stages: [{steps: 3}, {steps: 3, window: 2}]", "stage 2: a stage has no window; there are always, bounds"),
    ("stages: [{steps: 3, window_size: 2.5}]", "window_size must be a whole number, got 2.5"),
    ("stages: [{steps: 3, window_size: true}]", "window_size must be a whole number, got True"),
    ("stages: [{steps: 3, window_size: {from: 1, to: 3}}]", "window_size cannot change within a stage"),
    ("stages: [{steps: 3, window_size: 0}]", "window_size must be >= 1, got 0"),
    ("stages: [{steps: 3, choice_loss: much}]", "choice_loss must be a number, got 'much'"),
    ("stages: [{steps: 3, choice_loss: .nan}]", "choice_loss must be >= 0, got nan"),
    ("stages: [{steps: 3, choice_loss: -1}]", "choice_loss must be >= 0, got -1.0"),
    ("stages: [{steps: 3, choice_loss: {to: 1}}]", "choice_loss must be a value or {from: value, to: value}"),
    ("stages: [{steps: 3, pairs_bonus: 3}]", "pairs_bonus needs chart_scores: minimum_risk or grammar"),
    ("stages: [{steps: 3, lm_trains_choice: 1}]", "lm_trains_choice must be true or false, got 1"),
    ("stages: [{steps: 3, chart_scores: guess}]", "one of parser, snapshot, minimum_risk, grammar, counts, mixed"),
    ("stages: [{steps: 3, chart_scores: mixed}]", "counts_share needs chart_scores: mixed"),
    ("stages: [{steps: 3, counts_share: 0.5}]", "counts_share needs chart_scores: mixed"),
    ("stages: [{steps: 3, counts_share: 2}]", "counts_share must be >= 0 and <= 1, got 2.0"),
])  # fmt: skip
def test_a_bad_file_is_refused_with_its_place(text, message, tmp_path):
    with pytest.raises(ValueError) as error:
        read(text, tmp_path)
    assert message in str(error.value) and "recipe.yaml" in str(error.value)


def test_a_name_alone_is_that_of_a_file_here_or_among_the_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--recipe", "any_language.yaml", "--corpus", "text.txt", "--output_dir", "run"]
    named = parse_options(["--recipe", str(RECIPES / arguments[1]), *arguments[2:]])
    assert parse_options(arguments).stages == named.stages != ()
    assert parse_options(["--recipe", "any_language", *arguments[2:]]).stages == named.stages
    Path("any_language").mkdir()  # of a run
    assert parse_options(["--recipe", "any_language", *arguments[2:]]).stages == named.stages
    Path("any_language.yaml").write_text("options: {size: base}")
    assert parse_options(arguments).model.size == "base"


def test_a_missing_file_is_named():
    with pytest.raises(ValueError, match="there is no recipe 'nowhere.yaml'; give a file, or one of any_language, "):
        read_recipe("nowhere.yaml", *KNOWN)


def test_an_option_of_a_recipe_may_be_no_and_its_name_is_not_shortened(tmp_path):
    (tmp_path / "recipe.yaml").write_text("options: {names: no, mixed_precision: no}", encoding="utf-8")
    given = ["--corpus", "mine.txt", "--output_dir", "out"]
    options = parse_options([*given, "--recipe", str(tmp_path / "recipe.yaml")])
    assert options.data.names == "no" and options.training.mixed_precision == "no"
    with pytest.raises(ValueError, match="--rec"):
        parse_options([*given, "--rec", str(tmp_path / "recipe.yaml")])


@pytest.mark.parametrize("afterwards, more, message", [
    ("{distill: {substitutes: -1}}", [], "--substitutes must be >= 0, got -1"),
    ("{distill: {teachers: fast-r2d2-tiny}}", [], "distill has no teachers"),
    ("{distill: {max_words: 1}}", [], "--max_words must be >= 2, got 1"),
    ("{distill: {config_overrides: parser_no_such=1}}", [], "parser_no_such=1"),
    ("{distill: {treebank: nowhere.mrg}}", [], "no treebank at 'nowhere.mrg'"),
    ("{pretrain: {treebank: nowhere.mrg}}", [], "no treebank at 'nowhere.mrg'"),
    ("{pretrain: {validation: nowhere.txt}}", [], "no text at 'nowhere.txt'"),
    ("{pretrain: {mixed_precision: bf16}}", [], "pretrain has no mixed_precision"),
    ("{pretrain: {push_to_hub: yes}}", [], "pretrain has no push_to_hub"),
    ("{distill: {}}", ["--keep_punctuation"], "needs a model that does not see punctuation"),
    ("{pretrain: {model: fast-r2d2-tiny}}", [], "pretrain has no model"),
    ("{pretrain: {recipe: nowhere}}", [], "there is no recipe 'nowhere'"),
    ("{pretrain: {eval_steps: 0}}", [], "eval_steps must be >= 1, got 0"),
    ("{pretrain: {config_overrides: no_such=1}}", [], "no_such=1"),
    ("{pretrain: {recipe: RECIPE}}", [], "must not have `afterwards` of its own"),
    ("{pretrain: {recipe: FORCED}}", [], "forced encoding has no chart, so tree_weight must be 0"),
])  # fmt: skip
def test_what_comes_afterwards_is_checked_before_the_training(afterwards, more, message, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    text = f"options: {{keep_punctuation: no}}\nafterwards: [{afterwards}]\n"
    recipe.write_text(text.replace("RECIPE", str(recipe)).replace("FORCED", str(tmp_path / "forced.yaml")))
    (tmp_path / "forced.yaml").write_text("stages: [{steps: 1, encoding: forced}]")
    with pytest.raises(ValueError, match=message):
        check_afterwards(parse_options(["--recipe", str(recipe), "--corpus", "a.txt", "--output_dir", "out", *more]))


def test_what_comes_afterwards_goes_on_from_the_model_before_with_the_options_of_the_run():
    given = ["--recipe", "english", "--corpus", "a.txt", "--output_dir", "out", "--seed", "7", "--length", "0.5"]
    options = parse_options(given)
    commands = [command_afterwards(options, number) for number in (1, 2, 3, 4)]
    out = Path("out").resolve()
    models = [f"{out / name}" for name in (".model.new", *(f"afterwards-{number}/model" for number in (1, 2, 3)))]
    for number, (command, model) in enumerate(zip(commands, models, strict=True), start=1):
        values = dict(zip(command[::2], command[1::2], strict=True))
        own = ("--model",) if number == 4 else ("--teachers", "--student")
        assert [values[name] for name in own] == [model] * len(own)
        assert values["--output_dir"] == f"{out}/afterwards-{number}" and values["--seed"] == "7"
        assert values["--corpus"] == f"{out}/afterwards-{number}.txt.gz" and values["--use_cpu"] == "True"
    settled = parse_options(commands[-1])
    assert settled.data.length == "0.5" and settled.stages == parse_options(["--recipe", "settle", *given[2:]]).stages


def test_what_the_text_decided_counts_afterwards(tmp_path):
    (tmp_path / "recipe.yaml").write_text("afterwards: [{pretrain: {recipe: any_language}}]", encoding="utf-8")
    given = ["--recipe", str(tmp_path / "recipe.yaml"), "--corpus", "a.txt", "--output_dir", "out", "--names", "no"]
    options = parse_options([*given, "--counts_skew", "-1.00", "--tokenizer_kind", "character"])
    further = parse_options(command_afterwards(options, 1))
    assert (further.data.names, further.data.counts_skew) == ("no", "-1.00")
    stages = apply_to_stages(further).stages
    assert 0 < len(stages) < len(further.stages) and not any("names_bonus" in stage.values for stage in stages)


def test_the_recipe_for_vectors_leaves_the_parser_alone():
    given = ["--recipe", str(RECIPES / "vectors.yaml"), "--model", "m", "--corpus", "mine.txt", "--output_dir", "out"]
    options = parse_options(given)
    plan = Plan(options.stages, 2000.0)
    steps = [plan.at(step) for step in range(plan.num_steps)]
    assert all(settings.parser_learning_rate == 0 and settings.memory_weight > 0 for settings in steps)
    assert [stage.values.get("encoding", "chart") for stage in plan.stages] == ["forced", "forced", "chart"]
    assert options.needs_count_vectors and not options.uses("needs_counts") and not options.data.keep_punctuation


def test_the_recipe_that_settles_an_encoder_has_the_last_stages_of_any_language_and_the_parser_at_rest():
    given = ["--corpus", "mine.txt", "--output_dir", "out"]
    of_any, options = (parse_options(["--recipe", name, *given]) for name in ("any_language.yaml", "settle.yaml"))
    with_skew = [stage.values | {"skew": 0.05} for stage in options.stages]
    assert with_skew == [stage.values | {"parser_learning_rate": 0.0} for stage in of_any.stages[-2:]]
    assert not options.data.keep_punctuation and options.training.use_cpu


@pytest.mark.parametrize("name", ["paper", "english", "any_language"])
def test_the_recipes_of_the_examples_are_good(name):
    given = ["--recipe", str(RECIPES / f"{name}.yaml"), "--corpus", "mine.txt", "--output_dir", "out", "--seed", "3"]
    options = parse_options(given)
    assert options.data.corpus == ["mine.txt"] and options.training.seed == 3  # the command line has the last word
    assert options.uses("needs_counts") == (name != "paper") and options.training.parser_learning_rate == 1e-2
    if name == "paper":
        assert options.stages == () and (options.model.size, options.training.num_train_epochs) == ("base", 60)
    else:
        plan = Plan(options.stages, 2000.0)
        first, copy, *_ = plan.stages
        assert first.values["learning_rate"].end == 2e-3 and copy.values["choice_loss"] == 1 and plan.num_steps > 400
        new = [plan.at(step) for step in range(plan.boundaries[2])]
        assert not any(settings.lm_trains_choice and settings.window_size != 1 for settings in new)
        later = range(plan.boundaries[1], plan.num_steps)
        charts = [step for step in later if plan.at(step).window_size != 1]  # a chart of window 1 leaves no choice
        alone = [plan.stages[plan.stage_number(step)].name for step in charts if plan.at(step).choice_loss == 0]
        assert alone == ["narrow"] * 100  # longer, some seeds drift into a chain
        assert plan.at(plan.num_steps).window_size == 2  # the model keeps it
        assert all(plan.at(step).names_bonus > 0 for step in range(plan.num_steps))


def test_the_recipe_for_any_language_is_that_for_english_without_its_options():
    paths = [RECIPES / f"{name}.yaml" for name in ("english", "any_language")]
    english, any_language = (yaml.safe_load(path.read_text(encoding="utf-8"))["options"] for path in paths)
    given = ["--corpus", "mine.txt", "--output_dir", "out"]
    of_english, of_any = (parse_options(["--recipe", str(path), *given]).stages for path in paths)
    bonuses = [stage.name for stage in (*of_english, *of_any) if "pairs_bonus" in stage.values]
    assert bonuses == ["grammar", "pairs"]
    of_english = tuple(stage for stage in of_english if stage.name != "grammar")
    assert [stage.values.get("skew") for stage in of_any] == [None] + [0.05] * (len(of_any) - 1)
    always = [stage.name for stage in of_any if stage.always]
    assert always == ["fit", "copy", "refine", "distil", "pairs", "settle", "close"]
    of_any = [replace(stage, always=True) for stage in of_any if stage.name not in ("pairs", "settle")]
    plain = [{name: value for name, value in stage.values.items() if name != "skew"} for stage in of_any]
    assert tuple(replace(stage, values=values) for stage, values in zip(of_any, plain, strict=True)) == of_english
    theirs = {"corpus", "corpus_config", "clean_wikitext", "word_rule"}
    decided = {"tokenizer_kind", "vocab_size", "counts_skew", "names", "length"}
    assert english.keys() - any_language.keys() == theirs and {any_language[name] for name in decided} == {"auto"}
    overrides = english["config_overrides"].replace("bounds_bonus=10", "bounds_bonus=6")  # in parsing
    english["config_overrides"] = overrides.replace("hidden_size=128,intermediate_size=512,", "", 1)  # English is wider
    same = english.keys() & any_language.keys() - decided - {"sentence_rule"}
    assert {name: any_language[name] for name in same} == {name: english[name] for name in same}


def test_a_stage_can_be_left_out_by_character_and_without_a_direction(tmp_path):
    (tmp_path / "recipe.yaml").write_text("""
    options: {corpus: [mine.txt], sentence_rule: line}
    stages: [{steps: 1}, {steps: 2, always: true}, &a {steps: 3, always: false}, *a]
    """)
    given = parse_options(["--recipe", str(tmp_path / "recipe.yaml"), "--output_dir", str(tmp_path)])

    def steps(kind, skew, stages=given.stages):
        data = replace(given.data, tokenizer_kind=kind, counts_skew=skew)
        return [stage.steps for stage in apply_to_stages(replace(given, data=data, stages=stages)).stages]

    assert steps("wordpiece", "1") == steps("word", "-0.5") == [1, 2, 3, 3]
    assert steps("character", "1") == steps("wordpiece", "0") == steps("wordpiece", "0.00") == [1, 2]
    with pytest.raises(ValueError, match="no stage for a tokenizer of kind character and counts_skew 1"):
        steps("character", "1", given.stages[2:])


def test_options_without_effect_are_named(recwarn, tmp_path):
    def warn(arguments):
        say_what_has_no_effect(arguments, parse_options(arguments))

    given = ["--recipe", str(RECIPES / "english.yaml"), "--corpus", "mine.txt", "--output_dir", "out"]
    warn([*given, "--learning_rate", "1e-4", "--warmup_steps=9", "--num_train_epochs", "2", "--seed", "1"])
    told = [str(warning.message).split(" ")[0] for warning in recwarn if "has no effect" in str(warning.message)]
    assert told == ["--learning_rate", "--warmup_steps=9", "--num_train_epochs"]
    recwarn.clear()
    warn([*given[2:], "--model", "m", "--vocab-size", "9", "--size=tiny", "--length", "2"])
    told = {str(warning.message) for warning in recwarn}
    assert {line.split(" has no effect: ")[1] for line in told} == {
        "the given tokenizer decides", "the given model decides", "it is for the stages of a recipe",
    } and len(told) == 3  # fmt: skip
    recwarn.clear()
    warn([*given[2:], "--learning_rate", "1e-4", "--num_train_epochs", "2"])
    warn([*given, "--per_device_train_batch_size", "8", "--validation", "learning_rate"])
    (tmp_path / "recipe.yaml").write_text("afterwards: [{pretrain: {recipe: settle, size: tiny}}]", encoding="utf-8")
    own = ["--recipe", str(tmp_path / "recipe.yaml"), *given[2:], "--length", "2"]
    warn(own)  # the length counts afterwards
    assert not [warning for warning in recwarn if "has no effect" in str(warning.message)]
    check_afterwards(parse_options(own))
    [told] = [str(warning.message) for warning in recwarn if "has no effect" in str(warning.message)]
    assert told == "--size has no effect: the given model decides"


def test_overrides_of_the_command_line_join_those_of_the_recipe():
    def overrides(*more):
        return parse_options(["--recipe", "any_language.yaml", "--output_dir", "o", "--corpus", "c", *more]).model

    given, joined = (overrides(*more).config_overrides for more in ((), ("--config_overrides", "names_bonus=1")))
    assert joined == f"{given},names_bonus=1"
    assert overrides("--config_overrides=names_bonus=1").config_overrides == joined
    assert overrides("--config-overrides", "names_bonus=1").config_overrides == joined


@pytest.mark.parametrize(("given", "keep"), [("aside", False), ("keep", True)])
def test_a_given_model_is_trained_on_as_it_was_trained(given, keep):
    arguments = ["--model", "fast-r2d2-tiny", "--corpus", "c", "--output_dir", "o"]
    options = parse_options([*arguments, "--config_overrides", f"punctuation={given}"])
    assert options.data.keep_punctuation and read_as_given_model(options).data.keep_punctuation is keep
    assert not read_as_given_model(parse_options([*arguments, "--no_keep_punctuation"])).data.keep_punctuation
