"""Whole runs of `pretrain.py`, in processes that are stopped, killed and started again."""

import gzip
import json
import os
import random
import re
import shutil
import signal
from pathlib import Path

import pretrain as pretrain_script
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer
from without_chance import WITHOUT_CHANCE

from driver import SMALL_MODEL, last_output, pretrain
from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.text_files import hold_folder
from pretraining.report import Display
from tokenization_fast_r2d2 import read_sentences

NO_CHANCE = "".join(f",{name}={value}" for name, value in WITHOUT_CHANCE.items())

RECIPE = """
options: {{corpus: [{corpus}], learning_rate: 1e-3, save_steps: 9, max_steps: null}}
stages:
  - {{name: warm-up, steps: 4, learning_rate: {{from: 0, to: 1e-3}}, window_size: 1}}
  - {{name: smaller, tokens: 2_700, learning_rate: 1e-3, tree_weight: {{from: 0, to: 1}}}}
  - {{name: wider, steps: 4, learning_rate: 3e-4, window_size: 3, choice_loss: 1, choice_scores: snapshot,
      chart_scores: grammar}}
"""
SLOW_KILLS = [[("step", 2)], [("publish", 2)], [("step", 10), ("publish", 1), ("step", 1)]]
KILLS = [[("step", 5)], *(pytest.param(kills, marks=pytest.mark.slow) for kills in SLOW_KILLS)]
STREAM = ["--streaming", "--max_steps", "10", "--shuffle_buffer", "70"]


