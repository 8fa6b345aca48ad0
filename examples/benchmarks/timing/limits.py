"""What times are compared with: the matrix products of the model's definition alone, and the bandwidth of memory.

The products are those of computing every candidate of every cell. They are no lower limit for charts: in evaluation, a
model computes the parent of the chosen candidate only, and charts took 0.77 to 0.92 of the time of these products.
"""

import time
from collections.abc import Callable

import torch

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model
from modeling_fast_r2d2.chart import Chart
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart, plan_tree
from modeling_fast_r2d2.cpu_linear import linear
from timing.systems import Batch, pad


class Products:
    """The matrix products of encoding some batches and nothing else, computed by the routine that the model calls."""

    def __init__(self, config: FastR2D2Config, device: str, dtype: torch.dtype):
        size, inner = config.hidden_size, config.intermediate_size
        self.config, self.device, self.dtype = config, device, dtype
        self.shapes = ((size, 3 * size), (size, size), (size, inner), (inner, size))
        # Each layer has its own weights. One layer's alone would stay in the processor's cache; a model's do not.
        self.weights = [[self._random(*shape[::-1]) for shape in self.shapes] for _ in range(config.num_hidden_layers)]

    def of_levels(self, compositions: list[int], num_tasks: int) -> Callable[[], None]:
        """A function that computes the products of these numbers of compositions, level by level.

        Task tokens are the same in all compositions, so that the first layer projects only the children.
        """
        most = (num_tasks + 2) * max(compositions)
        inputs = [self._random(most, shape[0]) for shape in self.shapes]

        def run() -> None:
            for count in compositions:
                for layer, weights in enumerate(self.weights):
                    rows = [(num_tasks + 2) * count] * len(inputs)
                    rows[0] = 2 * count if layer == 0 else rows[0]
                    for size, vectors, weight in zip(rows, inputs, weights, strict=True):
                        linear(vectors[:size], weight)

        return run

    def of_parser(self, batches: list[Batch]) -> Callable[[], None]:
        """A function that computes the products of the parser.

        For each layer of the LSTM, these are the inputs of all steps at once, then the states step by step, for the
        sentences that are long enough.
        """
        size, into = self.config.parser_hidden_size, self.config.parser_embedding_size
        layers = self.config.parser_num_layers
        inner = [self._random(4 * size, into if layer == 0 else 2 * size) for layer in range(layers)]
        recurrent, between = self._random(4 * size, size), self._random(size, 2 * size)
        steps = _steps_of(batches)
        tokens = {sum(counts): [self._random(sum(counts), weight.shape[1]) for weight in inner] for counts in steps}
        states = self._random(max(map(max, steps)), size)

        def run() -> None:
            for counts in steps:
                for inputs, weight in zip(tokens[sum(counts)], inner, strict=True):
                    for _direction in range(2):
                        linear(inputs, weight)
                        for count in counts:
                            linear(states[:count], recurrent)
                linear(tokens[sum(counts)][-1][:, : 2 * size], between)

        return run

    def operations(self, compositions: list[int], num_tasks: int) -> int:
        """Number of additions and multiplications in `of_levels`."""
        whole = self.config.num_hidden_layers * (num_tasks + 2) * sum(compositions) * sum(a * b for a, b in self.shapes)
        spared = num_tasks * sum(compositions) * self.shapes[0][0] * self.shapes[0][1]
        return 2 * (whole - spared)

    def parser_operations(self, batches: list[Batch]) -> int:
        """Number of additions and multiplications in `of_parser`."""
        size, into, layers = (getattr(self.config, f"parser_{name}") for name in
                              ("hidden_size", "embedding_size", "num_layers"))  # fmt: skip
        of_token = 2 * 4 * size * (into + 2 * size * (layers - 1)) + layers * 2 * 4 * size * size + 2 * size * size
        return 2 * of_token * sum(map(sum, _steps_of(batches)))

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self.device, dtype=self.dtype)


def _steps_of(batches: list[Batch]) -> list[list[int]]:
    """For each batch and position, the number of sentences with a token there."""
    return [[sum(len(ids) > step for ids in batch) for step in range(max(map(len, batch)))] for batch in batches]


def charts_of(model: FastR2D2Model, batches: list[Batch], encoding: str) -> list[Chart]:
    """The charts that a model plans for each batch, with the cells that the root reaches."""
    charts = []
    for batch in batches:
        embedded = model.read_batch(**pad(batch, str(model.device)), atom_spans=None)
        lengths = embedded.sentences.lengths
        ranks = merge_ranks(embedded.split_scores, lengths)
        is_forced = encoding == "forced"
        window = model.config.window_size
        charts.append(plan_tree(ranks, lengths) if is_forced else plan_chart(ranks, lengths, window, True))
    return charts


def compositions_of(charts: list[Chart]) -> list[int]:
    """The number of compositions on every level: all candidates of its cells."""
    return [level.left.numel() for chart in charts for level in chart.levels]


def copy_bandwidth(device: str, megabytes: int = 256) -> float:
    """Bytes per second, read and written, of copying a large tensor; the best of seven runs."""
    source = torch.ones(megabytes * 2**20 // 4, device=device)
    target, best = torch.empty_like(source), 0.0
    for _ in range(7):
        start = time.perf_counter()
        target.copy_(source)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = max(best, 2 * source.numel() * 4 / (time.perf_counter() - start))
    return best
