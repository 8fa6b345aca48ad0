"""What a training step costs on this machine, against the matrix products in it and nothing else.

    python examples/benchmark_training.py --corpus text.txt            # step, data and planning, memory
    python examples/benchmark_training.py --corpus text.txt --size tiny --only step

The products are written down while a step runs (forward, backward and all), then repeated alone on the same shapes.
Steps and products take turns; times are medians. Weights are random, which makes trees deeper than a trained parser's.
"""

import argparse
import itertools
import multiprocessing
import resource
import statistics
import time
from pathlib import Path

import torch
from benchmark import medians
from transformers import AutoTokenizer, set_seed

from modeling_fast_r2d2 import bundled_checkpoint
from modeling_fast_r2d2.chart import merge_ranks, plan_chart
from pretraining.batches import Limits, PlannedEpochs, Share
from pretraining.corpus import encode_corpus
from pretraining.models import make_model
from pretraining.optimisation import clip_gradients, make_optimizer
from pretraining.options import DataOptions, ModelOptions, TrainingOptions
from pretraining.texts import read_texts
from timing.recorder import ProductRecorder
from timing.replay import largest_operand, operations, replay
from tokenization_fast_r2d2 import DataCollatorForFastR2D2


class Training:
    """A model and batches of a corpus."""

    def __init__(self, options: argparse.Namespace, gradient_checkpointing: bool = False):
        set_seed(0)
        self.tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint("fast-r2d2-tiny"))
        size = ModelOptions(size=options.size, config_overrides=f"vocab_size={options.vocab_size}")
        self.model = make_model(self.tokenizer, size, gradient_checkpointing)
        self.optimizer = make_optimizer(self.model, TrainingOptions())
        data = DataOptions(corpus=options.corpus, clean_wikitext=True)
        corpus = encode_corpus(read_texts(data), self.tokenizer, data)
        self.epochs = PlannedEpochs(
            corpus, 0, Limits(64, options.tokens), Share(), DataCollatorForFastR2D2(self.tokenizer)
        )

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        self.model(**batch).loss.backward()
        clip_gradients(self.optimizer, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def batches(self, number: int) -> list[dict[str, torch.Tensor]]:
        """Of the usual length: those whose sentences are nearest to the corpus's mean."""
        batches = [step.batches[0] for step, _ in itertools.islice(self.epochs.steps(0), 20 * number)]
        mean = self.epochs.corpus.lengths.mean()
        return sorted(batches, key=lambda batch: abs(batch["attention_mask"].sum(1).float().mean() - mean))[:number]


def measure_step(options: argparse.Namespace) -> None:
    training = Training(options, options.gradient_checkpointing)
    [batch] = training.batches(1)
    with ProductRecorder() as recorder:
        training.step(batch)
    buffer = torch.randn(largest_operand(recorder.products))
    times = medians({
        "step": lambda: training.step(batch), "products": lambda: replay(recorder.products, buffer),
    }, options.repeats)  # fmt: skip
    tokens = int(batch["attention_mask"].sum())
    print(f"step, {options.size} size, {len(batch['input_ids'])} sentences, {tokens} tokens: {times['step']:.2f} s, "
          f"{tokens / times['step']:,.0f} tokens/s; its bare matrix products {times['products']:.2f} s, "
          f"{operations(recorder.products) / times['products'] / 1e9:,.0f} GFLOP/s; "
          f"ratio {times['step'] / times['products']:.3f}")  # fmt: skip
    measure_preparation(training, times["step"])


def measure_preparation(training: Training, step_seconds: float) -> None:
    """Loading and collating batches, planning their charts, as a share of a step."""
    start = time.perf_counter()
    num_steps = len(training.epochs.plan(0))
    epoch = (time.perf_counter() - start) / num_steps
    loading, planning, start = [], [], time.perf_counter()
    for step, _ in itertools.islice(training.epochs.steps(0), 40):
        loading.append(time.perf_counter() - start)
        planning.append(plan_seconds(step.batches[0], training.model.config.window_size))
        start = time.perf_counter()
    parts = {"order of the epoch": epoch, "loading": statistics.median(loading), "charts": statistics.median(planning)}
    print("before a step: " + ", ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in parts.items())
          + f"; together {100 * sum(parts.values()) / step_seconds:.2f} % of it")  # fmt: skip


def plan_seconds(batch: dict[str, torch.Tensor], window_size: int) -> float:
    lengths = batch["attention_mask"].sum(1)
    scores = torch.randn(len(lengths), int(lengths.max()) - 1)
    start = time.perf_counter()
    plan_chart(merge_ranks(scores, lengths), lengths, window_size)
    return time.perf_counter() - start


def measure_memory(options: argparse.Namespace) -> None:
    """Peak resident memory that one forward and backward pass adds, in fresh processes; needs Linux."""
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for gradient_checkpointing in (False, True):
        queue = context.Queue()
        process = context.Process(target=_peak, args=(options, gradient_checkpointing, queue))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"the measured process ended with {process.exitcode}; out of memory? Try fewer --tokens")
        peaks[gradient_checkpointing] = queue.get()
    (added, total), (added_with, total_with) = peaks[False], peaks[True]
    print(f"peak memory, {options.size} size: a pass adds {added:.2f} GiB, with gradient checkpointing "
          f"{added_with:.2f} GiB, {added_with / added:.3f} of it; "
          f"the whole process {total:.2f} and {total_with:.2f} GiB, {total_with / total:.3f}")  # fmt: skip


def _peak(options: argparse.Namespace, gradient_checkpointing: bool, queue) -> None:
    training = Training(options, gradient_checkpointing)
    [batch] = training.batches(1)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize() / 2**30
    training.model(**batch).loss.backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
    queue.put((peak - before, peak))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", required=True, help="text files, one sentence a line")
    parser.add_argument("--size", default="base", choices=["tiny", "small", "base"])
    parser.add_argument("--vocab_size", type=int, default=30522, help="of the model; batches use fewer pieces")
    parser.add_argument("--tokens", type=int, default=1536, help="a batch; memory grows with it")
    parser.add_argument("--gradient_checkpointing", action="store_true", help="in the step that is timed")
    parser.add_argument("--only", choices=["step", "memory"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, help="CPU threads; by default PyTorch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    if options.only in (None, "step"):
        measure_step(options)
    if options.only in (None, "memory"):
        measure_memory(options)


if __name__ == "__main__":
    main()