@pytest.fixture(scope="module")
def whole_run(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert pretrain([*options, "--output_dir", str(folder)]) == [0]
    (folder / "output.txt").write_text(last_output(), encoding="utf-8")
    return folder


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def assert_same_weights(one, other):
    one, other = weights(one), weights(other)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def steps_of(folder):
    return sorted(int(path.name.partition("-")[2]) for path in (folder / "checkpoints").glob("checkpoint-*"))


def test_a_run_leaves_a_model_curves_and_a_card(whole_run, sentences, capsys):
    assert steps_of(whole_run) == [9, 12, 15]
    checkpoint = whole_run / "checkpoints" / "checkpoint-000000015"
    for folder in (checkpoint, whole_run / "model"):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert FastR2D2ForPreTraining.from_pretrained(folder).config.vocab_size == len(tokenizer)
    assert (whole_run / "model" / "training.png").stat().st_size > 10_000
    card = (whole_run / "model" / "README.md").read_text(encoding="utf-8")
    num_tokens = sum(len(ids) for ids in tokenizer(sentences)["input_ids"])
    assert f"300 sentences, {num_tokens:,} tokens" in card and "Made with" in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    exec(code, {})
    printed = capsys.readouterr().out
    assert "(2, 16)" in printed and "(0, 6) The old man bought a new car" in printed
    progress = json.loads((checkpoint / "progress.json").read_text())
    assert progress["tokens"] == 3 * num_tokens
    assert [point["step"] for point in progress["curve"]] == [2, 4, 6, 8, 10, 12, 14]


def test_a_run_without_a_terminal_prints_lines_with_the_time_left(whole_run):
    output = (whole_run / "output.txt").read_text(encoding="utf-8")
    assert "\r" not in output and "\n\n" not in output  # no bars, which would pile up
    assert "tree the cross entropy of the parser's trees and the encoder's" in output
    lines = re.findall(r"^step (\d+) of (\d+), \d\d:\d\d left: LM \d+\.\d+, tree", output, re.MULTILINE)
    assert [int(step) for step, _ in lines] == [2, 4, 6, 8, 10, 12, 14] and len({of for _, of in lines}) == 1


def test_the_time_left_counts_from_where_a_session_begins(monkeypatch):
    monkeypatch.setattr("time.monotonic", iter([0.0, 100.0, 130.0]).__next__)
    display = Display(num_steps=50, is_shown=False)
    display.start(20)
    assert display.seconds_left(30) == pytest.approx(60)


@pytest.mark.parametrize("kills", KILLS)
def test_a_run_that_was_killed_ends_with_the_same_weights(options, whole_run, tmp_path, kills):
    arguments = [*options, "--output_dir", str(tmp_path / "run")]
    for what, number in kills:
        assert pretrain(arguments, at=(what, number, "SIGKILL")) == [-9]
    assert pretrain(arguments) == [0]
    assert_same_weights(tmp_path / "run", whole_run)


@pytest.mark.slow
def test_a_run_may_be_killed_at_any_moment(options, corpus, whole_run, tmp_path):
    """While it reads, trains, evaluates or saves. Each time it goes on from where it went on, or begins anew."""
    run = tmp_path / "run"
    arguments = [*options, "--validation", str(corpus), "--eval_steps", "4", "--output_dir", str(run)]
    for moment in (random.uniform(0, 4) for _ in range(20)):
        print(f"killed after {moment} s")
        [code] = pretrain(arguments, at=("time", moment, "SIGALRM"))
        assert code in (-signal.SIGALRM, 0), last_output()
        if code == 0:  # it was over before
            assert_same_weights(run, whole_run)
            shutil.rmtree(run)
    assert pretrain(arguments) == [0]
    assert_same_weights(run, whole_run)
    titles = re.findall("== step .*", (run / "trees.txt").read_text(encoding="utf-8"))
    assert len(set(titles)) == len(titles) > 0


# What happens when; the exit code, what is said, and the last step saved: a signal may come before a step or after it.
ENDINGS = [
    (("step", 5, "SIGTERM"), 0, "the same command resumes the run", (5, 6)),
    (("validation", 1, "SIGTERM"), 0, "stopped and saved at step 15", (15,)),
    (("step", 5, "full disk"), 2, "error: .*checkpoint-000000006.part could not be written .*is the disk full", (3,)),
]


@pytest.mark.slow
@pytest.mark.parametrize("at, code, said, saved", ENDINGS)
def test_a_run_that_was_ended_goes_on_to_the_same_weights(options, corpus, whole_run, tmp_path, at, code, said, saved):
    arguments = [*options, "--validation", str(corpus), "--output_dir", str(tmp_path / "run")]
    assert pretrain(arguments, at=at) == [code]
    assert re.search(said, last_output()) and steps_of(tmp_path / "run")[-1] in saved
    assert not (tmp_path / "run" / "model").exists()
    assert pretrain(arguments) == [0]
    assert_same_weights(tmp_path / "run", whole_run)


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
def test_sigterm_ends_evaluation_between_batches_and_a_resumed_run_repeats_it(options, corpus, tmp_path, num_processes):
    (tmp_path / "trees.mrg").write_text("(S (DT the) (NN cat) (VBZ sleeps))\n" * 9)
    options = [*options, "--validation", str(corpus), "--treebank", str(tmp_path / "trees.mrg"), "--eval_steps", "5"]
    whole, stopped = (["--output_dir", str(tmp_path / name)] for name in ("whole", "stopped"))
    well = [0] * num_processes
    assert pretrain([*options, *whole], num_processes=num_processes) == well
    # Each evaluation has more batches than this. With two processes each gets its signal.
    assert pretrain([*options, *stopped], at=("validation", 2, "SIGTERM"), num_processes=num_processes) == well
    assert "stopped and saved at step 5" in last_output()
    assert not (tmp_path / "stopped" / "evaluations.jsonl").exists()
    assert pretrain([*options, *stopped], num_processes=num_processes) == well
    assert_same_weights(tmp_path / "whole", tmp_path / "stopped")
    evaluations = [(tmp_path / name / "evaluations.jsonl").read_text() for name in ("whole", "stopped")]
    assert evaluations[0] == evaluations[1] and evaluations[0].count("\n") >= 2


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_is_passed_over(options, whole_run, tmp_path):
    arguments = [*options, "--output_dir", str(tmp_path / "run")]
    assert pretrain(arguments, at=("step", 8, "SIGKILL")) == [-9]
    damaged = tmp_path / "run" / "checkpoints" / "checkpoint-000000006"
    (damaged / "optimizer.pt").write_bytes((damaged / "optimizer.pt").read_bytes()[:-100])
    assert pretrain(arguments) == [0]
    assert "checkpoint-000000006 is damaged: optimizer.pt has changed" in last_output()
    assert re.search("resuming from .*checkpoint-000000003", last_output())
    assert_same_weights(tmp_path / "run", whole_run)


@pytest.mark.slow
def test_a_run_ends_with_its_best_weights_on_request(options, tmp_path):
    """The better it knows its corpus, the worse it does on words that are rare there; killed and started again, too."""
    (tmp_path / "other.txt").write_text("underold underold underold and and\n" * 5)
    arguments = [
        *options, "--validation", str(tmp_path / "other.txt"), "--eval_steps", "3", "--save_total_limit", "1",
        "--learning_rate", "0.03", "--metric_for_best_model", "validation_lm_loss",
        "--output_dir", str(tmp_path / "run"),
    ]  # fmt: skip
    assert pretrain(arguments, at=("step", 11, "SIGKILL")) == [-9]
    assert pretrain(arguments) == [0]
    assert pretrain([*arguments, "--eval_steps", "2"]) == [2]
    assert "eval_steps was 3, now 2" in last_output()
    checkpoints = tmp_path / "run" / "checkpoints"
    evaluations = json.loads((checkpoints / "checkpoint-000000015" / "progress.json").read_text())["evaluations"]
    best = min(evaluations, key=lambda figures: figures["validation_lm_loss"])
    assert best["step"] < 15
    chosen = load_file(checkpoints / f"checkpoint-{best['step']:09d}" / "model.safetensors")
    found = weights(tmp_path / "run")
    assert all(torch.equal(found[name], chosen[name]) for name in chosen)
    of_the_run = {"files.json", "optimizer.pt", "process-0.pt", "progress.json"}
    assert of_the_run.isdisjoint(path.name for path in (tmp_path / "run" / "model").iterdir())
    assert steps_of(tmp_path / "run") == [best["step"], 15]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"step {best['step']}, best by validation_lm_loss" in card
    assert f"| validation LM loss, nats per token | {best['validation_lm_loss']:.3f} |" in card


@pytest.mark.slow
@pytest.mark.parametrize("num_processes, share, accumulation", [(2, 16, 1), (2, 8, 2), (1, 16, 2)])
def test_neither_processes_nor_accumulation_change_the_weights(options, tmp_path, num_processes, share, accumulation):
    options = [o + NO_CHANCE if "hidden_size" in o else o for o in options]
    options = [*options, "--max_steps", "20", "--num_train_epochs", "9", "--per_device_train_batch_tokens", "4000"]
    one, several = tmp_path / "one", tmp_path / "several"
    assert pretrain([*options, "--per_device_train_batch_size", "32", "--output_dir", str(one)]) == [0]
    limits = ["--per_device_train_batch_size", str(share), "--gradient_accumulation_steps", str(accumulation)]
    exits = pretrain([*options, *limits, "--output_dir", str(several)], num_processes=num_processes)
    assert exits == [0] * num_processes
    before, after = weights(one), weights(several)
    assert max((before[name] - after[name]).abs().max() for name in before) < 1e-5


@pytest.mark.slow
def test_several_processes_share_a_stage_in_which_parameters_rest(options, tmp_path):
    """Along forced trees nothing is chosen, and the parser learns nothing."""
    options = [o + NO_CHANCE if "hidden_size" in o else o for o in options]
    (tmp_path / "forced.yaml").write_text("stages: [{steps: 4, encoding: forced, tree_weight: 0}]", encoding="utf-8")
    options = ["--recipe", str(tmp_path / "forced.yaml"), *options, "--save_steps", "2"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert pretrain([*options, "--per_device_train_batch_size", "32", "--output_dir", str(one)]) == [0]
    options += ["--per_device_train_batch_size", "16", "--output_dir", str(two)]
    assert 0 not in pretrain(options, at=("step", 4, "SIGKILL"), num_processes=2)
    assert pretrain(options, num_processes=2) == [0, 0]
    before, after = weights(one), weights(two)
    assert max((before[name] - after[name]).abs().max() for name in before) < 1e-5
    first = load_file(one / "checkpoints" / "checkpoint-000000002" / "model.safetensors")
    moved = {name for name in before if not before[name].equal(first[name])}
    assert "model.composition.blend.weight" in moved and not any("parser" in name for name in moved)
    assert "model.composition.score.weight" not in moved


@pytest.mark.slow
@pytest.mark.parametrize(("more", "kills", "num_processes"), [([], [5], 2), (STREAM, [4, 5], 1)])
def test_processes_and_streams_go_on_as_one_run(options, tmp_path, more, kills, num_processes):
    """Killed again, a stream goes on from where it went on."""
    whole, killed = ([*options, *more, "--output_dir", str(tmp_path / name)] for name in ("whole", "killed"))
    assert pretrain(whole, num_processes=num_processes) == [0] * num_processes
    for step in kills:
        assert 0 not in pretrain(killed, at=("step", step, "SIGKILL"), num_processes=num_processes)
    assert pretrain(killed, num_processes=num_processes) == [0] * num_processes
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
def test_steps_that_are_not_finite_are_left_out_until_they_are_too_many(options, tmp_path):
    arguments = [*options, "--num_train_epochs", "20", "--save_steps", "3", "--output_dir", str(tmp_path / "run")]
    assert pretrain(arguments, at=("step", 5, "nan")) == [2]
    assert "not finite in 20 steps in a row, up to step 24" in last_output()
    assert "2 skipped" in last_output()
    assert steps_of(tmp_path / "run") == [3]
    model = load_file(tmp_path / "run" / "checkpoints" / "checkpoint-000000003" / "model.safetensors")
    assert all(value.isfinite().all() for value in model.values())


@pytest.mark.slow
def test_streams_of_unlike_length_end_together(options, tmp_path):
    lines = [*["the old man walks"] * 21, "the cat"]
    (tmp_path / "few.txt").write_text("\n".join(lines), encoding="utf-8")
    options = [*options, "--corpus", str(tmp_path / "few.txt"), "--streaming", "--max_steps", "9"]
    limits = ["--per_device_train_batch_size", "5", "--shuffle_buffer", "5"]
    assert pretrain([*options, *limits, "--output_dir", str(tmp_path / "run")], num_processes=3) == [0, 0, 0]


@pytest.mark.slow
def test_a_recipe_that_was_killed_goes_on_bit_for_bit(options, tmp_path):
    """Killed where stages begin, after 4 and 10 steps, just saved."""
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(corpus=options[1]), encoding="utf-8")
    arguments = ["--recipe", str(tmp_path / "recipe.yaml"), *options[2:], "--save_steps", "2"]
    whole, killed = (["--output_dir", str(tmp_path / name)] for name in ("whole", "killed"))
    assert pretrain([*arguments, *whole]) == [0]
    assert steps_of(tmp_path / "whole")[-1] == 14
    progress = json.loads((tmp_path / "whole" / "checkpoints" / "checkpoint-000000014" / "progress.json").read_text())
    assert [point["stage"] for point in progress["curve"]] == [1, 1, 2, 2, 2, 3, 3]
    rates = [point["encoder_learning_rate"] for point in progress["curve"]]  # of its last step
    assert rates[:3] == pytest.approx([2.5e-4, 7.5e-4, 1e-3]) and rates[5] == pytest.approx(3e-4)
    config = FastR2D2ForPreTraining.from_pretrained(tmp_path / "whole" / "model").config
    assert config.window_size == 3
    for number, saved in ((5, 4), (7, 10)):  # the second time the run goes on from where it went on
        assert pretrain([*arguments, *killed], at=("step", number, "SIGKILL")) == [-9]
        assert steps_of(tmp_path / "killed")[-1] == saved
        config = tmp_path / "killed" / "checkpoints" / f"checkpoint-{saved:09d}" / "config.json"
        assert json.loads(config.read_text())["window_size"] == 3  # of the last stage, whichever is running
    assert pretrain([*arguments, *killed]) == [0]
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "model")  # as if it had been killed just before
    assert pretrain([*arguments, *killed]) == [0]
    config = FastR2D2ForPreTraining.from_pretrained(tmp_path / "killed" / "model").config
    assert config.window_size == 3
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(corpus=options[1]).replace("steps: 4", "steps: 5"))
    assert "holds a run with other settings: stage 1 was" in error_of([*arguments, *killed])
    taught = RECIPE.format(corpus=options[1]) + "  - {steps: 2, made_up: 1}"
    (tmp_path / "recipe.yaml").write_text(taught, encoding="utf-8")
    assert "stage 4: a stage has no made_up" in error_of([*arguments, "--output_dir", str(tmp_path / "other")])


