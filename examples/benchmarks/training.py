"""Measure the time and memory of training steps against those of a BERT, on the same batches.

    python examples/benchmarks/training.py --corpus text.txt --output_dir runs/training          # base size
    python examples/benchmarks/training.py --corpus text.txt --size tiny small --tokens 2048

A step is forward pass, backward pass, clipping and update; learning rates are zero, so that weights stay random and all
rounds alike. Ways of training take turns on the same batches, and no batch comes twice. The BERT learns a classifier.
It has the same hidden size and three times the layers, so that it makes about as many matrix products per token as
encoding along a tree; on a CPU they are computed as ours are. The last columns compare a step with the rate at which
the machine computes a large matrix product, and tell the memory that a step needs beyond weights and optimiser.
"""

import argparse
import itertools
import statistics
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertForSequenceClassification, set_seed

import measuring
from modeling_fast_r2d2 import (
    FastR2D2Config,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    parameter_groups,
)
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from pretraining.options import SIZES

BERT = "BERT x 3, fine-tuning"
ALONG_TREES = {"chart_loss_weight": 0.0, "lm_loss_weight": 0.0, "tree_loss_weight": 0.0}
ON_A_CPU = (
    BERT, "fine-tuning along trees", "fine-tuning, all losses", "pretraining", "pretraining, gradient checkpointing",
)  # fmt: skip
ON_A_GPU = *ON_A_CPU, "pretraining, no kernels"


def make_model(way: str, size: str) -> nn.Module:
    """The model that is trained in one of the ways, with the same random weights each time."""
    set_seed(0)
    fields = SIZES[size] | {"vocab_size": measuring.VOCAB_SIZE}
    if way == BERT:
        return BertForSequenceClassification(measuring.bert_config(FastR2D2Config(**fields)))
    if way.startswith("fine-tuning"):
        weights = ALONG_TREES if way == "fine-tuning along trees" else {}
        return FastR2D2ForSequenceClassification(FastR2D2Config(**fields, **weights))
    kernels = "torch" if way.endswith("no kernels") else "auto"
    model = FastR2D2ForPreTraining(FastR2D2Config(**fields, composition_kernels=kernels))
    if way.endswith("gradient checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


class Training:
    """A model and its optimiser; each call makes a step on the next of some batches."""

    def __init__(self, way: str, size: str, batches: list[dict[str, Tensor]], device: str, dtype: torch.dtype):
        model = make_model(way, size).train().to(device)
        groups = [{"params": list(model.parameters())}] if way == BERT else parameter_groups(model, 0.0, 0.0)
        self.model = measuring.on_our_products(model) if way == BERT and device == "cpu" else model
        self.optimizer = torch.optim.AdamW(groups, lr=0.0, fused=device != "cpu")
        self.has_labels = not way.startswith("pretraining")
        self.batches = itertools.cycle(batches)
        self.device, self.dtype = device, dtype

    def __call__(self) -> None:
        batch = next(self.batches)
        if self.has_labels:
            batch = batch | {"labels": batch["input_ids"][:, 0] % 2}
        with torch.autocast(self.device.split(":")[0], self.dtype, enabled=self.dtype != torch.float32):
            loss = self.model(**batch).loss
        loss.backward()
        for group in self.optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def make_batches(options: argparse.Namespace) -> list[dict[str, Tensor]]:
    """A batch for each round and one more, all with about the mean length of the corpus's sentences. Raises ValueError
    if the corpus is too small."""
    count = options.rounds + 1
    sentences = measuring.read_corpus(options.corpus, 4 * count * (1 + options.tokens // 25))
    mean = sum(map(len, sentences)) / len(sentences)
    batches = list(measuring.batches_of(sentences, 0, options.tokens))
    if len(batches) < count:
        raise ValueError(f"--tokens {options.tokens} leaves {len(batches)} batches, but {count} are needed")
    batches.sort(key=lambda batch: abs(sum(map(len, batch)) / len(batch) - mean))
    return [measuring.pad(batch, options.device) for batch in batches[:count]]


def measure(options: argparse.Namespace, size: str, dtype: torch.dtype, rate: float) -> list[dict]:
    """A row per way of training a size; ``rate`` is that of `rate_of_products`."""
    batches = make_batches(options)
    steps = {way: Training(way, size, batches, options.device, dtype) for way in options.ways}
    times = measuring.take_turns(steps, options.rounds)
    tokens = statistics.median(int(batch["attention_mask"].sum()) for batch in batches[1:])
    rows = []
    for way, time in times.items():
        row = {"size": size, "way": way, "tokens": tokens, **time}
        row["tokens_per_second"] = tokens / time["seconds"]
        row |= {"times_bert": time["seconds"] / times[BERT]["seconds"]} if BERT in times else {}
        row["operations"] = measuring.operations_of(steps[way])
        row["peak_bytes"] = measuring.peak_memory(steps[way], options.device)
        row["share_of_rate"] = row["operations"] / time["seconds"] / rate
        rows.append(row)
        if options.profile:
            print(f"{way}\n{measuring.profile_of(steps[way], options.device)}", flush=True)
    return rows


def describe(results: dict) -> str:
    head = [
        "step", "seconds (least to most)", "tokens per second", "x BERT", "Gflop", "share of products' rate", "memory",
    ]  # fmt: skip
    return results["title"] + "\n\n" + as_markdown([head, *map(_cells, results["steps"])])


def _cells(row: dict) -> list[str]:
    return [
        f"{row['size']}: {row['way']}",
        f"{row['seconds']:.3g} ({row['least']:.3g} to {row['most']:.3g})",
        f"{row['tokens_per_second']:,.0f}",
        f"{row['times_bert']:.2f}" if "times_bert" in row else "–",
        f"{row['operations'] / 1e9:,.3g}",
        f"{row['share_of_rate']:.0%}",
        measuring.as_memory(row["peak_bytes"]),
    ]


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, nargs="+", help="text files, one sentence per line; by default ids are drawn")
    add("--ways", nargs="+", choices=ON_A_GPU, help="ways of training to time; by default all")
    add("--size", nargs="+", default=["base"], choices=list(SIZES), help="sizes of the model, one after the other")
    add("--tokens", type=int, default=1536, help="tokens per batch, padding included")
    add("--rounds", type=int, default=4, help="number of steps of every way that count")
    measuring.add_machine_options(parser)
    options = parser.parse_args(arguments)
    options.ways = options.ways or list(ON_A_CPU if options.device == "cpu" else ON_A_GPU)
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    dtype = measuring.set_machine(options)
    rate = measuring.rate_of_products(options.device, dtype)
    title = f"{measuring.describe_machine(options.device, dtype)}; a large product: {rate / 1e9:,.0f} Gflop/s"
    results: dict = {"title": title, "rate": rate, "steps": []}
    for size in options.size:
        results["steps"] += measure(options, size, dtype, rate)
        measuring.save(options.output_dir, "training", results, describe(results))
    print(describe(results))


if __name__ == "__main__":
    main()
