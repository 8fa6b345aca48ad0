"""The paper's Table 5 on this machine: how long encoding takes, by length of the sentences.

    python examples/speed.py --corpus wikitext2.train.txt.gz --output runs/speed            # a GPU, if there is one
    python examples/speed.py --corpus wikitext2.train.txt.gz --device cpu --sentences 50 --rounds 3

All systems have the same hidden size and random weights, run in one process and take turns; times are medians with
least and most. Two limits stand beside them: the bare matrix products of the same shapes, and the bandwidth of copying.
Before anything is timed the reference cases are checked; if one is wrong, no table is printed.
"""

import argparse
import math
import platform
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoTokenizer

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model, bundled_checkpoint
from pretraining.options import SIZES
from timing.check import check_batching, check_references
from timing.clock import peak_memory, take_turns
from timing.limits import Products, charts_of, compositions_of, copy_bandwidth
from timing.report import row_of, table, write
from timing.systems import NAMES, Batch, System, make_systems, pad
from timing.workloads import RANGES, batches_by_tokens, batches_of, sentences_by_range
from tokenization_fast_r2d2 import clean_wikitext, read_sentences

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, nargs="+", required=True, help="text files, a sentence a line")
    add("--systems", nargs="+", choices=NAMES, default=list(NAMES))
    add("--size", choices=list(SIZES), default="base")
    add("--window_size", type=int, default=4)
    add("--sentences", type=int, default=1000, help="of each range")
    add("--ranges", type=int, nargs="+", help="only these of the four ranges, from 0")
    add("--batch_size", type=int, default=50)
    add("--batch_tokens", type=int, help="instead: sentences of like length together, so many tokens a batch")
    add("--rounds", type=int, default=3)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="by default float32 on a CPU, else bfloat16")
    add("--threads", type=int, help="CPU threads; by default PyTorch's choice")
    add("--lengths", type=int, nargs="*", default=list(LENGTHS), help="of single sentences; none leaves that out")
    add("--memory", action="store_true", help="also measure peak memory, by one more run of each system")
    add("--output", type=Path, help="folder for speed.json and speed.png")
    return parser.parse_args(arguments)


@torch.inference_mode()
def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype or ("float32" if options.device == "cpu" else "bfloat16"))
    config = FastR2D2Config(**SIZES[options.size] | {"vocab_size": 30522, "window_size": options.window_size})
    print(f"{check_references(options.device, dtype)} reference cases are right", flush=True)
    systems = make_systems(options.systems, config, options.device, dtype)
    model = FastR2D2Model(config).eval().to(options.device, dtype)
    machine = f"{_machine(options.device)}, {str(dtype).removeprefix('torch.')}"
    batching = f"{options.batch_tokens} tokens" if options.batch_tokens else f"batches of {options.batch_size}"
    results = {
        "title": f"{machine}, {options.sentences} sentences, {batching}",
        "torch": torch.__version__,
        "copy_bytes_per_second": copy_bandwidth(options.device),
        "ranges": time_ranges(options, systems, model, Products(config, options.device, dtype)),
        "lengths": time_lengths(options, model),
    }
    print(f"\n{results['title']}; copying {results['copy_bytes_per_second'] / 1e9:.1f} GB/s\n")
    print(table(results["ranges"]))
    print(describe_lengths(results["lengths"]))
    if options.output:
        write(results, options.output)


def time_ranges(
    options: argparse.Namespace, systems: list[System], model: FastR2D2Model, products: Products
) -> list[dict]:
    lines = (clean_wikitext(line) for line in read_sentences(options.corpus))
    tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint())
    ranges = [RANGES[number] for number in options.ranges] if options.ranges else RANGES
    sentences = sentences_by_range(lines, tokenizer, options.sentences, ranges)
    check_batching(model, sentences[ranges[0]][:8])
    rows = []
    for (low, high), rows_of_ids in sentences.items():
        rows += _time_range(options, f"{low}-{high - 1}", rows_of_ids, systems, model, products)
    return rows


def _time_range(options, name: str, sentences: Batch, systems: list[System], model, products: Products) -> list[dict]:
    """All systems over all batches of a range, and the products of what ours compose."""
    batches = {sorts: make_batches(options, sentences, sorts) for sorts in (False, True)}
    padded = {sorts: [pad(batch, options.device) for batch in parts] for sorts, parts in batches.items()}
    functions = {system.name: partial(_run_all, system, padded[system.sorts]) for system in systems}
    bounds = {}
    for system, encoding, tasks in (("Fast-R2D2*", "forced", 1), ("Fast-R2D2", "chart", 2)):
        if system in functions:
            bounds[f"products of {system}"] = compositions_of(charts_of(model, batches[False], encoding)), tasks
    functions |= {name: products.of_levels(*levels) for name, levels in bounds.items()}
    with tqdm(total=len(functions) * (options.rounds + 1), desc=f"{name} tokens", leave=False) as bar:
        times = take_turns(functions, options.rounds, options.device, lambda _: bar.update())
    tokens, rows = sum(map(len, sentences)), []
    for system, time in times.items():
        more = {}
        if "BERT-12L" in times and not system.startswith("products"):
            more["times_bert"] = time.median / times["BERT-12L"].median
        if f"products of {system}" in times:
            more["times_products"] = time.median / times[f"products of {system}"].median
        if system in bounds:
            more["operations_per_second"] = products.operations(*bounds[system]) / time.median
        if options.memory:
            more["peak_bytes"] = peak_memory(functions[system], options.device)
        rows.append(row_of(system, name, tokens, time, **more))
    return rows


def _run_all(system: System, batches: list[dict[str, torch.Tensor]]) -> None:
    for batch in batches:
        system.run(batch)


def make_batches(options: argparse.Namespace, sentences: Batch, sorts: bool) -> list[Batch]:
    if options.batch_tokens:
        return list(batches_by_tokens(sentences, options.batch_tokens))
    return list(batches_of(sorted(sentences, key=len) if sorts else sentences, options.batch_size))


def time_lengths(options: argparse.Namespace, model: FastR2D2Model) -> list[dict]:
    """One sentence along a balanced tree, a random one and, the worst case, a chain."""
    rows = []
    for length in options.lengths:
        ids = torch.randint(20, 30000, (1, length), device=options.device)
        splits = torch.arange(1, length, device=options.device)
        scores = {
            "balanced": (splits & -splits).float(),  # halves at powers of two
            "random": torch.rand(length - 1, device=options.device),
            "chain": -splits.float(),
        }
        functions = {
            shape: partial(model, ids, split_scores=row[None], encoding="forced") for shape, row in scores.items()
        }
        if length > 4096:
            functions.pop("chain")  # as many levels as tokens: minutes
        for shape, time in take_turns(functions, 1, options.device).items():
            rows.append({"shape": shape, "tokens": length, "seconds": time.median})
    return rows


def describe_lengths(rows: list[dict]) -> str:
    """Seconds by length, and the power of the length by which they grow, from the least squares of the logarithms."""
    lines = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        points = [(math.log(row["tokens"]), math.log(row["seconds"])) for row in rows if row["shape"] == shape]
        listed = ", ".join(f"{row['tokens']}: {row['seconds']:.2f}" for row in rows if row["shape"] == shape)
        x_mean, y_mean = (sum(values) / len(points) for values in zip(*points, strict=True))
        slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / max(
            sum((x - x_mean) ** 2 for x, _ in points), 1e-9
        )
        lines.append(f"one sentence, {shape} tree, seconds by tokens: {listed}; grows as n^{slope:.2f}")
    return "\n" + "\n".join(lines)


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
