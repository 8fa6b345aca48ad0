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

    def of_levels(self, compositions: list[int], num_tasks: int) -> Callable[[], None]:
        """A function that does them for so many compositions at once, level by level. Task tokens are projected once in
        the first layer, where they are the same in all compositions."""
        most = (num_tasks + 2) * max(compositions)
        inputs = [torch.randn(most, shape[0], device=self.device, dtype=self.dtype) for shape in self.shapes]

        def run() -> None:
            for count in compositions:
                for layer in range(self.layers):
                    rows = [(num_tasks + 2) * count] * len(inputs)
                    rows[0] = 2 * count + num_tasks if layer == 0 else rows[0]
                    for size, vectors, weight in zip(rows, inputs, self.weights, strict=True):
                        torch.mm(vectors[:size], weight)

        return run

    def operations(self, compositions: list[int], num_tasks: int) -> int:
        whole = self.layers * (num_tasks + 2) * sum(compositions) * sum(a * b for a, b in self.shapes)
        spared = num_tasks * (sum(compositions) - len(compositions)) * self.shapes[0][0] * self.shapes[0][1]
        return 2 * (whole - spared)


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


def compositions_of(charts: list[Chart]) -> list[int]:
    """Compositions of every level: all candidates of its cells."""
    return [level.left.numel() for chart in charts for level in chart.levels]


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
