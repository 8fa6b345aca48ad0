"""Which tree: the methods by which a model gives trees, and the tree of minimum risk of a chart."""

from dataclasses import replace

import torch
from torch import Tensor

from .chart import Chart
from .encoder import EncodedChart
from .objectives import expected_counts

# The arguments by which each method asks a model for its trees; None asks the parser alone and encodes nothing.
METHODS: dict[str, dict[str, str] | None] = {
    "parser": None,  # "Fast-R2D2*" in the paper
    "chart": {"encoding": "chart"},  # "Fast-R2D2" in the paper
    "minimum_risk": {"encoding": "chart", "decoding": "minimum_risk"},
    "heuristic": {"encoding": "heuristic"},  # R2D2
}


def check_method(method: str) -> str:
    """The method itself; raises ValueError for an unknown one."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    return method


def add_bonus(chart: Chart, encoded: EncodedChart, bonus: Tensor) -> EncodedChart:
    """The encoding with a bonus for the candidates that split at some points, such as where punctuation stood.

    Args:
        bonus: ``(num_tokens,)``, nats by split point, sentences end to end.
    """
    choices = encoded.choices()
    raised = choices + bonus[chart.splits.clamp(min=0)].to(choices)
    return replace(encoded, candidate_log_prob=torch.where(chart.splits < 0, choices, raised))


def minimum_risk_choice(chart: Chart, encoded: EncodedChart, bonus: Tensor | None = None) -> Tensor:
    """The candidate that every cell takes in the tree of minimum risk below it, for `chart.best_tree`.

    The worth of a cell is its marginal: the probability that a tree drawn from the chart has it as a constituent. The
    worth of a tree is the sum of its cells' (Goodman, 1996, does this with a grammar's chart). Ties go to the left.

    Args:
        encoded: the chart's encoding, with ``candidate_log_prob``; forbidden candidates are not taken.
        bonus: as for `add_bonus`; None adds nothing.

    Returns:
        ``(num_cells,)`` long.
    """
    encoded = encoded if bonus is None else add_bonus(chart, encoded, bonus)
    marginals = expected_counts(chart, encoded).sum(1)
    worth = marginals.new_zeros(chart.num_nodes)  # of the best tree below each node
    chosen = torch.zeros_like(chart.splits[:, 0])
    for level in chart.levels:
        possible = encoded.choices()[level.cells, : level.left.shape[1]] > float("-inf")
        below = (worth[level.left] + worth[level.right]).masked_fill(~possible, float("-inf"))
        best, chosen[level.cells] = below.max(1)
        worth[chart.num_tokens :][level.cells] = best + marginals[level.cells]
    return chosen


__all__ = ["METHODS", "add_bonus", "check_method", "minimum_risk_choice"]
