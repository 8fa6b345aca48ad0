"""Timing training steps of one or two checkouts that take turns, beside their matrix products alone."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import torch

from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from timing.checkout import revision
from timing.recorder import Product
from timing.replay import largest_operand, operations, replay

BENCHMARKS = Path(__file__).resolve().parents[1]
THIS_CHECKOUT = BENCHMARKS.parents[1]


class Worker:
    """A process of `timing.step_worker`, on which methods of its ``Steps`` are called by name."""

    def __init__(self, root: Path, **arguments):
        self.root = root.resolve()
        command = [sys.executable, "-m", "timing.step_worker", str(self.root)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", cwd=BENCHMARKS)
        self.call("begin", **arguments)
        self.files = self.call("files")
        strangers = [file for file in self.files if not Path(file).resolve().is_relative_to(self.root)]
        if strangers:
            raise RuntimeError(f"the worker of {self.root} imported {strangers[0]}")

    def call(self, name: str, **arguments):
        """Call a method in the worker and return its result.

        Raises:
            RuntimeError: with the error that was raised there.
        """
        print(json.dumps([name, arguments]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"ended with {self.process.wait()}; out of memory?"}
        if "error" in answer:
            raise RuntimeError(f"the worker of {self.root}: {answer['error']}")
        return answer["answer"]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def workers_of(roots: list[Path], **arguments) -> Iterator[dict[str, Worker]]:
    """Workers by name: folder and commit, for two checkouts may be at the same commit."""
    with ExitStack() as stack:
        workers = {}
        for root in roots:
            worker = Worker(root, **arguments)
            stack.callback(worker.end)
            workers[f"{worker.root.name} {revision(root)}"] = worker
        yield workers


def take_turns(workers: dict[str, Worker], num_batches: int, threads: int) -> list[dict[str, dict[str, float]]]:
    """Time a step of each batch in each checkout, and the matrix products of that step alone.

    This process computes the products, by the routine of its own checkout. Checkouts take turns to begin. The first
    batch does not count.
    """
    torch.set_num_threads(threads)
    for worker in workers.values():
        worker.call("set_threads", threads=threads)
    turns = []
    for batch in range(num_batches):
        seed = 1 + batch
        order = list(workers.items())[:: 1 if batch % 2 else -1]
        turn = {name: worker.call("step", batch=batch, seed=seed) for name, worker in order}
        for name, worker in order:
            # After the step, in which oneDNN must not know the shapes yet, as in training. For the products it may.
            turn[name]["products"] = time_products(worker.call("record", batch=batch, seed=seed))
        turns.append({name: turn[name] for name in workers})
    return turns[1:]


@torch.no_grad()
def time_products(products: list[Product]) -> dict[str, float]:
    products = [tuple((tuple(shape), tuple(stride)) for shape, stride in product) for product in products]
    buffer = torch.randn(largest_operand(products))
    replay(set(products), buffer)  # the first run of a shape does more
    wall, cpu = time.perf_counter(), time.process_time()
    replay(products, buffer)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": wall, "cpu": cpu, "operations": operations(products)}


def describe_turns(turns: list[dict], tokens: list[int]) -> str:
    """A row per checkout with medians over batches; then ratios between two checkouts."""
    names = list(turns[0])
    head = ["step", "s", "CPU s", "tokens/s", "tokens per CPU s", "bare products, s", "CPU s", "GFLOP/s",
            "ratio step / products", "by CPU s"]  # fmt: skip
    lines = [as_markdown([head, *([name, *_figures(turns, tokens, name)] for name in names)])]
    for unit, what in (("cpu", "tokens per CPU second"), ("wall", "tokens/s")) if len(names) == 2 else ():
        ratios = ratios_of_pairs([turn[names[1]][unit] / turn[names[0]][unit] for turn in turns])
        lines.append(
            f"{what}, {names[0]} against {names[1]}: {median(ratios):.3f} x ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    if len(names) == 2:
        differences = [abs(turn[names[0]]["loss"] - turn[names[1]]["loss"]) for turn in turns]
        lines.append(f"their losses differ by at most {max(differences):.1e}")
    return "\n".join(lines)


def ratios_of_pairs(ratios: list[float]) -> list[float]:
    """Geometric means of the ratios of two turns each.

    Each checkout began one of the two turns, so that the cost of beginning cancels out. A last turn without a partner
    counts only if it is the only turn.
    """
    pairs = zip(ratios[::2], ratios[1::2], strict=False)
    return [math.sqrt(one * other) for one, other in pairs] or ratios


def _figures(turns: list[dict], tokens: list[int], name: str) -> list[str]:
    def middle(value: Callable[[dict, int], float]) -> float:
        return median(value(turn[name], count) for turn, count in zip(turns, tokens, strict=True))

    return [
        f"{middle(lambda turn, _: turn['wall']):.3f}",
        f"{middle(lambda turn, _: turn['cpu']):.3f}",
        f"{middle(lambda turn, count: count / turn['wall']):,.0f}",
        f"{middle(lambda turn, count: count / turn['cpu']):,.0f}",
        f"{middle(lambda turn, _: turn['products']['wall']):.3f}",
        f"{middle(lambda turn, _: turn['products']['cpu']):.3f}",
        f"{middle(lambda turn, _: turn['products']['operations'] / turn['products']['wall'] / 1e9):,.0f}",
        f"{middle(lambda turn, _: turn['wall'] / turn['products']['wall']):.3f}",
        f"{middle(lambda turn, _: turn['cpu'] / turn['products']['cpu']):.3f}",
    ]
