"""Part (c): the speed table, and tokens per second of training.

    python examples/benchmarks/on_gpu/speed.py --output_dir runs/gpu

Against a BERT of 12 layers, by batches of 50 sentences and by budgets of 32k and 64k tokens, in the paper's four ranges
of lengths. Sentences are of random ids, so no corpus is needed; random weights give deeper trees than a trained
parser's. At the end, one small training step runs under NVIDIA's checker of memory accesses, if it is installed.
"""

import argparse
import random
import shutil
import subprocess
import sys

import torch
from part import ROOT, Part, drawn_sentences

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model
from timing.ranges import time_ranges
from timing.training import time_training
from timing.workloads import RANGES

SYSTEMS = ["BERT-12L", "Fast-R2D2*", "Fast-R2D2* encoder", "Fast-R2D2"]
STEP = """
import torch
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
config = FastR2D2Config(vocab_size=100, hidden_size=64, num_hidden_layers=1, num_attention_heads=1,
                        intermediate_size=128, parser_num_layers=1)
model = FastR2D2ForPreTraining(config).train().cuda()
model(torch.randint(20, 100, (4, 12), device="cuda")).loss.backward()
torch.cuda.synchronize()
"""


def workload(part: Part, bounds: tuple[int, int], count: int) -> list[list[int]]:
    generator = random.Random(0)
    low, high = (2, 6) if part.tiny else bounds
    vocab_size = part.sizes()["vocab_size"]
    return [drawn_sentences(1, generator.randrange(low, high), vocab_size)[0] for _ in range(count)]


def table(part: Part, bounds: tuple[int, int], batch_tokens: int | None) -> list[dict]:
    """The rows of one range. A budget gets enough sentences for two batches, a batch size four batches."""
    mean = sum(bounds) // 2
    count = 4 if part.tiny else 200 if batch_tokens is None else max(2 * batch_tokens // mean, 50)
    options = argparse.Namespace(
        systems=SYSTEMS, device=part.device, batch_size=2 if part.tiny else 50, rounds=1 if part.tiny else 3,
        batch_tokens=64 if part.tiny and batch_tokens else batch_tokens, memory=part.device == "cuda",
    )  # fmt: skip
    model = FastR2D2Model(FastR2D2Config(**part.sizes())).eval().to(part.device, part.dtype)
    return [row for rows in time_ranges(options, {bounds: workload(part, bounds, count)}, model) for row in rows]


def training(part: Part, tokens: int) -> dict:
    """Forward and backward pass of pretraining."""
    options = argparse.Namespace(training_tokens=10 if part.tiny else tokens, device=part.device, rounds=3)
    sentences = workload(part, RANGES[0], 4 if part.tiny else tokens)
    return time_training(options, FastR2D2Config(**part.sizes()), sentences, part.dtype)


def memory_check(part: Part) -> dict:
    checker = shutil.which("compute-sanitizer")
    if checker is None or part.device == "cpu":
        return {"left_out": "compute-sanitizer is not installed, or there is no GPU"}
    command = [checker, "--tool", "memcheck", "--error-exitcode", "9", sys.executable, "-c", STEP]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=max(60 * part.minutes_left, 1))
    print(run.stdout[-4000:], run.stderr[-2000:], flush=True)
    if run.returncode:
        raise ValueError(f"compute-sanitizer ended with {run.returncode}")
    return {"found": "nothing"}


def main(arguments: list[str] | None = None) -> None:
    part = Part("speed", __doc__, arguments)
    torch.manual_seed(0)
    for tokens in (1536, 6144):
        part.measure(f"training, {tokens:,} tokens", lambda tokens=tokens: training(part, tokens))
    for budget, name in ((None, "batches of 50"), (32768, "32k tokens"), (65536, "64k tokens")):
        for low, high in RANGES:
            measured = f"{name}, {low}-{high - 1}"
            part.measure(measured, lambda bounds=(low, high), budget=budget: table(part, bounds, budget))
    part.measure("memory check", lambda: memory_check(part))
    part.finish()


if __name__ == "__main__":
    main()
