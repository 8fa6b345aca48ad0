"""Losses that guide the encoder's choice among candidates. They are not the paper's; recipes of pretraining use them.

Without guidance, the language model draws a new encoder into chains, in which the nearest word always lies beside the
root.
"""

import torch
from torch import Tensor

from .chart import Chart
from .node_rows import NodeRows


def choice_loss(chart: Chart, candidate_log_prob: Tensor, ranks: Tensor) -> Tensor:
    """Cross entropy of the encoder's choices against a teacher's (first copy, then refine: Li et al., 2019, P19-1338).

    Args:
        candidate_log_prob: ``(num_cells, window)``, log p̃ of candidates, as `EncodedChart` has it.
        ranks: ``(num_tokens,)`` long, the teacher's merge order; the teacher chooses the candidate that merges last.

    Returns:
        Scalar in nats: the mean over cells with two or more candidates; 0 if there are none.
    """
    is_candidate = chart.splits >= 0
    taught = ranks[chart.splits.clamp(min=0)].masked_fill(~is_candidate, -1).argmax(1, keepdim=True)
    has_choice = is_candidate.sum(1) > 1
    log_prob = candidate_log_prob.log_softmax(-1).gather(1, taught)[:, 0]
    return -(log_prob * has_choice).sum() / has_choice.sum().clamp(min=1)


def height_loss(chart: Chart, candidate_log_prob: Tensor, threshold: float) -> Tensor:
    """A penalty on high trees, as in GPST (Hu et al., 2024, arXiv:2403.08293).

    A leaf has height 0. The height of a cell is the mean over its candidates, by their probabilities, of one more than
    the higher child's height. This is a lower bound of the expected height, and exact where heights are certain.

    Args:
        candidate_log_prob: as for `choice_loss`.
        threshold: height per token without a penalty.

    Returns:
        Scalar: the mean over sentences of ``relu(height / n - threshold)``, ``n`` tokens.
    """
    probabilities = candidate_log_prob.softmax(-1)
    heights = NodeRows(probabilities.new_zeros(chart.num_tokens), chart.num_nodes)
    for level in chart.levels:
        higher = torch.maximum(heights.read(level.left), heights.read(level.right))
        rows = slice(chart.num_tokens + level.cells.start, chart.num_tokens + level.cells.stop)
        heights.write(rows, (probabilities[level.cells, : higher.shape[1]] * (1 + higher)).sum(1))
    return (heights.all()[chart.roots] / chart.lengths - threshold).relu().mean()


__all__ = ["choice_loss", "height_loss"]
