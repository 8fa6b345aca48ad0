"""The one walk over a chart's levels: forced encoding is the chart of window 1 (paper, Sections 2.1 and 3.3)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart
from .composition import Composition, Constants
from .fused import fused_kernels


@dataclass
class Encoding:
    """What encoding a chart yields; node ids as in `Chart`.

    Attributes:
        nodes: ``(num_nodes, hidden_size)``, a vector for every node.
        log_prob: ``(num_nodes,)`` float32 or wider, nats: log p̃ of each node's chosen subtree; None when forced.
        candidate_log_prob: ``(num_cells, window)``, log p̃ of every candidate, -inf past the last one and for
            forbidden ones; None when forced. Detached.
        chosen: ``(num_cells,)`` long, the candidate that each cell took.
    """

    nodes: Tensor
    log_prob: Tensor | None
    candidate_log_prob: Tensor | None
    chosen: Tensor


def encode_forced(chart: Chart, leaves: Tensor, composition: Composition, tasks: Tensor) -> Encoding:
    """Encode along the trees of `plan_tree`: ``n - 1`` compositions a sentence, no probabilities.

    Args:
        leaves: ``(num_tokens, hidden_size)``, token embeddings, sentences end to end.
        tasks: ``(2, hidden_size)``, the embeddings of ``[CLS]`` and ``[SUM]``.
    """
    nodes, constants = _room_for_cells(leaves, chart), composition.prepare(tasks[1:])
    with composition.packed(len(chart.level_sizes)):
        for level in chart.levels:
            parents, _ = composition(constants, nodes, level.left[:, 0], level.right[:, 0])
            nodes[_rows(chart, level.cells)] = parents.to(nodes.dtype)
    return Encoding(nodes, None, None, chart.roots.new_zeros(chart.num_cells))


def encode_chart(
    chart: Chart,
    leaves: Tensor,
    composition: Composition,
    tasks: Tensor,
    choice_noise: float = 0.0,
    forbidden: Tensor | None = None,
) -> Encoding:
    """Encode every cell from its chosen candidate, level by level (paper, Equations 1 to 5).

    Args:
        leaves, tasks: as for `encode_forced`.
        choice_noise: scale of the Gumbel noise on the choice.
        forbidden: ``(num_cells, window)`` bool, candidates that no cell may choose; None forbids none.
    """
    nodes, constants = _room_for_cells(leaves, chart), composition.prepare(tasks)
    dtype = torch.promote_types(leaves.dtype, torch.float32)
    log_prob = leaves.new_zeros(chart.num_nodes, dtype=dtype)
    candidate_log_prob = leaves.new_full(chart.splits.shape, float("-inf"), dtype=dtype)
    chosen = chart.roots.new_zeros(chart.num_cells)
    with composition.packed(len(chart.level_sizes)):
        for level in chart.levels:
            rows = _rows(chart, level.cells)
            vectors, _, candidates = compose_candidates(
                nodes, log_prob, level.left, level.right, composition, constants
            )
            out = None if forbidden is None else forbidden[level.cells, : candidates.shape[1]]
            nodes[rows], log_prob[rows], chosen[level.cells] = choose(
                vectors, candidates, choice_noise, out, composition.kernels
            )
            candidate_log_prob[level.cells, : candidates.shape[1]] = candidates.detach()
    if forbidden is not None:
        candidate_log_prob = candidate_log_prob.masked_fill(forbidden, float("-inf"))
    return Encoding(nodes, log_prob, candidate_log_prob, chosen)


def compose_candidates(
    nodes: Tensor, log_prob: Tensor, left: Tensor, right: Tensor, composition: Composition, constants: Constants
) -> tuple[Tensor, Tensor, Tensor]:
    """All candidates of some cells: vectors, log p of the step, log p̃ of the subtree.

    Args:
        left, right: ``(cells, candidates)`` node ids, candidates in ascending order of split point.

    Returns:
        ``(cells, candidates, hidden_size)`` and twice ``(cells, candidates)``.
    """
    vectors, step = composition(constants, nodes, left.flatten(), right.flatten())
    step = step.view(left.shape)
    # The outermost children cannot be split when the cell is encoded, and count as given there.
    left_log_prob = torch.cat([log_prob[left[:, :1]].detach(), log_prob[left[:, 1:]]], dim=1)
    right_log_prob = torch.cat([log_prob[right[:, :-1]], log_prob[right[:, -1:]].detach()], dim=1)
    return vectors.view(*left.shape, -1), step, step + left_log_prob + right_log_prob


def choose(
    vectors: Tensor,
    candidates: Tensor,
    noise: float = 0.0,
    forbidden: Tensor | None = None,
    kernels: str = "torch",
) -> tuple[Tensor, Tensor, Tensor]:
    """Straight-through choice: the best candidate's values, the softmax's gradient, also in evaluation.

    Args:
        vectors: ``(cells, candidates, hidden_size)``.
        candidates: ``(cells, candidates)``, log p̃ in nats.
        noise: scale of the Gumbel noise that samples the choice.
        forbidden: ``(cells, candidates)`` bool, what may not be chosen.
        kernels: ``config.composition_kernels``.

    Returns:
        Vectors ``(cells, hidden_size)``, log p̃ ``(cells,)`` and chosen candidates ``(cells,)`` long.
    """
    offsets = None  # added for the choice alone
    if noise:
        offsets = -noise * torch.empty_like(candidates).exponential_().log()
    if forbidden is not None:
        offsets = (torch.zeros_like(candidates) if offsets is None else offsets).masked_fill(forbidden, float("-inf"))
    fused = fused_kernels(kernels, vectors)
    if fused is not None:
        return fused.choose(vectors, candidates, offsets)
    logits = candidates if offsets is None else candidates + offsets
    chosen = logits.argmax(-1)
    soft = logits.softmax(-1)
    weights = F.one_hot(chosen, candidates.shape[1]) + (soft - soft.detach())  # exactly one-hot
    vector = (weights[..., None].to(vectors.dtype) * vectors).sum(1)
    return vector, (weights * candidates).sum(-1), chosen


def _room_for_cells(leaves: Tensor, chart: Chart) -> Tensor:
    return torch.cat([leaves, leaves.new_empty(chart.num_cells, leaves.shape[1])])


def _rows(chart: Chart, cells: slice) -> slice:
    return slice(chart.num_tokens + cells.start, chart.num_tokens + cells.stop)
