"""Trees of a chart, walked from the root down: the twin of the package's sweeps over the levels."""

from collections.abc import Callable

import torch
from torch import Tensor

from modeling_fast_r2d2.chart import Chart


def follow(chart: Chart, choose: Callable[[Tensor], Tensor], num_trees: int = 1) -> Tensor:
    """Walk down from the roots, taking one candidate of every cell on the way: the paper's Algorithm 2.

    Args:
        choose: takes ``(cells,)`` long, rows of ``chart.splits`` (one may occur once for each tree), and returns
            ``(cells,)`` long, the candidate that each takes.
        num_trees: trees per sentence, all walked at once.

    Returns:
        ``(num_trees, num_tokens)`` long: for each flat split point the node that splits there, -1 at sentence ends.
    """
    device = chart.roots.device
    nodes = chart.roots.repeat(num_trees)
    trees = torch.arange(num_trees, device=device).repeat_interleave(len(chart.roots))
    result = torch.full((num_trees, chart.num_tokens), -1, device=device)
    while True:
        is_cell = nodes >= chart.num_tokens
        nodes, trees = nodes[is_cell], trees[is_cell]
        if not len(nodes):
            return result
        cells = nodes - chart.num_tokens
        choice = choose(cells)
        result[trees, chart.splits[cells, choice]] = nodes
        nodes = torch.cat([chart.left[cells, choice], chart.right[cells, choice]])
        trees = trees.repeat(2)


def counts_of(chart: Chart, trees: Tensor) -> Tensor:
    """``(num_cells, window)``: how often a candidate is taken, the mean over the trees that `follow` returns."""
    tree, split = (trees >= 0).nonzero(as_tuple=True)
    cells = trees[tree, split] - chart.num_tokens
    candidates = (chart.splits[cells] == split[:, None]).long().argmax(1)
    counts = torch.zeros(chart.splits.shape, dtype=torch.float64)
    return counts.index_put_((cells, candidates), torch.tensor(1.0).double() / len(trees), accumulate=True)
