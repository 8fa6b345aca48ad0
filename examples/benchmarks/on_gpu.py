"""Check and measure this project on a GPU: one command, in parts of at most ten minutes each.

    python examples/benchmarks/on_gpu.py --output_dir runs/gpu
    python examples/benchmarks/on_gpu.py --output_dir runs/gpu --parts checks training --minutes 5

Each part is a command in a process of its own, whose whole process group ends when its minutes are over. What it prints
is in ``<part>.log``; its figures are in ``<part>/``, as JSON and as a table, after every measurement. At the end, the
tables of all parts are in ``summary.md``. Nothing needs a network. What a part needs besides the package is named when
it is missing: pytest and hypothesis for `tests`, the extra `train` for `pretraining_bf16` and `pretraining_fp16`.
``--tiny`` tries the command on a CPU, in tiny sizes.
"""

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MAX_ENDING_SECONDS = 30  # between the request to end and the end, of a part's minutes


def commands(folder: Path, tiny: bool, corpus: list[str]) -> dict[str, list[str]]:
    """The command of each part, the most informative first."""
    encoding, training = ([str(HERE / name)] for name in ("encoding_speed.py", "training.py"))
    short = "--size tiny --rounds 1 --device cpu".split() if tiny else []
    few = "--sentences 4 --batch_sizes 2 --lengths 16 --ranges 0".split() if tiny else []
    by_tokens = "--batch_tokens 32768 --sentences 2000 --ranges 0 2 --lengths".split()
    few_by_tokens = "--batch_tokens 64 --sentences 4 --ranges 0 --lengths".split()
    sizes = "--tokens 40".split() if tiny else "--size base small tiny --tokens 1536 --rounds 6".split()
    pretraining = [str(ROOT / "examples" / "pretrain.py"), "--corpus", *(corpus or [str(folder / "corpus.txt")])]
    pretraining += ["--size", "tiny" if tiny else "base", "--use_cpu", str(tiny), "--report_to", "none"]
    pretraining += ["--max_steps", "2" if tiny else "300", "--warmup_steps", "30", "--tokenizer", "fast-r2d2-tiny"]
    tests = "-m pytest -q -p no:cacheprovider --import-mode=importlib -m".split()
    tests += ["", "tests/kernels/test_gpu.py"]
    parts = {
        "checks": [str(HERE / "checks.py"), *(["--tiny"] if tiny else [])],
        "encoding": [*encoding, *short, *few] if tiny else [*encoding, "--batch_sizes", "50", "8", "--profile"],
        "training": [*training, *short, *sizes] if tiny else [*training, *sizes, "--profile"],
        "encoding_by_tokens": [*encoding, *short, *(few_by_tokens if tiny else by_tokens)],
        "tests": tests,
        "pretraining_bf16": [*pretraining, "--mixed_precision", "no" if tiny else "bf16"],
        "pretraining_fp16": [*pretraining, "--mixed_precision", "no" if tiny else "fp16"],
    }
    for name in parts.keys() - {"tests"}:
        parts[name] += ["--output_dir", str(folder / name)]
    return {name: [sys.executable, *part] for name, part in parts.items()}


def what_is_missing(part: str) -> str | None:
    """What a part needs and does not find."""
    modules = {"tests": ["pytest", "hypothesis"]} | dict.fromkeys(
        ("pretraining_bf16", "pretraining_fp16"), ["accelerate", "datasets", "matplotlib", "sklearn"]
    )
    missing = [name for name in modules.get(part, []) if importlib.util.find_spec(name) is None]
    return " and ".join(missing) or None


def run(command: list[str], log: Path, seconds: float, environment: dict[str, str] | None = None) -> str:
    """Run a command in a process group of its own, which ends when its time is over; returns how it ended.

    The group is asked to end first, so that a training run can save, and then killed, whatever is left of it.
    """
    start, ending = time.monotonic(), min(MAX_ENDING_SECONDS, seconds / 5)
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        is_over = False
        try:
            process.wait(seconds - ending)
        except subprocess.TimeoutExpired:
            is_over = True
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ending)
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()
    if is_over:
        return f"stopped, its {seconds / 60:.3g} minutes were over"
    how = "done" if process.returncode == 0 else f"failed with {process.returncode}, see {log.name}"
    return f"{how}, {time.monotonic() - start:.0f} s"


def _signal(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # no process of the group is left
        os.killpg(process.pid, number)


def summary(folder: Path, ends: dict[str, str]) -> str:
    """How every part ended, with its tables."""
    parts = []
    for name, end in ends.items():
        parts.append(f"## {name}: {end}")
        tables = sorted((folder / name).glob("*.md"))
        parts += [path.read_text(encoding="utf-8").strip() for path in tables]
        card = folder / name / "model" / "README.md"  # of a training run that came to its end
        lines = card.read_text(encoding="utf-8").splitlines() if card.exists() else []
        parts += ["\n".join(line for line in lines if line.startswith("|"))] if lines else []
        log = folder / f"{name}.log"
        if log.exists() and (not (tables or lines) or end.startswith("failed")):
            said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
            parts.append("\n".join(f"    {line}" for line in said))
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    names = list(commands(Path(), False, []))
    add("--output_dir", type=Path, required=True, help="folder for results and logs")
    add("--parts", nargs="+", choices=names, default=names, help="parts to run; by default all")
    add("--minutes", type=float, default=10, help="minutes per part, after which it is stopped")
    add("--corpus", nargs="+", type=os.path.abspath, default=[], help="text files to pretrain on")
    add("--tiny", action="store_true", help="tiny sizes, to try the command on a CPU")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() and not options.tiny:
        sys.exit("there is no GPU that torch can use; --tiny tries the command on a CPU")
    folder = options.output_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sentences = (ROOT / "examples" / "sentences.txt").read_text(encoding="utf-8")
    (folder / "corpus.txt").write_text(sentences * 200, encoding="utf-8")
    parts, ends = commands(folder, options.tiny, options.corpus), {}
    # No interpreter in place of the GPU.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    for name in options.parts:
        missing, log = what_is_missing(name), folder / f"{name}.log"
        seconds = 60 * options.minutes
        ends[name] = f"left out without {missing}" if missing else run(parts[name], log, seconds, environment)
        (folder / "summary.md").write_text(summary(folder, ends), encoding="utf-8")
        print(f"{name}: {ends[name]}", flush=True)
    print(f"\n{summary(folder, ends)}\nAll of this is in {folder / 'summary.md'}")
    sys.exit(any(end.startswith(("failed", "stopped")) for end in ends.values()))


if __name__ == "__main__":
    main()
