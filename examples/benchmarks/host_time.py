"""Measure the host's time for a level, which is all that a small level takes on a GPU.

    python examples/benchmarks/host_time.py --output_file host_time.json

The kernels are not launched, and vectors are so short that torch's own operations take little but the time of their
calls. So no GPU is needed. Trees are chains, with a composition per level; a level's time is the difference between a
long and a short chain, divided by their levels. Times are in milliseconds of a processor's time, the least of all
rounds, since other work on the machine can only add to them.
"""

import argparse
import contextlib
import functools
import importlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch

import fast_r2d2_kernels
from fast_r2d2_kernels import launch
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model, fused
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart, plan_tree
from modeling_fast_r2d2.encoder import encode_chart, encode_forced

OPS = (
    "attention", "bias_gelu", "blend_norm", "choice", "composition_layer", "gather", "range_logsumexp", "residual_norm",
)  # fmt: skip


@contextlib.contextmanager
def launches_left_out() -> Iterator[None]:
    """Inside, fused ops run on a CPU's tensors, but launch nothing."""
    modules = [importlib.import_module(f"fast_r2d2_kernels.{name}") for name in OPS]
    with contextlib.ExitStack() as stack:
        for target in (*modules, fast_r2d2_kernels):
            stack.enter_context(mock.patch.object(target, "runs_fused", lambda tensor: True))
        stack.enter_context(mock.patch.object(launch._Launcher, "__getitem__", lambda self, grid: _nothing))
        stack.enter_context(mock.patch.object(fused, "_fault", lambda *_: None))
        yield


def _nothing(*args, **options) -> None:
    pass


def level_milliseconds(run: Callable[[int], int], rounds: int, short: int = 10, long: int = 40) -> float:
    """Milliseconds per level, of a function that encodes a chain of so many tokens and returns its levels."""
    seconds: dict[int, list[float]] = {short: [], long: []}
    levels = {}
    for _ in range(rounds + 1):
        for tokens, times in seconds.items():
            start = time.process_time()
            levels[tokens] = run(tokens)
            times.append(time.process_time() - start)
    least = {tokens: min(times[1:]) for tokens, times in seconds.items()}
    return 1000 * (least[long] - least[short]) / (levels[long] - levels[short])


def encode_chain(model: FastR2D2Model, window: int, trains: bool, tokens: int) -> int:
    """Encode along a chain, or with a window above 1 its chart, and in training go back; returns the levels."""
    lengths = torch.tensor([tokens])
    ranks = merge_ranks(torch.arange(tokens - 1.0)[None], lengths)
    size = model.config.hidden_size
    leaves, tasks = torch.ones(tokens, size, requires_grad=trains), torch.ones(2, size)
    if window == 1:
        chart = plan_tree(ranks, lengths)
        encoded = encode_forced(chart, leaves, model.composition, tasks)
    else:
        chart = plan_chart(ranks, lengths, window)
        encoded = encode_chart(chart, leaves, model.composition, tasks)
    if trains:
        encoded.nodes.sum().backward()
    return len(chart.level_sizes)


def small_model(**options) -> FastR2D2Model:
    config = FastR2D2Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64,
        parser_num_layers=1, hidden_dropout_prob=0.1, **options,
    )  # fmt: skip
    return FastR2D2Model(config)


def measure(kernels: str, rounds: int) -> dict[str, float]:
    model, times = small_model(composition_kernels="triton" if kernels == "fused" else "torch"), {}
    cases = {"forced": (1, False), "chart": (4, False), "forced training": (1, True), "chart training": (4, True)}
    with launches_left_out() if kernels == "fused" else contextlib.nullcontext():
        for name, (window, trains) in cases.items():
            model.train(trains)
            with torch.set_grad_enabled(trains):
                run = functools.partial(encode_chain, model, window, trains)
                times[name] = level_milliseconds(run, rounds)
    return times


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="number of rounds that count")
    parser.add_argument("--output_file", type=Path, help="JSON file for the times")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results = {kernels: measure(kernels, options.rounds) for kernels in ("fused", "torch")}
    for ways, times in results.items():
        print(f"{ways:8}" + "".join(f"  {name} level {value:.2f} ms" for name, value in times.items()))
    if options.output_file:
        options.output_file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