AFTERWARDS = """
options: {{corpus: [{corpus}], keep_punctuation: no}}
stages: [{{steps: 3}}]
afterwards:
  - distill: {{methods: minimum_risk, config_overrides: parser_hidden_size=4, substitutes: 1, max_steps: 6,
               save_steps: 2, learning_rate: 0.1, per_device_train_batch_size: 16}}
  - pretrain: {{recipe: {settle}, save_steps: 1}}
  - distill: {{max_steps: 2, learning_rate: 0.1}}
"""
SETTLE = """
options: {keep_punctuation: no}
stages: [{steps: 4, choice_loss: 1, choice_scores: snapshot, parser_learning_rate: 0}]
"""


@pytest.fixture(scope="module")
def with_afterwards(options, corpus, tmp_path_factory):
    """Arguments of a recipe with three programs after its stages, but for the folder; and the folder of its run."""
    folder = tmp_path_factory.mktemp("afterwards")
    recipe, settle, gold = (folder / name for name in ("recipe.yaml", "settle.yaml", "gold.mrg"))
    recipe.write_text(AFTERWARDS.format(corpus=options[1], settle=settle), encoding="utf-8")
    settle.write_text(SETTLE, encoding="utf-8")
    gold.write_text("(S (DT the) (JJ old) (NN cat) (VBZ sleeps))\n" * 3)
    arguments = ["--recipe", str(recipe), *options[2:], "--treebank", str(gold), "--validation", str(corpus)]
    assert pretrain([*arguments, "--output_dir", str(folder / "run")]) == [0], last_output()
    (folder / "run" / "output.txt").write_text(last_output(), encoding="utf-8")
    return arguments, folder / "run"


