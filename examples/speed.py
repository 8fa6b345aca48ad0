"""The paper's Table 5 on this machine: how long encoding takes, by length of the sentences.

    python examples/speed.py --corpus wikitext2.train.txt.gz --output runs/speed            # a GPU, if there is one
    python examples/speed.py --corpus wikitext2.train.txt.gz --device cpu --sentences 50 --rounds 3

All systems have the same hidden size and random weights, run in one process and take turns; times are medians with
least and most. Two limits stand beside them: the bare matrix products of the same shapes, and the bandwidth of copying.
Then: one sentence of up to 16,384 tokens, and tokens a second of pretraining. Before anything is timed the reference
cases are checked; if one is wrong, no table is printed.
"""

import argparse
import platform
from pathlib import Path

import torch
from transformers import AutoTokenizer, set_seed

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model, bundled_checkpoint
from pretraining.options import SIZES
from timing.check import check_references
from timing.lengths import LENGTHS, describe_lengths, time_lengths
from timing.limits import copy_bandwidth
from timing.ranges import time_ranges
from timing.report import table, write
from timing.systems import DEFAULT_NAMES, NAMES
from timing.training import describe_training, time_training
from timing.workloads import RANGES, sentences_by_range
from tokenization_fast_r2d2 import clean_wikitext, read_sentences


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, nargs="+", required=True, help="text files, a sentence a line")
    add("--systems", nargs="+", choices=NAMES, default=list(DEFAULT_NAMES))
    add("--size", choices=list(SIZES), default="base")
    add("--window_size", type=int, default=4)
    add("--sentences", type=int, default=1000, help="of each range")
    add("--ranges", type=int, nargs="*", default=[0, 1, 2, 3], help="which of the four, from 0; none leaves them out")
    add("--batch_size", type=int, default=50)
    add("--batch_tokens", type=int, help="instead: sentences of like length together, so many tokens a batch")
    add("--rounds", type=int, default=3)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="by default float32 on a CPU, else bfloat16")
    add("--cuda_graphs", action="store_true", help="replay recorded launches for small levels")
    add("--threads", type=int, help="CPU threads; by default PyTorch's choice")
    add("--lengths", type=int, nargs="*", default=list(LENGTHS), help="of single sentences; none leaves that out")
    add("--training_tokens", type=int, default=0, help="of a pretraining batch; by default that is left out")
    add("--memory", action="store_true", help="also measure peak memory, by one more run of each system")
    add("--output", type=Path, help="folder for speed.json and speed.png")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype or ("float32" if options.device == "cpu" else "bfloat16"))
    sizes = SIZES[options.size] | {"vocab_size": 30522, "window_size": options.window_size}
    config = FastR2D2Config(**sizes, cuda_graphs=options.cuda_graphs)
    if options.device.startswith("cuda:"):
        torch.cuda.set_device(options.device)  # of which memory and time are asked
    count = check_references(options.device, dtype, cuda_graphs=options.cuda_graphs)
    print(f"{count} reference cases are right", flush=True)
    sentences = read_workload(options)
    set_seed(0)
    model = FastR2D2Model(config).eval().to(options.device, dtype)
    copying = copy_bandwidth(options.device)
    batching = f"{options.batch_tokens} tokens a batch" if options.batch_tokens else f"batches of {options.batch_size}"
    machine = f"{_machine(options.device)}, {str(dtype).removeprefix('torch.')}"
    results = {
        "title": f"{machine}, {options.size} size, {options.sentences} sentences, {batching}",
        "torch": torch.__version__, "copy_bytes_per_second": copying, "ranges": [], "lengths": [], "training": None,
    }  # fmt: skip
    print(f"{results['title']}; copying {copying / 1e9:.1f} GB/s", flush=True)
    for rows in time_ranges(options, sentences, model) if options.ranges else ():
        results["ranges"] += rows
        save(results, options)
        print("\n" + table(rows), flush=True)
    for row in time_lengths(options, model):
        results["lengths"].append(row)
        save(results, options)
    if options.training_tokens:
        results["training"] = time_training(options, config, next(iter(sentences.values())), dtype)
        save(results, options)
    tables = table(results["ranges"]) if results["ranges"] else "", describe_lengths(results["lengths"])
    print("\n" + "\n\n".join(filter(None, [results["title"], *tables])))
    if results["training"]:
        print(describe_training(results["training"]))


def read_workload(options: argparse.Namespace) -> dict[tuple[int, int], list[list[int]]]:
    lines = (clean_wikitext(line) for line in read_sentences(options.corpus))
    tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint())
    ranges = [RANGES[number] for number in options.ranges or [0]]
    return sentences_by_range(lines, tokenizer, options.sentences, ranges)


def save(results: dict, options: argparse.Namespace) -> None:
    """After every part, so that a run that is stopped leaves what it measured."""
    if options.output:
        write(results, options.output)


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")  # on Linux
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
