"""`run_glue.py` from the command line to its table, on tasks of made-up text."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import run_glue
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from glue.report import scores
from glue.tasks import find_task
from glue.training import GlueOptions, load_model_and_tokenizer
from modeling_fast_r2d2.text_files import hold_folder

SCRIPT = Path(run_glue.__file__)
FAST = ["--use_cpu", "--disable_tqdm", "1", "--learning_rate", "1e-2", "--parser_learning_rate", "1e-2"]


def run(checkpoint, glue, output, *more: str, tasks=("SST-2",)) -> list[dict]:
    run_glue.main(
        ["--tasks", *tasks, "--data", str(glue), "--model", str(checkpoint), "--output_dir", str(output)]
        + [*FAST, "--per_device_train_batch_size", "8", "--num_train_epochs", "4", *more]
    )
    return [results_of(output, task) for task in tasks]


def results_of(output: Path, task: str) -> dict:
    return json.loads((output / task / "results.json").read_text())


@pytest.fixture(scope="module")
def output(checkpoint, glue, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run(checkpoint, glue, folder, tasks=("SST-2", "RTE"))
    return folder


def accuracy(folder: Path, rows: Path, encoding: str) -> float:
    """Without Trainer, collator and batches."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    header, *lines = [line.split("\t") for line in rows.read_text().splitlines()]
    columns, right = [n for n, name in enumerate(header) if name.startswith("sentence")], 0
    for line in lines:
        batch = tokenizer(*(line[column] for column in columns), return_tensors="pt")
        with torch.no_grad():
            predicted = model(**batch, encoding=encoding).logits.argmax().item()
        right += line[-1] in (str(predicted), model.config.id2label[predicted])
    return right / len(lines)


@pytest.mark.slow
def test_the_best_epochs_model_has_the_scores_that_are_reported(output, glue):
    results = [results_of(output, task) for task in ("SST-2", "RTE")]
    assert [result["task"] for result in results] == ["SST-2", "RTE"]
    for result in results:
        assert len(result["epochs"]) == 4
        assert result["best"]["dev_forced_accuracy"] == max(e["dev_forced_accuracy"] for e in result["epochs"])
        for place, metric, value in scores(result):
            folder = output / result["task"]
            measured = accuracy(folder / "model", glue / result["task"] / "dev.tsv", place.removeprefix("dev_"))
            assert metric == "accuracy" and value == pytest.approx(measured)
    assert results[0]["best"]["dev_forced_accuracy"] > 0.8  # the words give it away
    assert not (output / "SST-2" / "model" / "training_args.bin").exists()  # a pickle
    card = (output / "RTE" / "model" / "README.md").read_text()
    assert f"| RTE | dev | chart | {100 * results[1]['best']['dev_chart_accuracy']:.1f} |" in card
    assert "nyu-mll/glue" in card and '"text_pair"' in card


@pytest.mark.slow
def test_last_weights_come_with_their_own_scores(checkpoint, glue, tmp_path):
    [result] = run(checkpoint, glue, tmp_path, "--load_best_model_at_end", "False", "--num_train_epochs", "2")
    assert result["best"] == result["epochs"][-1] and result["chosen_by"] is None
    assert "those of the last epoch" in (tmp_path / "SST-2" / "model" / "README.md").read_text()


@pytest.mark.slow
def test_the_newest_checkpoint_of_each_task_goes_on(checkpoint, glue, output, tmp_path):
    shutil.copytree(output / "SST-2", tmp_path / "SST-2")
    for folder in (tmp_path / "SST-2").glob("checkpoint-*"):
        if folder.name != "checkpoint-72":
            shutil.rmtree(folder)
    [again] = run(checkpoint, glue, tmp_path, "--resume_from_checkpoint", "true")
    first = results_of(output, "SST-2")
    assert [epoch["dev_chart_loss"] for epoch in again["epochs"]] == [e["dev_chart_loss"] for e in first["epochs"]]
    [over] = run(checkpoint, glue, tmp_path, "--resume_from_checkpoint", "true")  # nothing is left to do
    assert over["train_seconds"] > again["train_seconds"] and over["best"] == again["best"]
    with pytest.raises(ValueError, match="SST-2 holds a finished model already"):
        run(checkpoint, glue, tmp_path)


