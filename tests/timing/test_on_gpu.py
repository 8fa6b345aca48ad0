"""The command for a GPU, tried with tiny sizes on a CPU: every part starts, writes its files and ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"
PARTS = ("checks", "where_time_goes", "speed", "compare", "train")
WITHOUT = """
import importlib.abc, runpy, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("datasets", "nltk", "matplotlib"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rsplit("/", 1)[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS[:-1])
def test_a_part_runs_alone_without_what_may_be_missing(part, tmp_path):
    result = run("-c", WITHOUT, BENCHMARKS / "on_gpu" / f"{part}.py", "--output_dir", tmp_path, "--tiny")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    found = json.loads((tmp_path / f"{part}.json").read_text())
    assert found and not any("error" in value for value in found.values() if isinstance(value, dict))
    table = run(BENCHMARKS / "on_gpu" / "report.py", tmp_path)
    assert table.returncode == 0 and ("|" in table.stdout), table.stderr


@pytest.mark.slow
def test_the_command_runs_a_part_and_keeps_its_log(tmp_path):
    result = run(BENCHMARKS / "on_gpu.py", "--output_dir", tmp_path, "--parts", "train", "--tiny")
    assert (result.returncode, result.stdout) == (0, "train: done\n"), result.stderr
    assert json.loads((tmp_path / "train.json").read_text()) == {"training run": {"left_out": "no --corpus was given"}}
    assert "no --corpus was given" in (tmp_path / "train.log").read_text()


@pytest.mark.slow
def test_a_training_run_leaves_weights(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat on the mat\na dog ate the bone slowly\n" * 200, encoding="utf-8")
    result = run(BENCHMARKS / "on_gpu" / "train.py", "--output_dir", tmp_path, "--tiny", "--corpus", corpus)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert json.loads((tmp_path / "train.json").read_text())["training run"]["weights"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_only_tiny_sizes_run(tmp_path):
    result = run(BENCHMARKS / "on_gpu" / "compare.py", "--output_dir", tmp_path)
    assert result.returncode == 2 and "there is no GPU; try the part with --tiny" in result.stderr


def test_a_report_names_what_was_not_measured(tmp_path):
    parts = {
        "checks": {"versions": {"torch": "2.13"}, "waits, forced": {"waits": 2}},
        "where_time_goes": {"chart 64 x 27": {"error": "out of memory"}, "planning 64 x 27": {"tree, host": 1.5}},
        "speed": {
            "32k tokens, 2-49": [{"system": "Fast-R2D2*", "seconds": 2, "tokens_per_second": 9, "times_bert": 1.25}]
        },
        "compare": {"forced": {"torch": {"seconds": 0.5}, "fused": {"seconds": 0.25}}},
    }
    for name, found in parts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    table = run(BENCHMARKS / "on_gpu" / "report.py", tmp_path).stdout
    assert "| 32k tokens, 2-49 | Fast-R2D2* | 2.000 | 9 | 1.25 |" in table
    assert "| forced | fused | 250.0 | 0.50 |" in table and "- where_time_goes, chart 64 x 27: out of memory" in table
    assert "| planning 64 x 27: tree, host | 1.50 |" in table
    assert "no result of a part" in run(BENCHMARKS / "on_gpu" / "report.py", tmp_path / "none").stderr


@pytest.mark.slow
def test_host_time_of_a_level_is_measured_without_a_gpu(tmp_path):
    result = run(BENCHMARKS / "host_time.py", "--rounds", "1", "--output_file", tmp_path / "times.json")
    assert result.returncode == 0, result.stderr
    times = json.loads((tmp_path / "times.json").read_text())
    assert set(times) == {"fused", "torch", "recorded"} and set(times["fused"]) == set(times["torch"])
    assert set(times["recorded"]) == {"forced", "chart"}
