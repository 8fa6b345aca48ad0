"""Straight-through choice among the candidates of a cell: the values of the best one, the gradient of the softmax."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .launch import differentiable, launch, power_of_2, row_options, runs_fused, tl, triton


def choose_reference(vectors: Tensor, candidates: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The definition of `choose`."""
    logits = candidates if noise is None else candidates + noise
    chosen = logits.argmax(-1)
    soft = logits.softmax(-1)
    weights = F.one_hot(chosen, candidates.shape[1]) + (soft - soft.detach())
    vector = (weights[..., None].to(vectors.dtype) * vectors).sum(1)
    finite = candidates.masked_fill(candidates.isinf(), 0)  # a candidate of -inf has weight 0, also in the gradient
    return vector, (weights * finite).sum(-1), chosen


def choose(vectors: Tensor, candidates: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the best candidate of each cell, with the gradients of a softmax over the candidates (paper, Section 2.1).

    Args:
        vectors: ``(cells, candidates, size)``.
        candidates: ``(cells, candidates)``, log-probabilities in nats. A candidate of -inf is not chosen.
        noise: ``(cells, candidates)`` or None. It is added to the log-probabilities for the choice and its softmax, but
            not to those returned: Gumbel noise samples the choice, -inf forbids a candidate. Noise gets no gradient.
            Each cell needs at least one finite candidate.

    Returns:
        The chosen vectors ``(cells, size)``, their log-probabilities ``(cells,)`` and their numbers ``(cells,)`` long.
        Of equal candidates the first is chosen.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if vectors.shape[:2] != candidates.shape or noise is not None and noise.shape != candidates.shape:
        raise ValueError(
            f"shapes do not fit: {vectors.shape}, {candidates.shape}, {None if noise is None else noise.shape}"
        )
    noise = noise if noise is None else noise.detach().contiguous()
    if not runs_fused(vectors):
        return choose_reference(vectors, candidates, noise)
    return _choose(vectors.contiguous(), candidates.contiguous(), noise)


@triton.jit
def _logits(candidates, noise, place, exists, HAS_NOISE: tl.constexpr):
    logits = tl.load(candidates + place, mask=exists, other=float("-inf")).to(tl.float32)
    if HAS_NOISE:
        logits += tl.load(noise + place, mask=exists, other=0).to(tl.float32)
    return logits


@triton.jit
def _choice_kernel(
    vectors, candidates, noise, vector, log_prob, chosen, COUNT: tl.constexpr, SIZE: tl.constexpr,
    HAS_NOISE: tl.constexpr, BLOCK_COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program chooses for one cell."""
    cell = tl.program_id(0).to(tl.int64)
    number, column = tl.arange(0, BLOCK_COUNT), tl.arange(0, BLOCK)
    logits = _logits(candidates, noise, cell * COUNT + number, number < COUNT, HAS_NOISE)
    place = cell * COUNT + tl.minimum(tl.argmax(logits, 0), COUNT - 1)  # NaN may point past the last one
    values = tl.load(vectors + place * SIZE + column, mask=column < SIZE)
    tl.store(vector + cell * SIZE + column, values, mask=column < SIZE)
    tl.store(log_prob + cell, tl.load(candidates + place))
    tl.store(chosen + cell, place - cell * COUNT)


@triton.jit
def _choice_backward_kernel(
    to_vector, to_log_prob, vectors, candidates, noise, chosen, grad_vectors, grad_candidates,
    COUNT: tl.constexpr, SIZE: tl.constexpr, HAS_NOISE: tl.constexpr, BLOCK_COUNT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(0).to(tl.int64)
    number, column = tl.arange(0, BLOCK_COUNT), tl.arange(0, BLOCK)
    exists, inside, place = number < COUNT, column < SIZE, cell * COUNT + number
    best = tl.load(chosen + cell)
    arriving = tl.load(to_vector + cell * SIZE + column, mask=inside, other=0)
    of_weights = tl.zeros([BLOCK_COUNT], tl.float32)
    for candidate in range(COUNT):
        offsets = (cell * COUNT + candidate) * SIZE + column
        tl.store(grad_vectors + offsets, tl.where(candidate == best, arriving, 0), mask=inside)
        values = tl.load(vectors + offsets, mask=inside, other=0).to(tl.float32)
        product = tl.sum(values * arriving.to(tl.float32))
        of_weights = tl.where(number == candidate, product, of_weights)
    log_probs = tl.load(candidates + place, mask=exists, other=float("-inf")).to(tl.float32)
    of_log_prob = tl.load(to_log_prob + cell).to(tl.float32)
    of_weights += of_log_prob * tl.where(log_probs == float("-inf"), 0, log_probs)
    logits = _logits(candidates, noise, place, exists, HAS_NOISE)
    soft = tl.exp(logits - tl.max(logits, 0))
    soft /= tl.sum(soft, 0)
    grad = soft * (of_weights - tl.sum(soft * of_weights, 0)) + tl.where(number == best, of_log_prob, 0)
    tl.store(grad_candidates + place, grad.to(grad_candidates.dtype.element_ty), mask=exists)


def _options(vectors: Tensor, noise: Tensor | None) -> dict[str, Any]:
    _, count, size = vectors.shape
    return {"COUNT": count, "HAS_NOISE": noise is not None, "BLOCK_COUNT": power_of_2(count)} | row_options(size)


def _choose_backward(
    to_vector: Tensor, to_log_prob: Tensor, vectors: Tensor, candidates: Tensor, noise: Tensor | None, chosen: Tensor
) -> tuple[Tensor, Tensor]:
    grads = torch.empty_like(vectors), torch.empty_like(candidates)
    launch(
        _choice_backward_kernel, len(vectors), to_vector.contiguous(), to_log_prob.contiguous(), vectors, candidates,
        candidates if noise is None else noise, chosen, *grads, **_options(vectors, noise),
    )  # fmt: skip
    return grads


def _save(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    context.save_for_backward(*inputs, output[2])
    context.mark_non_differentiable(output[2])


def _differentiate(context: Any, to_vector: Tensor, to_log_prob: Tensor, _: None) -> tuple[Tensor | None, ...]:
    return *_choose_backward(to_vector, to_log_prob, *context.saved_tensors), None


@differentiable(_save, _differentiate)
def _choose(vectors: Tensor, candidates: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    cells, _, size = vectors.shape
    vector, log_prob = vectors.new_empty(cells, size), candidates.new_empty(cells)
    chosen = torch.empty(cells, dtype=torch.long, device=vectors.device)
    launch(
        _choice_kernel, cells, vectors, candidates, candidates if noise is None else noise, vector, log_prob, chosen,
        **_options(vectors, noise),
    )  # fmt: skip
    return vector, log_prob, chosen
