"""What no implementation on this machine can beat: the bare matrix products, and the memory's bandwidth."""

import time
from collections.abc import Callable

import torch

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model
from modeling_fast_r2d2.chart import Chart, merge_ranks, plan_chart, plan_tree
from timing.systems import Batch, pad


class Products:
    """The matrix products of encoding some batches, and nothing else."""

    def __init__(self, config: FastR2D2Config, device: str, dtype: torch.dtype):
        size, inner = config.hidden_size, config.intermediate_size
        self.layers, self.device, self.dtype = config.num_hidden_layers, device, dtype
        self.shapes = ((size, 3 * size), (size, size), (size, inner), (inner, size))
        self.weights = [torch.randn(shape, device=device, dtype=dtype) for shape in self.shapes]

    def of_rows(self, rows: list[int]) -> Callable[[], None]:
        """A function that does them for compositions of so many rows (tokens of a composition) at once."""
        most = max(rows)
        inputs = [torch.randn(most, shape[0], device=self.device, dtype=self.dtype) for shape in self.shapes]

        def run() -> None:
            for count in rows:
                for _ in range(self.layers):
                    for vectors, weight in zip(inputs, self.weights, strict=True):
                        torch.mm(vectors[:count], weight)

        return run

    def operations(self, rows: list[int]) -> int:
        return 2 * sum(rows) * self.layers * sum(a * b for a, b in self.shapes)


def charts_of(model: FastR2D2Model, batches: list[Batch], encoding: str) -> list[Chart]:
    """The structure that a model plans for each batch; only what the root reaches."""
    charts = []
    for batch in batches:
        embedded = model.embed(**pad(batch, str(model.device)), atom_spans=None)
        lengths = embedded.sentences.lengths
        ranks = merge_ranks(embedded.split_scores, lengths)
        is_forced = encoding == "forced"
        window = model.config.window_size
        charts.append(plan_tree(ranks, lengths) if is_forced else plan_chart(ranks, lengths, window, True))
    return charts


def rows_of(charts: list[Chart], num_tasks: int) -> list[int]:
    """Rows of every level's composition: a task token or two, left and right, of each candidate."""
    return [(num_tasks + 2) * level.left.numel() for chart in charts for level in chart.levels]


def copy_bandwidth(device: str, megabytes: int = 256) -> float:
    """Bytes a second, read and written, of copying a large tensor; the best of several."""
    source = torch.ones(megabytes * 2**20 // 4, device=device)
    target, best = torch.empty_like(source), 0.0
    for _ in range(7):
        start = time.perf_counter()
        target.copy_(source)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = max(best, 2 * source.numel() * 4 / (time.perf_counter() - start))
    return best
