"""Measure the paper's Table 4 on this machine: seconds of encoding against a BERT, by the length of sentences.

    python examples/benchmarks/encoding_speed.py --corpus text.txt --output_dir runs/speed
    python examples/benchmarks/encoding_speed.py --corpus text.txt --batch_sizes 1 8 50 --ranges 0 --lengths
    python examples/benchmarks/encoding_speed.py --batch_tokens 32768 --sentences 2000      # drawn ids, no corpus

All systems have the same hidden size and random weights, run in one process and take turns. Times are medians over
rounds, with the least and the most, and ratios are to the first BERT. On a CPU that is a BERT with the matrix products
of our models, which is the fair comparison; the BERT as torch runs it comes second. Then single sentences of up to
16,384 tokens are timed along a balanced tree, a random one and a chain, which is the worst case.
"""

import argparse
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertModel, set_seed

import measuring
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from pretraining.options import SIZES

RANGES = ((2, 50), (50, 100), (100, 200), (200, 500))  # tokens; the upper end is not in the range
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SHAPES = ("balanced", "random", "chain")
FAIR_BERT, BERT = "BERT x 3, our products", "BERT x 3"
ON_A_CPU = FAIR_BERT, BERT, "BERT x 1, our products", "Fast-R2D2*", "Fast-R2D2* encoder", "Fast-R2D2"
ON_A_GPU = (
    BERT, "BERT x 1", "Fast-R2D2*", "Fast-R2D2*, no kernels", "Fast-R2D2* encoder", "Fast-R2D2",
    "Fast-R2D2, no kernels",
)  # fmt: skip
Run = Callable[[dict[str, Tensor]], Tensor]


def make_systems(model: FastR2D2Model) -> dict[str, Callable[[], Run]]:
    """For each system's name a function that makes it: a function of a padded batch.

    - ``BERT x 3`` and ``BERT x 1`` are BERTs of transformers with three times our layers (as many products per token as
      one composition per token has) and with as many layers; ``..., our products`` has the products of our models.
    - ``Fast-R2D2*`` is the parser, then the encoder along its tree; ``Fast-R2D2* encoder`` encodes along given scores.
    - ``Fast-R2D2`` is parser and pruned chart; ``R2D2`` is the chart that is pruned by the heuristic.
    - ``..., no kernels`` runs torch's operations in place of fused kernels.
    """

    @cache
    def bert(times: int) -> BertModel:
        made = BertModel(measuring.bert_config(model.config, times), add_pooling_layer=False)
        return made.eval().to(model.device, model.dtype)

    @cache
    def without_kernels() -> FastR2D2Model:
        config = FastR2D2Config.from_dict(model.config.to_dict() | {"composition_kernels": "torch"})
        plain = FastR2D2Model(config).eval().to(model.device, model.dtype)
        plain.load_state_dict(model.state_dict())
        return plain

    return {
        FAIR_BERT: lambda: _states(measuring.on_our_products(bert(3))),
        BERT: lambda: _states(bert(3)),
        "BERT x 1, our products": lambda: _states(measuring.on_our_products(bert(1))),
        "BERT x 1": lambda: _states(bert(1)),
        "Fast-R2D2*": lambda: _roots(model, "forced"),
        "Fast-R2D2*, no kernels": lambda: _roots(without_kernels(), "forced"),
        "Fast-R2D2* encoder": lambda: partial(_along_random_scores, model),
        "Fast-R2D2": lambda: _roots(model, "chart"),
        "Fast-R2D2, no kernels": lambda: _roots(without_kernels(), "chart"),
        "R2D2": lambda: _roots(model, "heuristic"),
    }


def _states(bert: BertModel) -> Run:
    return lambda batch: bert(**batch).last_hidden_state


def _roots(model: FastR2D2Model, encoding: str) -> Run:
    return lambda batch: model(**batch, encoding=encoding).pooler_output


def _along_random_scores(model: FastR2D2Model, batch: dict[str, Tensor]) -> Tensor:
    rows, seq_len = batch["input_ids"].shape
    scores = torch.rand(rows, seq_len - 1, generator=torch.Generator().manual_seed(0)).to(model.device)
    return model(**batch, split_scores=scores, encoding="forced").pooler_output


@torch.inference_mode()
def time_batches(systems: dict[str, Run], batches: list[dict[str, Tensor]], options: argparse.Namespace) -> list[dict]:
    """A row per system: seconds of encoding all batches, the ratio to the first BERT, and on a GPU the peak memory."""
    functions = {name: partial(_run_all, run, batches) for name, run in systems.items()}
    times = measuring.take_turns(functions, options.rounds)
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    bert = next((name for name in (FAIR_BERT, BERT) if name in times), None)
    rows = []
    for name, time in times.items():
        row = {"system": name, "tokens": tokens, **time}
        row |= {"times_bert": time["seconds"] / times[bert]["seconds"]} if bert else {}
        row |= {"peak_bytes": measuring.peak_memory(functions[name], "cuda")} if options.device != "cpu" else {}
        rows.append(row)
        if options.profile:
            print(f"{name}\n{measuring.profile_of(functions[name], options.device)}", flush=True)
    return rows


def _run_all(run: Run, batches: list[dict[str, Tensor]]) -> None:
    for batch in batches:
        run(batch)


