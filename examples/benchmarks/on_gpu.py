"""Measure this project on a GPU: one command, in parts of at most ten minutes each, the most informative first.

    python examples/benchmarks/on_gpu.py --output_dir runs/gpu
    python examples/benchmarks/on_gpu.py --output_dir runs/gpu --parts where_time_goes speed --minutes 5

Each part runs in a process of its own, writes ``<part>.json`` after every measurement and ``<part>.log``, and can run
alone: ``python examples/benchmarks/on_gpu/<part>.py``. None needs a network; only `train` needs more than the package
and its dependencies. `on_gpu/report.py` makes the documentation's tables from the files. ``--tiny`` tries everything on
a CPU.
"""

import argparse
import subprocess
import sys
from pathlib import Path

PARTS = ("checks", "where_time_goes", "speed", "compare", "train")
HERE = Path(__file__).resolve().parent / "on_gpu"
GRACE_MINUTES = 2  # for the measurement that runs when a part's minutes are over


def run_part(name: str, options: argparse.Namespace) -> str:
    """Run a part; what it prints goes to its log. Returns how it ended."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--output_dir", str(options.output_dir)]
    command += ["--minutes", str(options.minutes), *(["--tiny"] if options.tiny else [])]
    if name == "train":
        command += ["--corpus", *options.corpus] if options.corpus else []
        command += ["--recipe", options.recipe] if options.recipe else []
    with (options.output_dir / f"{name}.log").open("w", encoding="utf-8") as log:
        try:
            limit = 60 * (options.minutes + GRACE_MINUTES)
            status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            return "stopped, its minutes were over"
    return "done" if status == 0 else f"ended with {status}; see {log.name}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--output_dir", type=Path, required=True, help="folder for results and logs")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to run; by default all")
    add("--minutes", type=float, default=8, help="minutes per part, after which no further measurement begins")
    add("--tiny", action="store_true", help="tiny sizes, to try the command on a CPU")
    add("--corpus", nargs="+", help="text files for the part `train`")
    add("--recipe", help="recipe for the part `train`")
    options = parser.parse_args(arguments)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    ends = {}
    for name in options.parts:
        ends[name] = run_part(name, options)
        print(f"{name}: {ends[name]}", flush=True)
    sys.exit(any(end != "done" for end in ends.values()))


if __name__ == "__main__":
    main()
