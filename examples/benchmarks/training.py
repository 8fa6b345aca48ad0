"""Measure the time of a training step, beside that of its matrix products alone, and the memory it takes.

    python examples/benchmarks/training.py --corpus text.txt                      # base size: step and memory
    python examples/benchmarks/training.py --corpus text.txt --size tiny small --only step
    python examples/benchmarks/training.py --corpus text.txt --size tiny --only step --config_overrides window_size=3 \\
        --against ../another-checkout

A recorder notes the matrix products of a step: forward pass, backward pass and update. They are then repeated alone,
with the same shapes. Steps and products take turns, and no batch comes twice; figures are medians. Weights stay random,
so that trees are deeper than a trained parser's. With ``--against``, steps of another checkout of the project take
turns with this one's. Each checkout has a process of its own; batches and seeds are the same.
"""

import argparse
import itertools
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, set_seed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # pretraining

from modeling_fast_r2d2 import bundled_checkpoint
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart
from pretraining.batches import Limits, PlannedEpochs, ProcessShare
from pretraining.corpus import tokenize_corpus
from pretraining.models import make_model
from pretraining.options import SIZES, DataOptions, ModelOptions
from pretraining.texts import read_texts
from timing.checkout import check_checkout
from timing.machine import describe_machine, describe_products
from timing.steps import THIS_CHECKOUT, describe_turns, take_turns, workers_of
from tokenization_fast_r2d2 import DataCollatorForFastR2D2, task_token_ids

# Sentences and tokens per batch, at most, and batches that count: an even number, so that each checkout begins half of
# the turns.
USUAL_BATCHES = {"tiny": (512, 2048, 10), "small": (512, 2048, 6), "base": (64, 1536, 4)}


class Training:
    """A model, and a corpus cut into batches."""

    def __init__(self, options: argparse.Namespace, gradient_checkpointing: bool = False):
        set_seed(0)
        self.tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint("fast-r2d2-tiny"))
        self.overrides = f"vocab_size={options.vocab_size}"
        if options.config_overrides:
            self.overrides += "," + options.config_overrides
        size = ModelOptions(size=options.size, config_overrides=self.overrides)
        self.model = make_model(self.tokenizer, size, gradient_checkpointing)
        data = DataOptions(corpus=options.corpus, clean_wikitext=True)
        corpus = tokenize_corpus(read_texts(data), self.tokenizer, data)
        limits = Limits(options.sentences, options.tokens)
        self.epochs = PlannedEpochs(corpus, 0, limits, ProcessShare(), DataCollatorForFastR2D2(self.tokenizer))

    def fields(self, size: str) -> dict:
        """Fields of the configuration that a worker needs besides the overrides."""
        return {**SIZES[size], **task_token_ids(self.tokenizer)}

    def batches(self, number: int) -> list[dict[str, torch.Tensor]]:
        """Typical batches: those with a mean sentence length nearest to the corpus's."""
        batches = [step.batches[0] for step, _ in itertools.islice(self.epochs.steps(0), 20 * number)]
        mean = self.epochs.corpus.lengths.mean()
        return sorted(batches, key=lambda batch: abs(batch["attention_mask"].sum(1).float().mean() - mean))[:number]


def measure_step(options: argparse.Namespace) -> None:
    training = Training(options)
    batches = training.batches(options.repeats + 1)
    tokens = [int(batch["attention_mask"].sum()) for batch in batches]
    window = training.model.config.window_size
    with tempfile.TemporaryDirectory() as folder:
        torch.save(batches, Path(folder) / "batches.pt")
        with workers_of(
            [THIS_CHECKOUT, *filter(None, [options.against])], fields=training.fields(options.size),
            overrides=training.overrides, batches=str(Path(folder) / "batches.pt"),
            gradient_checkpointing=options.gradient_checkpointing,
        ) as workers:  # fmt: skip
            for name, worker in workers.items():
                files = ", ".join(str(Path(file).resolve().relative_to(worker.root)) for file in worker.files)
                print(f"{name}: imported in {worker.root} {files}")
            for threads in options.threads:
                turns = take_turns(workers, len(batches), threads)
                print(f"\nstep, {options.size} size, window {window}, {threads} threads, {len(turns)} batches of "
                      f"{min(tokens[1:])} to {max(tokens[1:])} tokens, {len(batches[-1]['input_ids'])} sentences "
                      f"in the last; medians\n{describe_turns(turns, tokens[1:])}", flush=True)  # fmt: skip
    own = next(iter(workers))
    measure_preparation(training, statistics.median(turn[own]["wall"] for turn in turns))


