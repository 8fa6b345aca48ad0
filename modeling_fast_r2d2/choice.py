"""A cell's candidates: their probabilities, the one that is chosen, and its vector (paper, Section 2.1).

The choice is straight-through, also in evaluation: it has the best candidate's values and the softmax's gradient.

A candidate's vector plays no part in the choice, only its probability does. So it is enough to score all candidates and
to build the chosen one's vector with a gradient. The vectors of the others are needed for the gradient of the choice
alone, and are built without a gradient of their own. This is what `_score_then_build` does; `_build_then_choose` is the
definition.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .children import Children
from .fused import KernelSizes, fused_kernels
from .node_rows import Uses
from .node_table import NodeTable
from .noise import gumbel_noise

# Compositions of a level. With fewer, scoring first costs more than it saves, since the weights are read more often: a
# training step takes 0.95 x (tiny size) and 0.98 x (base size) of the time that it takes with 0.
MIN_COMPOSITIONS_APART = 48
# Compositions times hidden size, of a level that fused kernels encode: 4,096 compositions of the base size. Scoring
# first saves a quarter of the products, but takes the host 1.6 times as long, which is all that counts for a small
# level. The limit is an estimate: no GPU has measured it.
MIN_VALUES_APART_BY_KERNELS = 4096 * 768


class EncodedCells(NamedTuple):
    vectors: Tensor  # (cells, hidden_size)
    log_prob: Tensor  # (cells,), log p̃ of the chosen candidates
    chosen: Tensor  # (cells,) long
    step: Tensor  # (cells, candidates), log p of their compositions
    candidates: Tensor  # (cells, candidates), log p̃


def encode_cells(
    table: NodeTable,
    left: Tensor,
    right: Tensor,
    noise: float = 0.0,
    forbidden: Tensor | None = None,
    vectors_train_choice: bool = True,
    uses: Uses | None = None,
) -> EncodedCells:
    """Encode the cells of one level (paper, Equations 1 to 5).

    Args:
        table: the nodes; all children of these cells are written.
        left, right: ``(cells, candidates)`` node ids, candidates in ascending order of split point.
        noise: scale of the Gumbel noise that samples the choice.
        forbidden: ``(cells, candidates)`` bool, candidates that may not be chosen; None forbids none.
        vectors_train_choice: whether the gradient of the vectors reaches the choice.
        uses: of ``left``, then ``right``, for fused kernels.
    """
    if table.scores_first and _is_worth_scoring_first(table, left):
        return _score_then_build(table, left, right, noise, forbidden, vectors_train_choice)
    return _build_then_choose(table, left, right, noise, forbidden, vectors_train_choice, uses)


def _build_then_choose(
    table: NodeTable, left: Tensor, right: Tensor, noise: float, forbidden: Tensor | None, vectors_train_choice: bool,
    uses: Uses | None,
) -> EncodedCells:  # fmt: skip
    """The definition: build the vectors of all candidates, then choose among them."""
    composition = table.composition
    vectors, step = table.compose_and_score(left.flatten(), right.flatten(), uses)
    vectors, candidates = vectors.view(*left.shape, -1), table.with_children(step, left, right, uses)
    kernels = composition.composition_kernels, composition.kernel_sizes
    vector, log_prob, chosen = choose(vectors, candidates, noise, forbidden, *kernels)
    if not vectors_train_choice:
        vector = vectors.take_along_dim(chosen[:, None, None], 1)[:, 0]
    return EncodedCells(vector, log_prob, chosen, step.view(left.shape), candidates)


def _is_worth_scoring_first(table: NodeTable, left: Tensor) -> bool:
    if table.kernels is None:
        return left.numel() >= MIN_COMPOSITIONS_APART
    num_values = left.numel() * table.vectors.values.shape[1]
    return left.shape[1] > 1 and num_values >= MIN_VALUES_APART_BY_KERNELS


def _score_then_build(
    table: NodeTable, left: Tensor, right: Tensor, noise: float, forbidden: Tensor | None, vectors_train_choice: bool
) -> EncodedCells:
    step, children = table.score(left.flatten(), right.flatten())
    candidates = table.with_children(step, left, right)
    weights, chosen = choice_weights(candidates, choice_offsets(candidates, noise, forbidden))
    first = torch.arange(0, left.numel(), left.shape[1], device=left.device)
    vectors = table.build(children, first + chosen if left.shape[1] > 1 else None)
    if weights.requires_grad and vectors_train_choice:
        vectors = _pass_gradient_to_choice(table, children, vectors, weights, chosen)
    log_prob = (weights * candidates).sum(-1)
    return EncodedCells(vectors, log_prob, chosen, step.view(left.shape), candidates)


def _pass_gradient_to_choice(
    table: NodeTable, children: Children, vectors: Tensor, weights: Tensor, chosen: Tensor
) -> Tensor:
    """The chosen vectors, with a gradient for the choice's ``weights``, for which the other candidates are built.

    Cells of one candidate take part as well: a process may have no other cells, and all processes wait for gradients
    from each.
    """
    cells, count = weights.shape
    numbers = torch.arange(count - 1, device=weights.device)
    others = numbers + (numbers >= chosen[:, None])  # (cells, count - 1)
    passed_over = vectors.new_empty(0, vectors.shape[1])
    if count > 1:
        first = torch.arange(0, cells * count, count, device=weights.device)[:, None]
        with torch.no_grad():
            passed_over = table.build(children, (first + others).flatten())
    passed_over = passed_over.view(cells, count - 1, vectors.shape[1])
    return _GradientOfChoice.apply(vectors, weights, passed_over, chosen[:, None], others)


def choose(
    vectors: Tensor,
    candidates: Tensor,
    noise: float = 0.0,
    forbidden: Tensor | None = None,
    composition_kernels: str = "torch",
    kernel_sizes: KernelSizes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Straight-through choice among candidates whose vectors are all built.

    Args:
        vectors: ``(cells, candidates, hidden_size)``.
        candidates: ``(cells, candidates)``, log p̃ in nats.
        noise, forbidden: as for `encode_cells`.
        composition_kernels, kernel_sizes: as for `fused_kernels`.

    Returns:
        Vectors ``(cells, hidden_size)``, log p̃ ``(cells,)`` and chosen candidates ``(cells,)`` long.
    """
    offsets = choice_offsets(candidates, noise, forbidden)
    fused = fused_kernels(composition_kernels, vectors, kernel_sizes)
    if fused is not None:
        return fused.choose(vectors, candidates, offsets)
    weights, chosen = choice_weights(candidates, offsets)
    vector = (weights[..., None].to(vectors.dtype) * vectors).sum(1)
    return vector, (weights * candidates).sum(-1), chosen