@pytest.mark.slow
def test_each_program_afterwards_goes_on_from_the_model_before(with_afterwards):
    _, run = with_afterwards
    output = (run / "output.txt").read_text(encoding="utf-8")
    before, after = (lines[-1] for lines in (re.findall(r"step 3: (validation.*)", part) for part in
                                             output.split("afterwards, 1 of 3: distill")))  # fmt: skip
    assert before != after and "afterwards, 2 of 3: pretrain --recipe" in output
    trained = load_file(run / "checkpoints" / "checkpoint-000000003" / "model.safetensors")
    first, second, third = (weights(run / f"afterwards-{number}") for number in (1, 2, 3))
    assert first["model.parser.dense.weight"].shape != trained["model.parser.dense.weight"].shape
    for one, other, is_of_parser in ((trained, first, False), (first, second, True), (second, third, False)):
        same = {name: one[name].shape == other[name].shape and torch.equal(one[name], other[name]) for name in one}
        # What does not learn stays; of what learns, something changes.
        assert all(same[name] for name in same if ("parser" in name) == is_of_parser)
        assert not all(same[name] for name in same if ("parser" in name) != is_of_parser)
    assert all(torch.equal(third[name], value) for name, value in weights(run).items())
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    of_card = re.search(r"validation tree loss, nats per token \| ([\d.]+)", card)[1]
    assert f"tree {of_card}" in after and "distill, pretrain, distill" in card and "--methods minimum_risk" in card


