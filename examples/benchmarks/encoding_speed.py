"""Measure the paper's Table 5 on this machine: seconds of encoding, by the length of sentences.

    python examples/benchmarks/encoding_speed.py --corpus wikitext2.train.txt.gz --output_dir runs/speed
    python examples/benchmarks/encoding_speed.py --corpus wikitext2.train.txt.gz --device cpu --sentences 50 --rounds 3
    python examples/benchmarks/encoding_speed.py --corpus ... --sentences 50 --ranges 0 --lengths \\
        --batch_sizes 1 2 4 8 16 32 50

All systems have the same hidden size and random weights, run in one process and take turns. Times are medians, with the
least and the most. On a CPU, BERT is timed twice: as torch runs it, and with the matrix products of our models. The
second comparison is fair and comes first. Two more figures help to judge the times: the time of the matrix products
alone, with the same shapes, and the bandwidth of copying memory. Then single sentences of up to 16,384 tokens are timed
and, on request, batches of few sentences and pretraining. First of all, the reference cases are checked; if one is
wrong, nothing is timed.
"""

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, set_seed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # pretraining

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model, bundled_checkpoint
from pretraining.options import SIZES
from timing.batch_sizes import time_batch_sizes
from timing.check import check_references
from timing.lengths import LENGTHS, describe_lengths, time_lengths
from timing.limits import copy_bandwidth
from timing.machine import describe_machine, describe_products
from timing.ranges import time_ranges
from timing.report import describe_batch_sizes, table, write
from timing.systems import NAMES, default_names
from timing.training import describe_training, time_training
from timing.workloads import RANGES, sentences_by_range
from tokenization_fast_r2d2 import clean_wikitext, read_sentences


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, nargs="+", required=True, help="text files, one sentence per line")
    add("--systems", nargs="+", choices=NAMES, help="systems to time; by default all but the compiled one")
    add("--size", choices=list(SIZES), default="base", help="size of all systems")
    add("--window_size", type=int, default=4, help="window size of the charts")
    add("--sentences", type=int, default=1000, help="number of sentences per range")
    add(
        "--ranges",
        type=int,
        nargs="*",
        default=[0, 1, 2, 3],
        help="ranges of lengths, 0 to 3; none leaves them out",
    )
    add("--batch_size", type=int, default=50, help="number of sentences per batch")
    add(
        "--batch_tokens",
        type=int,
        help="instead: batches of similar lengths with this many tokens",
    )
    add("--rounds", type=int, default=3, help="number of runs of every system that count")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="by default a GPU, if there is one")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="by default float32 on a CPU, bfloat16 on a GPU")
    add("--threads", type=int, help="number of CPU threads; by default PyTorch's choice")
    add(
        "--lengths",
        type=int,
        nargs="*",
        default=list(LENGTHS),
        help="lengths of single sentences; or none",
    )
    add("--batch_sizes", type=int, nargs="*", default=[], help="also time batches of these numbers of sentences")
    add("--training_tokens", type=int, default=0, help="also time pretraining, on a batch of this many tokens")
    add("--memory", action="store_true", help="also measure peak memory, with one more run per system")
    add("--output_dir", type=Path, help="folder for speed.json and speed.png")
    options = parser.parse_args(arguments)
    options.systems = options.systems or default_names(options.device)
    for size in options.batch_sizes:
        if not 1 <= size <= options.sentences:
            parser.error(f"--batch_sizes must be from 1 to --sentences, {options.sentences}, got {size}")
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype or ("float32" if options.device == "cpu" else "bfloat16"))
    sizes = SIZES[options.size] | {"vocab_size": 30522, "window_size": options.window_size}
    config = FastR2D2Config(**sizes)
    if options.device.startswith("cuda:"):
        torch.cuda.set_device(options.device)  # memory and time are asked of the current device
    count = check_references(options.device, dtype)
    print(f"{count} reference cases are right", flush=True)
    sentences = read_workload(options)
    set_seed(0)
    model = FastR2D2Model(config).eval().to(options.device, dtype)
    copying = copy_bandwidth(options.device)
    batching = (
        f"{options.batch_tokens} tokens per batch" if options.batch_tokens else f"batches of {options.batch_size}"
    )
    machine = f"{describe_machine(options.device)}, {str(dtype).removeprefix('torch.')}"
    workload = f"{options.size} size, {options.sentences} sentences, {batching}"
    results = {
        "title": f"{machine}, {workload}; {describe_products(options.device, dtype)}",
        "torch": torch.__version__, "copy_bytes_per_second": copying, "ranges": [], "batch_sizes": [], "lengths": [],
        "training": None,
    }  # fmt: skip
    print(f"{results['title']}; copying {copying / 1e9:.1f} GB/s", flush=True)
    for rows in time_ranges(options, sentences, model) if options.ranges else ():
        results["ranges"] += rows
        save(results, options)
        print("\n" + table(rows), flush=True)
    first = next(iter(sentences.values()))
    for row in time_batch_sizes(options, first, model):
        results["batch_sizes"].append(row)
        save(results, options)
    for row in time_lengths(options, model):
        results["lengths"].append(row)
        save(results, options)
    if options.training_tokens:
        results["training"] = time_training(options, config, first, dtype)
        save(results, options)
    print("\n" + describe(results))


def describe(results: dict) -> str:
    """The tables of everything that was measured."""
    parts = {"ranges": table, "batch_sizes": describe_batch_sizes, "lengths": describe_lengths}
    parts["training"] = describe_training
    parts = [describe_part(results[part]) for part, describe_part in parts.items() if results[part]]
    return "\n\n".join([results["title"], *parts])


def read_workload(options: argparse.Namespace) -> dict[tuple[int, int], list[list[int]]]:
    lines = (clean_wikitext(line) for line in read_sentences(options.corpus))
    tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint())
    ranges = [RANGES[number] for number in options.ranges or [0]]
    return sentences_by_range(lines, tokenizer, options.sentences, ranges)


def save(results: dict, options: argparse.Namespace) -> None:
    """Write the results after every part, so that a run that is stopped leaves what it has measured."""
    if options.output_dir:
        write(results, options.output_dir)


if __name__ == "__main__":
    main()