def choice_offsets(candidates: Tensor, noise: float, forbidden: Tensor | None) -> Tensor | None:
    """Noise and prohibitions, ``(cells, candidates)``: added to log p̃ for the choice only. None for neither."""
    offsets = None
    if noise:
        offsets = gumbel_noise(candidates, noise)
    if forbidden is not None:
        offsets = (torch.zeros_like(candidates) if offsets is None else offsets).masked_fill(forbidden, float("-inf"))
    return offsets


def choice_weights(candidates: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """``(cells, candidates)`` one-hot with the softmax's gradient, and ``(cells,)`` long, the chosen candidates."""
    logits = candidates if offsets is None else candidates + offsets
    chosen = logits.argmax(-1)
    soft = logits.softmax(-1)
    return F.one_hot(chosen, candidates.shape[1]) + (soft - soft.detach()), chosen  # exactly one-hot


class _GradientOfChoice(torch.autograd.Function):
    """Passes the chosen vectors on; ``weights`` get the gradient that a weighted sum of all candidates would give."""

    @staticmethod
    def forward(
        context: Any, vectors: Tensor, weights: Tensor, passed_over: Tensor, chosen: Tensor, others: Tensor
    ) -> Tensor:
        context.save_for_backward(vectors, passed_over, chosen, others)
        context.dtype = weights.dtype
        return vectors.view_as(vectors)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        vectors, passed_over, chosen, others = context.saved_tensors
        of_chosen = (upstream * vectors).sum(-1, keepdim=True)
        of_others = (upstream[:, None] * passed_over).sum(-1)
        of_weights = upstream.new_empty(len(chosen), 1 + others.shape[1])
        of_weights.scatter_(1, chosen, of_chosen).scatter_(1, others, of_others)
        return upstream, of_weights.to(context.dtype), None, None, None


__all__ = ["choice_offsets", "choice_weights", "choose", "encode_cells"]
