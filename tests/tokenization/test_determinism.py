"""Equal text has equal vocabularies, in every process."""

import os
import subprocess
import sys

import pytest

MAKE_TOKENIZERS = """
import hashlib, random
from tokenization_fast_r2d2 import train_tokenizer

chance = random.Random(0)
words = ["".join(chance.choices("abcdefghéß日本", k=chance.randint(2, 7))) for _ in range(80)]
lines = [" ".join(chance.choices(words, k=6)) for _ in range(60)]
for kind, size in (("wordpiece", 60), ("wordpiece", 120), ("character", 15), ("word", 40)):
    made = train_tokenizer(lines, size, kind, show_progress=False).backend_tokenizer.to_str()
    print(kind, hashlib.sha256(made.encode()).hexdigest())
"""


@pytest.mark.slow
def test_every_process_learns_the_same_tokenizer():
    """Many pieces are equally frequent. Hash tables have another order in every process, of Python and of Rust."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE_TOKENIZERS],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(1 + seed % 3)},
            stdout=subprocess.PIPE, text=True,
        )
        for seed in range(20)
    ]  # fmt: skip
    printed = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert len(set(printed)) == 1 and printed[0].count("\n") == 4
