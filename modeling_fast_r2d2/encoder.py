"""The one walk over a chart's levels: forced encoding is the chart of window 1 (paper, Sections 2.1 and 3.3)."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart, Level, sorted_children
from .choice import encode_cells
from .composition import Composition
from .node_rows import Uses
from .node_table import NodeTable

# On a CPU, levels of more compositions than this are encoded in parts. In evaluation larger parts take more memory and
# the same time. In training every part adds to the gradients of the weights, so parts are larger; 1,024 to 8,192 took
# the same time in the tiny size.
MAX_COMPOSITIONS, MAX_COMPOSITIONS_IN_TRAINING = 256, 2048
# On a GPU only memory asks for parts, and only without gradients, which keep what every part computes. Of the base size
# in bfloat16, a composition takes about 80 kB on its way, so this many take 1.3 GB.
MAX_COMPOSITIONS_ON_GPU = 2**14


@dataclass
class EncodedChart:
    """The vectors and probabilities of a chart's nodes; node ids as in `Chart`.

    Attributes:
        nodes: ``(num_nodes, hidden_size)``, a vector for every node.
        log_prob: ``(num_nodes,)`` float32 or wider, nats: log p̃ of each node's chosen subtree; None when forced.
        candidate_log_prob: ``(num_cells, window)``, log p̃ of every candidate, -inf past the last one and for
            forbidden ones; None when forced.
        chosen: ``(num_cells,)`` long, the candidate that each cell took.
    """

    nodes: Tensor
    log_prob: Tensor | None
    candidate_log_prob: Tensor | None
    chosen: Tensor

    def choices(self) -> Tensor:
        """``candidate_log_prob``; raises ValueError for a forced encoding, which chooses nothing."""
        if self.candidate_log_prob is None:
            raise ValueError("forced encoding has no candidates to choose from; use encoding='chart'")
        return self.candidate_log_prob


def encode_forced(chart: Chart, leaves: Tensor, composition: Composition, tasks: Tensor) -> EncodedChart:
    """Encode along the trees of `plan_tree`: ``n - 1`` compositions a sentence, no probabilities.

    Args:
        leaves: ``(num_tokens, hidden_size)``, token embeddings, sentences end to end.
        tasks: ``(2, hidden_size)``, the embeddings of ``[CLS]`` and ``[SUM]``.
    """
    table = NodeTable(leaves, chart.num_nodes, composition, tasks[1:])
    for level, uses in levels_and_uses(chart, table):
        parents, _ = table.compose(level.left[:, 0], level.right[:, 0], uses)
        table.write(_rows(chart, level.cells), parents)
    return EncodedChart(table.all_vectors(), None, None, chart.roots.new_zeros(chart.num_cells))


def encode_chart(
    chart: Chart,
    leaves: Tensor,
    composition: Composition,
    tasks: Tensor,
    choice_noise: float = 0.0,
    forbidden: Tensor | None = None,
    vectors_train_choice: bool = True,
) -> EncodedChart:
    """Encode every cell from its chosen candidate, level by level (paper, Equations 1 to 5).

    Args:
        leaves, tasks: as for `encode_forced`.
        choice_noise: scale of the Gumbel noise on the choice.
        forbidden: ``(num_cells, window)`` bool, candidates that no cell may choose; None forbids none.
        vectors_train_choice: whether the gradient of a cell's vector reaches the choice of its candidate.
    """
    window, candidates = chart.splits.shape[1], []
    chosen = chart.roots.new_zeros(chart.num_cells)
    table = NodeTable(leaves, chart.num_nodes, composition, tasks, projects=True)
    for level, uses in levels_and_uses(chart, table):
        out = None if forbidden is None else forbidden[level.cells, : level.left.shape[1]]
        cells = encode_cells(table, level.left, level.right, choice_noise, out, vectors_train_choice, uses)
        table.write(_rows(chart, level.cells), cells.vectors, cells.log_prob)
        chosen[level.cells] = cells.chosen
        missing = window - level.left.shape[1]
        candidates.append(F.pad(cells.candidates, (0, missing), value=float("-inf")))
    dtype = torch.promote_types(leaves.dtype, torch.float32)
    candidate_log_prob = torch.cat([leaves.new_empty(0, window, dtype=dtype), *candidates])
    if forbidden is not None:
        candidate_log_prob = candidate_log_prob.masked_fill(forbidden, float("-inf"))
    return EncodedChart(table.all_vectors(), table.log_prob.all(), candidate_log_prob, chosen)


def levels_and_uses(chart: Chart, table: NodeTable) -> Iterator[tuple[Level, Uses | None]]:
    """`levels_in_parts`; or, where fused kernels run with gradients, whole levels with an order for these."""
    kernels = table.kernels
    if kernels is None or not torch.is_grad_enabled() or not chart.num_cells:
        return ((level, None) for level in levels_in_parts(chart))
    uses = (Uses(kernels, *of_level) for of_level in zip(*sorted_children(chart), strict=True))
    return zip(chart.levels, uses, strict=True)


def levels_in_parts(chart: Chart) -> Iterator[Level]:
    """Levels from the lowest up; large levels in parts, but on a GPU only without gradients."""
    if chart.roots.device.type == "cpu":
        at_once = MAX_COMPOSITIONS_IN_TRAINING if torch.is_grad_enabled() else MAX_COMPOSITIONS
    else:
        at_once = sys.maxsize if torch.is_grad_enabled() else MAX_COMPOSITIONS_ON_GPU
    for level in chart.levels:
        most = max(at_once // level.left.shape[1], 1)
        for start in range(0, len(level.left), most):
            part = slice(start, start + most)
            cells = slice(level.cells.start + start, min(level.cells.start + part.stop, level.cells.stop))
            yield Level(cells, level.left[part], level.right[part])


def _rows(chart: Chart, cells: slice) -> slice:
    return slice(chart.num_tokens + cells.start, chart.num_tokens + cells.stop)
