"""Encodings whose small levels are replayed: along trees, and by charts without noise.

A recording is a whole level: it gathers the children from the nodes, composes them, chooses among the candidates and
writes the results among the nodes. For each replay one copy brings the cells' rows and children. A level is padded to
the size of a recording by the cells that follow. These are cells of higher levels, whose children may not be written
yet; they are encoded again when their own level comes. Past the last cell there are rows that nobody reads.
"""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart
from .choice import encode_cells
from .composition import Composition, SharedInputs
from .level_graphs import MAX_COMPOSITIONS, LevelGraphs, padded_size
from .node_table import NodeTable


def encode_recorded(
    chart: Chart, leaves: Tensor, composition: Composition, tasks: Tensor, forbidden: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """The attributes of `encoder.EncodedChart`, by recordings.

    Args:
        chart, leaves, forbidden: as for `encoder.encode_chart`.
        tasks: as for `Composition.prepare`; ``[SUM]`` alone encodes along the trees of `plan_tree`.
    """
    graphs = composition.graphs
    assert graphs is not None
    shared, plan = composition.prepare(tasks), plan_levels(chart, forbidden)
    kind = len(tasks), chart.splits.shape[1], forbidden is not None, leaves.dtype
    with graphs.turn(composition, leaves.device, chart.num_nodes):
        if kind not in graphs.kinds:
            graphs.kinds[kind] = RecordedLevels(graphs, composition, shared, leaves, *kind[1:3])
        levels = graphs.kinds[kind]
        levels.begin(shared, leaves)
        for level in chart.levels:
            if level.left.numel():
                levels.encode(plan, level.cells, level.left.shape[1])
        return levels.results(chart, forbidden)


def plan_levels(chart: Chart, forbidden: Tensor | None) -> Tensor:
    """For each cell, and ``MAX_COMPOSITIONS`` more, the row of its node, then for each candidate the left child, the
    right child and, unless ``forbidden`` is None, whether it is forbidden. ``(cells, 1 + window * columns)`` long."""
    columns = [chart.left, chart.right, *([] if forbidden is None else [forbidden.long()])]
    candidates = F.pad(torch.stack(columns, -1).flatten(1), (0, 0, 0, MAX_COMPOSITIONS))
    rows = torch.arange(chart.num_tokens, chart.num_tokens + len(candidates), device=candidates.device)
    return torch.cat([rows[:, None], candidates], 1)


class RecordedLevels:
    """One kind of encoding: its nodes, at fixed addresses, and the recordings of its levels."""

    def __init__(
        self, graphs: LevelGraphs, composition: Composition, shared: SharedInputs, leaves: Tensor, window: int,
        forbids: bool,
    ):  # fmt: skip
        self._recorder, self._columns = graphs.recorder, 3 if forbids else 2
        self._recordings: dict[tuple[int, int], tuple] = {}
        rows = graphs.num_nodes + MAX_COMPOSITIONS
        owner: Any = weakref.proxy(composition)  # which in its turn keeps the recordings
        with torch.inference_mode(False), torch.no_grad():  # so that both modes may write into the buffers
            self.shared = SharedInputs.of_tensors([tensor.clone() for tensor in shared.tensors()])
            self.table = NodeTable(leaves[:0], rows, owner, self.shared.tasks)
            self.table.shared = self.shared
            self.candidate_log_prob = self.table.log_prob.values.new_empty(rows, window)
            self.chosen = torch.empty(rows, dtype=torch.long, device=leaves.device)

    def begin(self, shared: SharedInputs, leaves: Tensor) -> None:
        torch._foreach_copy_(self.shared.tensors(), shared.tensors())
        self.table.vectors.values[: len(leaves)] = leaves
        self.table.log_prob.values[: len(leaves)] = 0

    def encode(self, plan: Tensor, cells: slice, candidates: int) -> None:
        """Encode a level; ``plan`` is from `plan_levels`."""
        size, columns = padded_size(cells.stop - cells.start), slice(1 + self._columns * candidates)
        if size * candidates > MAX_COMPOSITIONS:
            return self._encode_level(plan[cells, columns])
        level = plan[cells.start : cells.start + size, columns]
        if (size, candidates) not in self._recordings:
            with torch.inference_mode(False), torch.no_grad():
                inputs = level.clone()
                replay = self._recorder.record(lambda: self._encode_level(inputs))
            self._recordings[size, candidates] = inputs, replay
        inputs, replay = self._recordings[size, candidates]
        inputs.copy_(level)
        replay()

    def _encode_level(self, level: Tensor) -> None:
        """What is recorded; ``level`` is a part of a plan."""
        rows, candidates = level[:, 0], level[:, 1:].unflatten(1, (-1, self._columns))
        left, right, *forbidden = candidates.unbind(-1)
        if len(self.shared.tasks) == 1:
            parents, _ = self.table.compose(left[:, 0], right[:, 0])
            return _put(self.table.vectors.values, rows, parents)
        cells = encode_cells(self.table, left, right, forbidden=forbidden[0].bool() if forbidden else None)
        missing = self.candidate_log_prob.shape[1] - left.shape[1]
        _put(self.table.vectors.values, rows, cells.vectors)
        _put(self.table.log_prob.values, rows, cells.log_prob)
        _put(self.candidate_log_prob, rows, F.pad(cells.candidates, (0, missing), value=float("-inf")))
        _put(self.chosen, rows, cells.chosen)

    def results(self, chart: Chart, forbidden: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """Copies, since the next encoding writes over the nodes."""
        nodes, cells = slice(chart.num_nodes), slice(chart.num_tokens, chart.num_nodes)
        vectors = self.table.vectors.values[nodes].clone()
        if len(self.shared.tasks) == 1:
            return vectors, None, None, chart.roots.new_zeros(chart.num_cells)
        candidate_log_prob = self.candidate_log_prob[cells].clone()
        if forbidden is not None:
            candidate_log_prob.masked_fill_(forbidden, float("-inf"))
        return vectors, self.table.log_prob.values[nodes].clone(), candidate_log_prob, self.chosen[cells].clone()


def _put(buffer: Tensor, rows: Tensor, values: Tensor) -> None:
    buffer.index_copy_(0, rows, values.to(buffer.dtype))


__all__ = ["encode_recorded"]
