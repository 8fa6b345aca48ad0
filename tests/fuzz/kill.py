"""Pretraining that is killed at random moments and started again ends with the weights of a run that was not.

    python tests/fuzz/kill.py --kills 20 --seed 0

Moments are drawn over the time of a whole run, so that they fall into reading, steps, evaluations and checkpoints.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

SCRIPT = Path(__file__).parents[2] / "examples" / "pretrain.py"
WORDS = "the a old new man woman cat house walks sees buys sleeps in on under quickly often and".split()
OPTIONS = [
    "--use_cpu", "--report_to", "none", "--size", "tiny", "--vocab_size", "60", "--max_steps", "30",
    "--per_device_train_batch_tokens", "400", "--eval_steps", "9", "--save_steps", "4",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(2, 15))) for _ in range(400)]
        (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
        began = time.monotonic()
        assert start(folder, "whole").wait() == 0
        seconds, expected = time.monotonic() - began, weights(folder / "whole")
        for number in range(options.kills):
            moment = chance.uniform(0, seconds)
            has_ended = kill_after(start(folder, "killed"), moment)
            print(
                f"{number + 1}: after {moment:.1f} of {seconds:.1f} s {'ended' if has_ended else 'killed'}", flush=True
            )
            if has_ended:
                compare(folder / "killed", expected)
        assert start(folder, "killed").wait() == 0
        compare(folder / "killed", expected)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def compare(run: Path, expected: dict[str, torch.Tensor]) -> None:
    """End with an error if the weights of a finished run are others; else remove it, so that the next one is new."""
    found = weights(run)
    if different := [name for name in expected if not torch.equal(found[name], expected[name])]:
        sys.exit(f"weights that differ: {', '.join(different)}")
    print("the weights are the same", flush=True)
    shutil.rmtree(run)


def start(folder: Path, name: str) -> subprocess.Popen:
    command = [sys.executable, SCRIPT, "--corpus", folder / "corpus.txt", "--validation", folder / "corpus.txt"]
    log = open(folder / f"{name}.log", "a")
    return subprocess.Popen([*command, "--output_dir", folder / name, *OPTIONS], stdout=log, stderr=log)


def kill_after(run: subprocess.Popen, seconds: float) -> bool:
    """Whether the run ended before."""
    try:
        code = run.wait(seconds)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGKILL)
        run.wait()
        return False
    assert code == 0, f"exit code {code}"
    return True


if __name__ == "__main__":
    main()