@pytest.mark.slow
def test_a_head_of_other_classes_is_not_taken_over(output):
    for source, task in (("RTE", "RTE"), ("RTE", "MNLI"), ("SST-2", "CoLA")):
        options = GlueOptions([task], model=str(output / source / "model"))
        _, model = load_model_and_tokenizer(find_task(task), options)
        saved = AutoModelForSequenceClassification.from_pretrained(options.model).classifier
        kept = torch.equal(model.classifier.dense.weight, saved.dense.weight)
        assert kept == (source == task) and model.config.num_labels == len(find_task(task).classes)


def test_losses_without_weight_are_not_there(checkpoint, glue, tmp_path, monkeypatch):
    from modeling_fast_r2d2.heads import LanguageModelHead

    monkeypatch.setattr(LanguageModelHead, "loss", None)  # may not be called
    weights = ["--lm_loss_weight", "0", "--tree_loss_weight", "0.5", "--max_train_samples", "32"]
    result = run(checkpoint, glue, tmp_path, *weights, "--num_train_epochs", "1")[0]
    assert result["loss_weights"] == {"forced": 1, "chart": 1, "lm": 0, "tree": 0.5}
    assert result["train_rows"] == 32


@pytest.mark.slow
def test_two_processes_evaluate_as_one_does(checkpoint, glue, tmp_path):
    """50 rows do not divide evenly: the last batch is filled up, which must not count."""
    arguments = ["--tasks", "SST-2", "--data", glue, "--model", checkpoint, *FAST, "--learning_rate", "0"]
    arguments += ["--parser_learning_rate", "0", "--num_train_epochs", "1", "--per_device_eval_batch_size", "8"]
    bests = []
    for processes in (1, 2):
        output = tmp_path / str(processes)
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", processes, SCRIPT]
        subprocess.run(list(map(str, [*command, *arguments, "--output_dir", output])), check=True,
                       capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})  # fmt: skip
        bests.append(results_of(output, "SST-2")["best"])
    assert bests[0]["dev_forced_accuracy"] == bests[1]["dev_forced_accuracy"]
    assert bests[0]["dev_chart_accuracy"] == bests[1]["dev_chart_accuracy"]


def test_wrong_names_are_refused_before_anything_trains(checkpoint, glue, tmp_path):
    with pytest.raises(ValueError, match="no task 'WNLI'"):
        run(checkpoint, glue, tmp_path, tasks=("SST-2", "WNLI"))
    with pytest.raises(ValueError, match="no checkpoint could be loaded from"):
        run(tmp_path / "nowhere", glue, tmp_path)
    with pytest.raises(ValueError, match="max_length must be >= 1, got 0"):
        run(checkpoint, glue, tmp_path, "--max_length", "0")
    with pytest.raises(ValueError, match="leave eval_strategy at epoch"):
        run(checkpoint, glue, tmp_path, "--eval_strategy", "no", "--load_best_model_at_end", "False")
    with pytest.raises(ValueError, match="got optim adafactor"):
        run(checkpoint, glue, tmp_path, "--optim", "adafactor")
    with pytest.raises(ValueError, match="a checkpoint belongs to one task"):
        run(checkpoint, glue, tmp_path, "--resume_from_checkpoint", "somewhere", tasks=("SST-2", "RTE"))
    assert not list(tmp_path.iterdir())


def test_a_second_run_in_the_same_folder_is_refused(checkpoint, glue, tmp_path):
    with hold_folder(tmp_path / "run"), pytest.raises(ValueError, match=f"is in use by process {os.getpid()}"):
        run(checkpoint, glue, tmp_path / "run")


@pytest.mark.slow
def test_the_best_model_goes_to_the_hub_with_its_card(hub, checkpoint, glue, tmp_path):
    arguments = ["--tasks", "SST-2", "--data", glue, "--model", checkpoint, "--output_dir", tmp_path / "out", *FAST]
    arguments += ["--num_train_epochs", "1", "--push_to_hub", "--hub_model_id", "user/films", "--license", "mit"]
    hub.run(tmp_path / "home", SCRIPT, *arguments)
    files = hub.repos["user/films"][-1]
    here = tmp_path / "out" / "SST-2" / "model"
    assert files["model.safetensors"] == (here / "model.safetensors").read_bytes()
    assert "training_args.bin" not in files  # a pickle
    assert b"license: mit" in files["README.md"]
    assert files["README.md"] == (here / "README.md").read_bytes()
    code = re.search(r"```python\n(.*?)```", files["README.md"].decode(), re.DOTALL)[1]
    assert '"user/films"' in code and "'score'" in hub.run(tmp_path / "empty", "-c", code)
