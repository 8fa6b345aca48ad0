"""Pretraining that is killed at random moments and started again ends with the weights of a run that was not.

    python tests/fuzz/kill.py --kills 20 --seed 0

Moments are drawn over the time of a whole run, so that they fall into reading, steps, evaluations and checkpoints.
"""

import argparse
import random
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
    "--use_cpu", "--report_to", "none", "--size", "tiny", "--vocab_size", "60", "--max_steps", "40",
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
        seconds = time.monotonic() - began
        for number in range(options.kills):
            run = start(folder, "killed")
            moment = chance.uniform(0, seconds)
            state = kill_after(run, moment)
            print(f"kill {number + 1}, after {moment:.1f} of {seconds:.1f} s: {state}", flush=True)
        assert start(folder, "killed").wait() == 0
        whole, killed = (load_file(folder / run / "model" / "model.safetensors") for run in ("whole", "killed"))
    different = [name for name in whole if not torch.equal(whole[name], killed[name])]
    print(f"weights that differ: {different or 'none'}")
    sys.exit(1 if different else 0)


def start(folder: Path, name: str) -> subprocess.Popen:
    command = [sys.executable, SCRIPT, "--corpus", folder / "corpus.txt", "--validation", folder / "corpus.txt"]
    log = open(folder / f"{name}.log", "a")
    return subprocess.Popen([*command, "--output_dir", folder / name, *OPTIONS], stdout=log, stderr=log)


def kill_after(run: subprocess.Popen, seconds: float) -> str:
    try:
        code = run.wait(seconds)
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGKILL)
        run.wait()
        return "killed"
    assert code == 0, f"exit code {code}"
    return "had ended"


if __name__ == "__main__":
    main()
