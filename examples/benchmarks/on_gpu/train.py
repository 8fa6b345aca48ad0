"""Part (e): a training run that fits the minutes.

    python examples/benchmarks/on_gpu/train.py --output_dir runs/gpu --corpus train.txt --recipe recipe.yaml

It runs `examples/pretrain.py`, which needs the library datasets, and stops it when the minutes are over. The newest
checkpoint stays in the folder `training`; the same command with more minutes goes on from there.
"""

import importlib.util
import subprocess
import sys
import time

from part import ROOT, Part

STOP_MINUTES = 0.5  # before the end, so that what it writes last is whole


def run(part: Part) -> dict:
    options = part.options
    if importlib.util.find_spec("datasets") is None:
        return {"left_out": "examples/pretrain.py needs the library datasets"}
    if not options.corpus:
        return {"left_out": "no --corpus was given"}
    folder = options.output_dir / "training"
    command = [sys.executable, str(ROOT / "examples" / "pretrain.py"), "--output_dir", str(folder)]
    command += ["--corpus", *options.corpus, "--save_minutes", "0.05" if part.tiny else "2"]
    command += ["--recipe", options.recipe] if options.recipe else []
    command += ["--size", "tiny", "--max_steps", "2", "--use_cpu"] if part.tiny else []
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        status: int | str = process.wait(timeout=max(60 * (part.minutes_left - STOP_MINUTES), 1))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        status = "stopped when the minutes were over"
    if status not in (0, "stopped when the minutes were over"):
        raise ValueError(f"pretrain.py ended with {status}")
    saved = sorted(str(path.relative_to(folder)) for path in folder.rglob("model.safetensors"))
    return {"status": status, "seconds": time.monotonic() - start, "weights": saved, "command": command}


def main(arguments: list[str] | None = None) -> None:
    part = Part(
        "train", __doc__, arguments, corpus={"nargs": "+", "help": "text files for pretrain.py"},
        recipe={"help": "recipe for pretrain.py"},
    )  # fmt: skip
    part.measure("training run", lambda: run(part))
    part.finish()


if __name__ == "__main__":
    main()