@pytest.mark.slow
def test_what_comes_afterwards_goes_on_where_it_was_stopped(with_afterwards, tmp_path):
    arguments, whole = with_afterwards
    cut, stopped = tmp_path / "cut", tmp_path / "stopped"
    shutil.copytree(whole, cut)
    # As if it had been killed before the end of the first.
    for left in ("model", "afterwards-2", "afterwards-3", "afterwards-1/model", "afterwards-1/checkpoint-6"):
        shutil.rmtree(cut / left)
    assert pretrain([*arguments, "--output_dir", str(cut)]) == [0]
    assert_same_weights(whole, cut)
    recipe = Path(arguments[1])
    text = recipe.read_text()
    recipe.write_text(text.replace("substitutes: 1", "substitutes: 2"))
    assert "afterwards was ['distill --methods minimum_risk" in error_of([*arguments, "--output_dir", str(cut)])
    recipe.write_text(text.replace("max_steps: 2", "max_steps: 1"))
    assert "afterwards was ['distill --methods minimum_risk" in error_of([*arguments, "--output_dir", str(cut)])
    for left in ("model", "afterwards-3"):  # now the last has not begun
        shutil.rmtree(cut / left)
    assert pretrain([*arguments, "--output_dir", str(cut)]) == [0], last_output()
    assert "max_steps 1" in (cut / "run.json").read_text(encoding="utf-8")
    recipe.write_text(text)
    # The fifth step is the second of the run that comes afterwards.
    assert pretrain([*arguments, "--output_dir", str(stopped)], at=("step", 5, "SIGTERM")) == [0]
    assert "the same command resumes the run" in last_output() and not (stopped / "afterwards-2" / "model").exists()
    written = (text := stopped / "afterwards-2.txt.gz").stat().st_mtime_ns
    assert pretrain([*arguments, "--output_dir", os.path.relpath(stopped)]) == [0], last_output()
    assert_same_weights(whole, stopped)
    assert text.stat().st_mtime_ns == written


