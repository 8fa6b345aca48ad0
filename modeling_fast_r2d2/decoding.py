"""Minimum-risk decoding: the tree of a chart that is expected to share most constituents with a drawn one."""

import torch
from torch import Tensor

from .chart import Chart
from .encoder import EncodedChart
from .objectives import expected_counts


def minimum_risk_choice(chart: Chart, encoded: EncodedChart) -> Tensor:
    """The candidate that every cell takes in the best tree below it, as `chart.best_tree` takes it.

    A cell is worth its marginal, the probability that a tree drawn from the chart has it as a constituent, and a tree
    the sum of its cells (Goodman, 1996, maximises the same of a grammar's chart). Ties go to the left.

    Args:
        encoding: of the chart, with ``candidate_log_prob``; forbidden candidates are not taken.

    Returns:
        ``(num_cells,)`` long.
    """
    marginals = expected_counts(chart, encoded).sum(1)
    worth = marginals.new_zeros(chart.num_nodes)  # of the best tree below each node
    chosen = torch.zeros_like(chart.splits[:, 0])
    for level in chart.levels:
        possible = encoded.candidate_log_prob[level.cells, : level.left.shape[1]] > float("-inf")
        below = (worth[level.left] + worth[level.right]).masked_fill(~possible, float("-inf"))
        best, chosen[level.cells] = below.max(1)
        worth[chart.num_tokens :][level.cells] = best + marginals[level.cells]
    return chosen
