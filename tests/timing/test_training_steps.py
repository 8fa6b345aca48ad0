"""Training steps against their bare products, and one checkout against another."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import training

from timing.checkout import PACKAGES, check_checkout
from timing.recorder import ProductRecorder
from timing.steps import BENCHMARKS, THIS_CHECKOUT, Worker, describe_turns, ratios_of_pairs, take_turns, time_products

LINES = "the cat sat on the mat\na dog ate the bone slowly\n" * 200


def test_bare_products_are_timed():
    with ProductRecorder() as recorder:
        torch.ones(256, 512) @ torch.ones(512, 128)
    times = time_products(json.loads(json.dumps(recorder.products)))
    assert times["operations"] == 2 * 256 * 512 * 128 and times["wall"] > 0 and times["cpu"] > 0


@pytest.fixture
def another_checkout(tmp_path) -> Path:
    """A copy of this checkout's packages; its pretraining loss is twice the right one."""
    for folder in PACKAGES.values():
        ignored = shutil.ignore_patterns("*.safetensors", "__pycache__")
        shutil.copytree(THIS_CHECKOUT / folder, tmp_path / "another" / folder, ignore=ignored)
    file = tmp_path / "another" / "modeling_fast_r2d2" / "modeling_fast_r2d2.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("return sum(terms)") == 1
    file.write_text(text.replace("return sum(terms)", "return 2 * sum(terms)"), encoding="utf-8")
    return tmp_path / "another"


@pytest.mark.slow
def test_a_worker_runs_the_code_of_its_checkout(another_checkout, tmp_path, tiny_config, a_batch):
    torch.save([a_batch] * 3, tmp_path / "batches.pt")
    fields = {name: getattr(tiny_config, name) for name in (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "parser_embedding_size", "parser_hidden_size", "parser_num_layers")}  # fmt: skip
    common = {"batches": str(tmp_path / "batches.pt"), "fields": fields, "gradient_checkpointing": False}
    workers = {
        name: Worker(root, overrides="window_size=2,tree_loss_weight=0", **common)
        for name, root in (("own", THIS_CHECKOUT), ("another", another_checkout))
    }
    assert all(Path(file).is_relative_to(another_checkout.resolve()) for file in workers["another"].files)
    turns = take_turns(workers, 3, threads=1)
    assert len(turns) == 2 and all(turn["another"]["loss"] == 2 * turn["own"]["loss"] for turn in turns)
    assert all(turn["own"]["products"]["operations"] == turn["another"]["products"]["operations"] for turn in turns)
    again = [workers["own"].call("step", batch=0, seed=5)["loss"] for _ in range(2)]
    assert again[0] == again[1]  # weights stay as they are
    assert workers["own"].call("record", batch=0, seed=5) == workers["own"].call("record", batch=0, seed=5)
    with pytest.raises(RuntimeError, match="(?s)the worker of .*another: .*list index out of range"):
        workers["another"].call("step", batch=3, seed=0)
    for worker in workers.values():
        worker.end()
    text = describe_turns(turns, [27, 27])
    assert re.search(r"tokens per CPU second, own against another: [\d.]+ x \([\d.]+ to [\d.]+\)", text)


def test_what_beginning_costs_cancels_out():
    assert ratios_of_pairs([2.0, 0.5, 4.0, 1.0, 9.0]) == [1.0, 2.0]
    assert ratios_of_pairs([1.5]) == [1.5]


def test_a_folder_without_the_packages_is_no_checkout(tmp_path, capsys):
    check_checkout(THIS_CHECKOUT)
    with pytest.raises(ValueError, match="no package in modeling_fast_r2d2, tokenization, kernels"):
        check_checkout(tmp_path)
    with pytest.raises(SystemExit):
        training.parse_arguments(["--corpus", "any", "--against", str(tmp_path)])
    assert "is no checkout of the project" in capsys.readouterr().err


def test_each_size_has_its_usual_batches_and_threads():
    options = training.parse_arguments(["--corpus", "any", "--size", "tiny", "base"])
    tiny, base = (training.options_of_size(options, size) for size in options.size)
    most = torch.get_num_threads()
    assert (tiny.sentences, tiny.tokens, tiny.threads) == (512, 2048, sorted({1, most}))
    assert (base.sentences, base.tokens, base.threads) == (64, 1536, [most])
    options = training.parse_arguments("--corpus any --tokens 99 --threads 1 3 --repeats 2".split())
    given = training.options_of_size(options, "small")
    assert (given.sentences, given.tokens, given.threads, given.repeats) == (512, 99, [1, 3], 2)


@pytest.mark.slow
def test_two_checkouts_are_compared_in_one_run(another_checkout, tmp_path):
    (tmp_path / "corpus.txt").write_text(LINES, encoding="utf-8")
    command = [sys.executable, str(BENCHMARKS / "training.py"), "--corpus", str(tmp_path / "corpus.txt")]
    options = "--size tiny --config_overrides window_size=3 --vocab_size 8000 --tokens 100 --threads 1 --repeats 1"
    result = subprocess.run([*command, *options.split(), "--only", "step", "--against", str(another_checkout)],
                            capture_output=True, text=True, encoding="utf-8")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "step, tiny size, window 3, 1 threads, 1 batches of" in result.stdout
    rows = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 4 and rows[3].startswith("| another ")
    assert f"imported in {another_checkout.resolve()} modeling_fast_r2d2/__init__.py" in result.stdout
    assert "tokens per CPU second" in result.stdout and "together" in result.stdout
