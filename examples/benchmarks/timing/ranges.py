"""The paper's Table 5: seconds of every system for every range of lengths, beside those of its matrix products."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import torch
from tqdm import tqdm

from modeling_fast_r2d2 import FastR2D2Model
from timing.check import check_batching, check_same
from timing.clock import Time, peak_memory, take_turns
from timing.limits import Products, charts_of, compositions_of
from timing.report import row_of
from timing.systems import BERT, FAIR_BERT, Batch, System, make_systems, pad
from timing.workloads import batches_by_tokens, batches_of

PRODUCTS = "products of "  # followed by a system's name: the row of its matrix products


@torch.inference_mode()
def time_ranges(
    options: argparse.Namespace, sentences: dict[tuple[int, int], Batch], model: FastR2D2Model
) -> Iterator[list[dict]]:
    """Yield the rows of one range after the other. All systems share a process and take turns."""
    systems = make_systems(options.systems, model)
    first = next(iter(sentences.values()))[:8]
    check_batching(model, first)
    check_same(systems, pad(first, options.device), model.dtype)
    for (low, high), rows_of_ids in sentences.items():
        yield _time_range(options, f"{low}-{high - 1}", rows_of_ids, systems, model)


def _time_range(
    options: argparse.Namespace, name: str, sentences: Batch, systems: list[System], model: FastR2D2Model
) -> list[dict]:
    batches = {sorts: make_batches(options, sentences, sorts) for sorts in (False, True)}
    padded = {sorts: [pad(batch, options.device) for batch in parts] for sorts, parts in batches.items()}
    functions = {system.name: partial(run_all, system, padded[system.sorts]) for system in systems}
    limits, operations = limits_of(model, functions, batches[False])
    functions |= limits
    with tqdm(total=len(functions) * (options.rounds + 1), desc=f"{name} tokens", leave=False) as bar:
        times = take_turns(functions, options.rounds, options.device, lambda _: bar.update())
    tokens, rows = sum(map(len, sentences)), []
    for system, time in times.items():
        more = ratios_of(system, times)
        if system in operations:
            more["operations_per_second"] = operations[system] / time.median
        if options.memory:
            more["peak_bytes"] = peak_memory(functions[system], options.device)
        rows.append(row_of(system, name, tokens, time, **more))
    return rows


def ratios_of(system: str, times: dict[str, Time]) -> dict[str, float]:
    """Ratios of a system's seconds to those of the products and the BERTs, if these were timed, too."""
    others = {"times_products": PRODUCTS + system}
    if not system.startswith(PRODUCTS):
        others = {"times_fair_bert": FAIR_BERT, "times_bert": BERT} | others
    return {name: times[system].median / times[other].median for name, other in others.items() if other in times}


def limits_of(model: FastR2D2Model, names, batches: list[Batch]) -> tuple[dict, dict[str, int]]:
    """For each of our systems, a function with its matrix products, and the number of operations of both."""
    products = Products(model.config, str(model.device), model.dtype)
    limits, operations = {}, {}
    for system, encoding, tasks in (("Fast-R2D2*", "forced", 1), ("Fast-R2D2", "chart", 2)):
        if system in names:
            levels = compositions_of(charts_of(model, batches, encoding))
            count = products.operations(levels, tasks) + products.parser_operations(batches)
            operations[system] = count
            of_levels = products.of_levels(levels, tasks)
            limits[PRODUCTS + system] = partial(_run_both, of_levels, products.of_parser(batches))
            operations[PRODUCTS + system] = count
    return limits, operations


def make_batches(options: argparse.Namespace, sentences: Batch, sorts: bool) -> list[Batch]:
    if options.batch_tokens:
        return list(batches_by_tokens(sentences, options.batch_tokens))
    return list(batches_of(sorted(sentences, key=len) if sorts else sentences, options.batch_size))


def run_all(system: System, batches: list[dict[str, torch.Tensor]]) -> None:
    for batch in batches:
        system.run(batch)


def _run_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()