@torch.inference_mode()
def time_lengths(options: argparse.Namespace, model: FastR2D2Model, length: int) -> list[dict]:
    """A row per shape of tree: seconds and peak memory of encoding one sentence of so many tokens."""
    splits = torch.arange(1.0, length)
    scores = {"balanced": (splits.long() & -splits.long()).float(), "random": torch.rand(length - 1), "chain": -splits}
    ids = torch.randint(20, measuring.VOCAB_SIZE, (1, length), device=model.device)
    runs = {
        shape: partial(model, ids, split_scores=scores[shape][None].to(model.device), encoding="forced")
        for shape in SHAPES
    }
    times = measuring.take_turns(runs, 1)
    return [
        {
            "shape": shape, "tokens": length, "seconds": times[shape]["seconds"],
            "peak_bytes": measuring.peak_memory(runs[shape], options.device),
        }
        for shape in SHAPES
    ]  # fmt: skip


def describe(results: dict) -> str:
    """The tables of everything that was measured."""
    parts = [results["title"]]
    for batching in dict.fromkeys(row["batches"] for row in results["batches"]):
        rows = [row for row in results["batches"] if row["batches"] == batching]
        ranges = list(dict.fromkeys(row["range"] for row in rows))
        systems: dict[str, list[str]] = {}
        for row in rows:
            systems.setdefault(row["system"], [row["system"]]).append(_cell(row))
        parts.append(as_markdown([[f"seconds (least to most), {batching}", *ranges], *systems.values()]))
    if rows := results["lengths"]:
        lengths = dict.fromkeys(row["tokens"] for row in rows)
        table = [
            [f"{shape} tree", *(f"{row['seconds']:.4g} s{_memory(row)}" for row in rows if row["shape"] == shape)]
            for shape in SHAPES
        ]
        parts.append(as_markdown([["one sentence, by its tokens", *map(str, lengths)], *table]))
    return "\n\n".join(parts)


def _cell(row: dict) -> str:
    ratio = f", {row['times_bert']:.2f} x BERT" if "times_bert" in row else ""
    return f"{row['seconds']:.4g} ({row['least']:.4g} to {row['most']:.4g}){ratio}{_memory(row)}"


def _memory(row: dict) -> str:
    return f", {measuring.as_memory(row['peak_bytes'])}" if row.get("peak_bytes") is not None else ""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, nargs="+", help="text files, one sentence per line; by default ids are drawn")
    add("--systems", nargs="+", choices=[*dict.fromkeys((*ON_A_CPU, *ON_A_GPU)), "R2D2"],
        help="systems to time; by default all but R2D2, which takes long")  # fmt: skip
    add("--size", choices=list(SIZES), default="base", help="size of all systems")
    add("--window_size", type=int, default=4, help="window size of the charts")
    add("--sentences", type=int, default=50, help="number of sentences per range")
    add("--ranges", type=int, nargs="*", default=[0, 1, 2, 3], choices=range(4),
        help="ranges of lengths, 0 to 3 for 2-49, 50-99, 100-199, 200-499 tokens; none leaves them out")  # fmt: skip
    add("--batch_sizes", type=int, nargs="+", default=[50], help="numbers of sentences per batch")
    add("--batch_tokens", type=int, help="instead: batches of similar lengths with so many tokens")
    add("--rounds", type=int, default=3, help="number of runs of every system that count")
    add("--lengths", type=int, nargs="*", default=list(LENGTHS), help="lengths of single sentences; none leaves them")
    measuring.add_machine_options(parser)
    options = parser.parse_args(arguments)
    options.systems = options.systems or list(ON_A_CPU if options.device == "cpu" else ON_A_GPU)
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    dtype = measuring.set_machine(options)
    sentences = {RANGES[number]: measuring.read_corpus(options.corpus, options.sentences, *RANGES[number])
                 for number in options.ranges}  # fmt: skip
    set_seed(0)
    fields = SIZES[options.size] | {"vocab_size": measuring.VOCAB_SIZE, "window_size": options.window_size}
    model = FastR2D2Model(FastR2D2Config(**fields)).eval().to(options.device, dtype)
    workload = f"{options.size} size, {options.sentences} sentences per range"
    title = f"{measuring.describe_machine(options.device, dtype)}; {workload}"
    results: dict = {"title": title, "batches": [], "lengths": []}
    made = make_systems(model)
    systems = {name: made[name]() for name in options.systems} if options.ranges else {}
    for size in [0] if options.batch_tokens else options.batch_sizes:
        batching = f"batches of {size}" if size else f"{options.batch_tokens:,} tokens per batch"
        for (low, high), rows_of_ids in sentences.items():
            batches = measuring.batches_of(rows_of_ids, size, options.batch_tokens)
            rows = time_batches(systems, [measuring.pad(batch, options.device) for batch in batches], options)
            results["batches"] += [{"batches": batching, "range": f"{low}-{high - 1}", **row} for row in rows]
            measuring.save(options.output_dir, "encoding_speed", results, describe(results))
    for length in options.lengths:
        results["lengths"] += time_lengths(options, model, length)
        measuring.save(options.output_dir, "encoding_speed", results, describe(results))
    print(describe(results))


if __name__ == "__main__":
    main()
