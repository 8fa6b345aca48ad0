"""The command for a GPU, with tiny sizes on a CPU: parts write their files, and end with all that they began."""

import json
import subprocess
import sys
import time
from pathlib import Path

import checks
import encoding_speed
import on_gpu
import pytest
import torch
import training

BENCHMARKS = Path(on_gpu.__file__).parent
# A process that starts another one, tells its number, and does not end when it is asked to.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=cwd)


def _is_running(number: int) -> bool:
    status = Path(f"/proc/{number}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="read from /proc")
def test_a_part_ends_in_its_time_with_every_process_that_it_began(tmp_path):
    start = time.monotonic()
    end = on_gpu.run([sys.executable, "-c", STUBBORN], tmp_path / "log", seconds=3)
    assert end == "stopped, its 0.05 minutes were over" and time.monotonic() - start < 15
    began = int((tmp_path / "log").read_text())
    deadline = time.monotonic() + 10
    while _is_running(began) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(began)


def test_a_part_that_is_asked_to_end_may_save(tmp_path):
    save = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')));"
    end = on_gpu.run([sys.executable, "-c", save + "time.sleep(600)"], tmp_path / "log", seconds=5)
    assert end.startswith("stopped") and (tmp_path / "log").read_text() == "saved\n"


def test_a_part_that_fails_is_named_with_what_it_said(tmp_path):
    log = tmp_path / "training.log"
    ends = {"training": on_gpu.run([sys.executable, "-c", "print('bad luck'); raise SystemExit(3)"], log, 60)}
    assert ends["training"].startswith("failed with 3, see training.log")
    ends["tests"] = "left out without pytest"
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "training.md").write_text("| a table |")
    text = on_gpu.summary(tmp_path, ends)
    assert "## training: failed with 3" in text and "| a table |\n\n    bad luck\n\n## tests: left out" in text


@pytest.mark.parametrize("tiny", [False, True])
def test_commands_of_parts_have_options_that_exist(tiny, tmp_path):
    parts = on_gpu.commands(tmp_path, tiny, [])
    for name, script in (("encoding", encoding_speed), ("encoding_by_tokens", encoding_speed), ("training", training)):
        options = script.parse_arguments(parts[name][2:])
        assert options.output_dir == tmp_path / name and (options.device == "cpu" or not tiny)
    assert all((on_gpu.ROOT / file).exists() for file in parts["tests"] if file.startswith("tests/"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so(tmp_path):
    result = run(BENCHMARKS / "on_gpu.py", "--output_dir", tmp_path / "out")
    assert result.returncode == 1 and not (tmp_path / "out").exists()
    assert result.stderr.startswith("there is no GPU that torch can use") and result.stderr.count("\n") == 1
    with pytest.raises(SystemExit, match="there is no GPU that torch can use; --tiny tries the checks on a CPU"):
        checks.main([])


def test_a_check_that_fails_costs_no_other_one(tmp_path, monkeypatch):
    found = {"first": lambda: "5 kernels", "wrong": lambda: 1 / 0, "last": lambda: "2 waits"}
    monkeypatch.setattr(checks, "all_checks", lambda machine: iter(found.items()))
    with pytest.raises(SystemExit) as end:
        checks.main(["--tiny", "--output_dir", str(tmp_path)])
    assert end.value.code == 1
    results = json.loads((tmp_path / "checks.json").read_text())
    assert [result["right"] for result in results.values()] == [True, False, True]
    table = (tmp_path / "checks.md").read_text()
    assert "| wrong | WRONG | ZeroDivisionError: division by zero |" in table and "| last | right | 2 waits |" in table


def test_kernels_that_are_wrong_are_found(monkeypatch):
    machine = checks.Machine(tiny=True)
    assert checks.kernels(machine, "tiny", torch.float32).startswith("relative errors of kernels and of torch: ")
    exact = checks._roots_and_gradients
    answers = iter([1.0, 1.001, 1.0])  # torch in float64, kernels, torch
    monkeypatch.setattr(checks, "_roots_and_gradients", lambda *given: [next(answers) * exact(*given)[0]])
    with pytest.raises(ValueError, match="forced: kernels are wrong by 1.0e-03"):
        checks.kernels(machine, "tiny", torch.float32)


def test_charts_that_take_too_much_memory_are_found(monkeypatch):
    monkeypatch.setattr(checks, "peak_memory", lambda function, device: checks.LARGE_CHARTS_BYTES + 2**30)
    with pytest.raises(ValueError, match="5.00 GiB, at most 4.00 GiB are allowed"):
        checks.large_charts(checks.Machine(tiny=True))


def test_training_that_does_not_repeat_is_found(monkeypatch):
    machine = checks.Machine(tiny=True)
    assert checks.repeats(machine, deterministic=True) == "the same weights"
    drawn = iter(torch.randn(4, 9))
    monkeypatch.setattr(checks, "_trained_weights", lambda machine: next(drawn))
    assert checks.repeats(machine, deterministic=False).startswith("weights differ by")
    with pytest.raises(ValueError, match="weights differ by"):
        checks.repeats(machine, deterministic=True)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
def test_the_command_runs_its_parts_from_any_folder(tmp_path):
    arguments = "--output_dir there/gpu --tiny --parts checks pretraining_fp16".split()
    result = run(BENCHMARKS / "on_gpu.py", *arguments, cwd=tmp_path)
    folder = tmp_path / "there" / "gpu"
    logs = "".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
    assert result.returncode == 0, result.stdout + result.stderr + logs
    lines = result.stdout.splitlines()
    assert [line.split(",")[0] for line in lines[:2]] == ["checks: done", "pretraining_fp16: done"]
    summary = (folder / "summary.md").read_text()
    assert summary.strip() in result.stdout and "| versions | right |" in summary
    assert "| steps skipped because losses or gradients were not finite | 0 |" in summary
    assert {path.name for path in tmp_path.iterdir()} == {"there"}
