"""Parse many lines in one process, and check that its memory stays flat after the first tenth.

python tests/fuzz/soak.py --lines 200000
"""

import argparse
import random
import sys
import time
from pathlib import Path

from fast_r2d2_entry_points.command_line import bound_onednn_memory
from modeling_fast_r2d2 import TreeParser

CHUNK = 4096  # as the command line reads them
WORDS = "the old man bought a new car and drove it to New York , where his daughter had lived since last year .".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--method", default="parser")
    parser.add_argument("--growth", type=float, default=50, help="MiB that are allowed after the first tenth")
    options = parser.parse_args()
    bound_onednn_memory()
    chance, parse = random.Random(0), TreeParser.from_pretrained("fast-r2d2-tiny", options.method)
    early, began = None, time.process_time()
    for first in range(0, options.lines, CHUNK):
        lengths = [min(200, 1 + int(chance.lognormvariate(2.9, 0.6))) for _ in range(CHUNK)]  # 18 words in the middle
        parse([" ".join(chance.choices(WORDS, k=length)) for length in lengths])
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20  # MiB of this process, on Linux
        seconds = time.process_time() - began
        if early is None and first + CHUNK >= options.lines / 10:
            early = memory
        print(f"{first + CHUNK:,} lines, {memory:.0f} MiB, {(first + CHUNK) / seconds:,.0f} lines/s", flush=True)
    print(f"growth after the first tenth: {memory - early:.0f} MiB")
    sys.exit(1 if memory - early > options.growth else 0)


if __name__ == "__main__":
    main()
