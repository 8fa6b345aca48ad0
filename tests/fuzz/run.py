"""The fuzzers for a given time, round after round with other seeds, then the numbers of what was drawn.

    make fuzz MINUTES=60

A failing example is printed and kept in `.hypothesis`, from where the next rounds try it first. When its fault is
mended, it becomes an ``@example`` above its test.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
STALL = 1800  # seconds after which pytest prints where a test of many examples is, which then hangs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first_seed", type=int, default=0)
    options = parser.parse_args()
    end, seed, total, failed = time.monotonic() + 60 * options.minutes, options.first_seed, Counter(), []
    while time.monotonic() < end:
        is_good, numbers = play(seed)
        total += numbers
        failed += [] if is_good else [seed]
        seed += 1
        print(f"seeds {options.first_seed} to {seed - 1}: {dict(total)}; failed: {failed or 'none'}", flush=True)
    sys.exit(1 if failed else 0)


def play(seed: int) -> tuple[bool, Counter[str]]:
    """One round: whether all tests passed, and the numbers of what they drew."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.json"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", str(FOLDER), f"--hypothesis-seed={seed}", "-o",
                   f"faulthandler_timeout={STALL}"]  # fmt: skip
        environment = os.environ | {
            "FUZZ_PROFILE": "long", "FUZZ_NUMBERS": str(numbers), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        is_good = subprocess.run(command, env=environment).returncode == 0
        drawn = json.loads(numbers.read_text()) if numbers.exists() else {}
    return is_good, Counter(drawn)


if __name__ == "__main__":
    main()