@pytest.mark.slow
def test_a_signal_in_the_last_step_before_what_comes_afterwards_ends_the_run(with_afterwards, tmp_path):
    arguments, _ = with_afterwards
    command = [*arguments[:-4], "--output_dir", str(tmp_path / "run")]  # without anything to evaluate
    assert pretrain(command, at=("step", 3, "SIGTERM")) == [0], last_output()
    assert "stopped and saved at step 3;" in last_output() and not (tmp_path / "run" / "afterwards-1").exists()
    assert pretrain(command) == [0], last_output()
    assert "the model is in" in last_output() and not re.search(r"step \d+: *$", last_output(), re.MULTILINE)


@pytest.mark.slow
def test_what_comes_afterwards_has_the_precision_of_the_run(with_afterwards, tmp_path):
    arguments, _ = with_afterwards
    command = [*arguments, "--mixed_precision", "bf16", "--output_dir", str(tmp_path / "run")]
    assert pretrain(command, at=("step", 5, "SIGTERM")) == [0], last_output()
    assert '"precision": "bf16"' in (tmp_path / "run" / "afterwards-2" / "run.json").read_text(encoding="utf-8")
    assert pretrain(command) == [0], last_output()


@pytest.mark.slow
def test_a_text_of_one_line_is_enough_for_what_comes_afterwards(with_afterwards, sentences, tmp_path):
    arguments, _ = with_afterwards
    text = " ".join(f"{sentence.capitalize()}." for sentence in sentences)
    (tmp_path / "line.txt").write_text(text, encoding="utf-8")
    own = ["--corpus", str(tmp_path / "line.txt"), "--sentence_rule", "text", "--output_dir", str(tmp_path / "run")]
    assert pretrain([*arguments, *own]) == [0], last_output()
    read = [list(read_sentences(tmp_path / "run" / f"afterwards-{number}.txt.gz")) for number in (1, 2, 3)]
    assert read == [read[0]] * 3 and len(read[0]) > 9


@pytest.mark.slow
def test_processes_share_what_comes_afterwards(with_afterwards, tmp_path):
    arguments, whole = with_afterwards
    assert pretrain([*arguments, "--output_dir", str(tmp_path / "two")], num_processes=2) == [0, 0]
    assert weights(tmp_path / "two").keys() == weights(whole).keys()


VECTORS = """
options: {{corpus: [{corpus}], model: {model}, initial_embeddings: counts, learning_rate: 1e-3,
  config_overrides: "hidden_size=24,pooler=true", per_device_train_batch_tokens: 400, use_cpu: true, report_to: none}}
stages:
  - {{steps: 6, encoding: forced, lm_weight: 0.5, tree_weight: 0, meaning_weight: 3, topic_weight: 2,
      similarity_weight: 1, memory_weight: 8, parser_learning_rate: 0}}
  - {{steps: 4, tree_weight: 0, choice_loss: 1, choice_scores: snapshot, meaning_weight: 3,
      memory_weight: 8, parser_learning_rate: 0}}
"""


@pytest.mark.slow
def test_vectors_are_learnt_for_a_model_with_trees_and_the_parser_stays(options, whole_run, tmp_path):
    given = whole_run / "model"
    (tmp_path / "recipe.yaml").write_text(VECTORS.format(corpus=options[1], model=given), encoding="utf-8")
    arguments = ["--recipe", str(tmp_path / "recipe.yaml"), "--save_steps", "2", "--logging_steps", "2"]
    whole, killed = (["--output_dir", str(tmp_path / name)] for name in ("whole", "killed"))
    assert pretrain([*arguments, *whole]) == [0]
    for name in ("LM", "meaning", "topic", "similarity", "memory", "tree", "choice"):
        assert re.search(rf"{name} \d", last_output()), name
    assert pretrain([*arguments, *killed], at=("step", 5, "SIGKILL")) == [-9]
    assert pretrain([*arguments, *killed]) == [0]
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    found, before = weights(tmp_path / "whole"), weights(whole_run)
    assert found["model.pooler.weight"].shape == (24, 24)
    assert all(torch.equal(found[name], before[name]) for name in before if "parser" in name)
    assert not any("memory" in name for name in found)
    more = ["--corpus", options[1], "--model", str(tmp_path / "whole" / "model"), "--use_cpu", "--report_to", "none"]
    assert pretrain([*more, "--max_steps", "2", "--output_dir", str(tmp_path / "more")]) == [0]
    after = weights(tmp_path / "more")  # no loss of the paper reads the pooler, so it rests
    assert torch.equal(after["model.pooler.weight"], found["model.pooler.weight"])
    assert not torch.equal(after["model.embeddings.weight"], found["model.embeddings.weight"])