def measure_preparation(training: Training, step_seconds: float) -> None:
    """Print the time of planning an epoch, loading batches and planning charts, as a share of a step."""
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
    """Print the peak resident memory that a forward and backward pass adds, in fresh processes. Needs Linux."""
    context = multiprocessing.get_context("spawn")
    peaks = {}
    for gradient_checkpointing in (False, True):
        queue = context.Queue()
        process = context.Process(target=_measure_peak, args=(options, gradient_checkpointing, queue))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"the measured process ended with {process.exitcode}; out of memory? Try fewer --tokens")
        peaks[gradient_checkpointing] = queue.get()
    (added, total), (added_with, total_with) = peaks[False], peaks[True]
    print(f"peak memory, {options.size} size: a pass adds {added:.2f} GiB, with gradient checkpointing "
          f"{added_with:.2f} GiB, {added_with / added:.3f} of it; "
          f"the whole process {total:.2f} and {total_with:.2f} GiB, {total_with / total:.3f}")  # fmt: skip


def _measure_peak(options: argparse.Namespace, gradient_checkpointing: bool, queue) -> None:
    training = Training(options, gradient_checkpointing)
    [batch] = training.batches(1)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize() / 2**30
    training.model(**batch).loss.backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
    queue.put((peak - before, peak))


def options_of_size(options: argparse.Namespace, size: str) -> argparse.Namespace:
    """The options for one size; what was not given has the usual value of that size."""
    sentences, tokens, repeats = USUAL_BATCHES[size]
    most = torch.get_num_threads()
    usual = {
        "sentences": options.sentences or sentences, "tokens": options.tokens or tokens,
        "repeats": options.repeats or repeats,
        "threads": options.threads or ([most] if size == "base" else sorted({1, most})),
    }  # fmt: skip
    return argparse.Namespace(**vars(options) | usual | {"size": size})


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", nargs="+", required=True, help="text files, one sentence per line")
    add("--size", nargs="+", default=["base"], choices=list(SIZES), help="sizes of the model, one after the other")
    add("--vocab_size", type=int, default=30522, help="vocabulary size of the model; the batches use fewer pieces")
    add("--config_overrides", help="fields of the configuration, such as window_size=3,parser_dropout_prob=0")
    add("--sentences", type=int, help="sentences per batch, at most; by default 64 for the base size, else 512")
    add(
        "--tokens",
        type=int,
        help="tokens per batch, at most; by default 1536 for the base size, else 2048",
    )
    add("--gradient_checkpointing", action="store_true", help="time the step with gradient checkpointing")
    add("--against", type=Path, help="folder of another checkout of the project to compare with")
    add("--only", choices=["step", "memory"], help="measure only one of the two")
    add(
        "--repeats",
        type=int,
        help="batches that count; by default 10, 6 and 4 for the tiny, small and base size",
    )
    add(
        "--threads",
        type=int,
        nargs="+",
        help="numbers of CPU threads; by default PyTorch's choice, and also 1 for the smaller sizes",
    )
    options = parser.parse_args(arguments)
    if options.against:
        try:
            check_checkout(options.against)
        except ValueError as error:
            parser.error(str(error))
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    print(f"torch {torch.__version__}, {describe_machine('cpu')}, {describe_products('cpu', torch.float32)}")
    # All before anything is timed, because measuring changes the number of threads.
    for each in [options_of_size(options, size) for size in options.size]:
        if options.only in (None, "step"):
            measure_step(each)
        if options.only in (None, "memory"):
            measure_memory(each)


if __name__ == "__main__":
    main()