@pytest.mark.slow
def test_many_options_work_together(options, tmp_path, sentences):
    """bf16, checkpointing, validation, a treebank, gzip, own vocabulary, another tracker."""
    with gzip.open(tmp_path / "c.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(sentences))
    tree = "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (PP (IN on) (NP (DT a) (NN house)))) (. .))\n"
    (tmp_path / "trees.mrg").write_text(tree * 3)
    arguments = [o for o in options if not o.startswith("--tokenizer") and "tokenizer" not in o]
    arguments += [
        "--corpus", str(tmp_path / "c.txt.gz"), "--validation", str(tmp_path / "c.txt.gz"), "--vocab_size", "90",
        "--treebank", str(tmp_path / "trees.mrg"), "--eval_steps", "5", "--mixed_precision", "bf16",
        "--gradient_checkpointing", "--report_to", "tensorboard", "--dataloader_num_workers", "1",
        "--output_dir", str(tmp_path / "run"),
    ]  # fmt: skip
    assert pretrain(arguments) == [0]
    progress = json.loads((tmp_path / "run" / "checkpoints" / "checkpoint-000000015" / "progress.json").read_text())
    assert [point["step"] for point in progress["evaluations"]] == [5, 10, 15]
    shares = {f"{share}{of}" for share in ("right_share", "left_share") for of in ("", "_counts")}
    figures = {"validation_lm_loss", "validation_tree_loss", "f1", "f1_counts", "PP_recall_counts", *shares}
    assert figures <= progress["evaluations"][-1].keys()
    lines = (tmp_path / "run" / "evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines][:3] == progress["evaluations"]
    assert re.search(r"parser: F1 [\d.]+ \(NP \d+ VP \d+ PP \d+ R [\d.]+ L [\d.]+\); encoder on charts", last_output())
    assert "parser:" in (tmp_path / "run" / "trees.txt").read_text()
    assert list((tmp_path / "run" / "logs").rglob("events*"))


def error_of(arguments):
    with pytest.raises(ValueError) as error:
        pretrain_script.main(arguments)
    return str(error.value)


def test_bad_input_is_refused_and_leaves_nothing(options, whole_run, tmp_path):
    out = ["--output_dir", str(tmp_path / "run")]
    latin, giant = tmp_path / "latin.txt", tmp_path / "giant.txt"
    latin.write_bytes(b"na\xefve\n")
    giant.write_text("the cat " * 10_000)
    assert "line 1: not UTF-8" in error_of([*options, "--corpus", str(latin), *out])
    stream = ["--streaming", "--max_steps", "2", "--corpus", str(giant), *out]
    assert "lines of the stream" in error_of([*options, *stream])
    assert f"lies within {tmp_path}" in error_of([*options, "--corpus", str(tmp_path), *out])
    before_the_corpus = [*options, "--corpus", "missing.txt", *out]
    assert "no treebank at" in error_of([*before_the_corpus, "--treebank", "trees.mrg"])
    assert "no text at 'here.txt'" in error_of([*before_the_corpus, "--validation", "here.txt"])
    wider = ["--model", "fast-r2d2-tiny", "--config_overrides", "parser_hidden_size=32"]
    assert "wants other weights than those" in error_of([*before_the_corpus, *wider])
    assert "no_such=1" in error_of([*before_the_corpus, "--config_overrides", "no_such=1"])
    assert "no model could be loaded" in error_of([*before_the_corpus, "--no_keep_punctuation", "--model", "nowhere"])
    assert "save_minutes must be >= 0, got nan" in error_of([*options, *out, "--save_minutes", "nan"])
    assert "fp16 needs a GPU; on a CPU give bf16 or no" in error_of([*options, *out, "--mixed_precision", "fp16"])
    best_by = ["--metric_for_best_model", "f1"]
    assert "--metric_for_best_model f1 needs --treebank" in error_of([*options, *best_by, *out])
    for overrides in ("hidden_size=7", "hidden_act=foo", "window_size", "no_such=1"):
        assert overrides.partition("=")[0] in error_of([*options, "--config_overrides", overrides, *out])
    assert "room for 9" in error_of([*options, "--config_overrides", "vocab_size=9", *out])
    assert "no model could be loaded" in error_of([*options, "--model", str(tmp_path), *out])
    given = [*options, "--model", str(whole_run / "model"), *out, "--config_overrides"]
    for overrides in ("intermediate_size=16", "num_hidden_layers=2"):
        assert f"--config_overrides {overrides!r} wants other weights" in error_of([*given, overrides])
    assert "--config_overrides 'no_such=1'" in error_of([*given, "no_such=1"])
    assert not (tmp_path / "run").exists()


def test_another_runs_folder_is_not_touched(options, whole_run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in whole_run.rglob("*")}
    out = ["--output_dir", str(whole_run)]
    assert "seed was 0, now 5" in error_of([*options, "--seed", "5", *out])
    assert {path: path.stat().st_mtime_ns for path in whole_run.rglob("*")} == before
    (tmp_path / "thesis.tex").write_text("mine")
    assert "is no run's folder" in error_of([*options, "--output_dir", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_run_in_the_same_folder_is_refused(options, tmp_path):
    with hold_folder(tmp_path / "run"):
        assert f"is in use by process {os.getpid()}" in error_of([*options, "--output_dir", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_must_fit_the_model(options, whole_run, tmp_path):
    big = AutoTokenizer.from_pretrained(whole_run / "model")
    big.add_tokens([f"extra{number}" for number in range(50)])
    big.save_pretrained(tmp_path / "big")
    arguments = [o for o in options if "hidden_size" not in o and o != "--config_overrides"]
    arguments += ["--model", str(whole_run / "model"), "--tokenizer", str(tmp_path / "big")]
    assert "the model room for" in error_of([*arguments, "--output_dir", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 5])  # before the first checkpoint and after it
def test_a_corpus_that_has_changed_is_noticed(options, corpus, tmp_path, step):
    mine = tmp_path / "mine.txt"
    shutil.copy(corpus, mine)
    arguments = [*options, "--corpus", str(mine), "--output_dir", str(tmp_path / "run")]
    assert pretrain(arguments, at=("step", step, "SIGKILL")) == [-9]
    lines = mine.read_text().splitlines(keepends=True)
    for changed in ([*lines, "the cat\n"], lines[::-1]):  # the second has as many sentences and tokens as before
        mine.write_text("".join(changed))
        assert re.search(r"the corpus has changed.* was '[0-9a-f]{32}', now '[0-9a-f]{32}'", error_of(arguments))
    mine.write_text("".join(lines))
    assert pretrain(arguments) == [0]


@pytest.mark.slow
def test_a_run_in_any_language_says_what_the_text_decided(tmp_path):
    chance, text = random.Random(0), tmp_path / "text.txt"
    nouns = ("kabar", "loden", "mifol", "tegir", "suhun")
    phrases = [f"{word} {noun}" for word in ("of", "the", "in") for noun in nouns]
    lines = [", ".join(["Tas. meb", *chance.choices(phrases, k=5)]) + "." for _ in range(1500)]
    text.write_text("\n".join(lines), encoding="utf-8")
    recipe = Path(pretrain_script.__file__).parent / "recipes" / "any_language.yaml"
    options = ["--recipe", str(recipe), "--corpus", str(text), "--output_dir", str(tmp_path / "run"), "--length",
               "0.002", "--config_overrides", SMALL_MODEL, "--report_to", "none"]  # fmt: skip
    assert pretrain(options) == [0]
    said = re.findall(r"^(\w+): (\S+), since", last_output(), re.M)
    assert [name for name, _ in said] == ["tokenizer_kind", "vocab_size", "counts_skew", "names"]
    values = dict(said)
    assert (values["tokenizer_kind"], values["vocab_size"], values["names"]) == ("wordpiece", "1000", "no")
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}`, by the text | {value}: " in card for name, value in said)
    assert FastR2D2ForPreTraining.from_pretrained(tmp_path / "run" / "model").config.names_bonus == 0
    found = AutoTokenizer.from_pretrained(tmp_path / "run" / "model").init_kwargs
    assert (found["abbreviations"], found["coordinators"]) == (["tas"], [])
    (tmp_path / "run" / "model" / "notes.md").write_text("mine", encoding="utf-8")
    assert pretrain(options) == [0]  # it is over: the text decides the same again, and the model's folder is left alone
    assert (tmp_path / "run" / "model" / "notes.md").exists() and "stays as it is" in last_output()
