"""The parent of two contextualised children in one pass: softmax of two logits, weighted sum, layer norm."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .launch import differentiable, launch, row_options, runs_fused, tl, triton


def blend_norm_reference(weight_logits: Tensor, left: Tensor, right: Tensor, eps: float) -> Tensor:
    """The definition of `blend_norm`."""
    weights = weight_logits.softmax(-1)
    blend = weights[:, :1] * left + weights[:, 1:] * right
    return F.layer_norm(blend, blend.shape[-1:], eps=eps).to(left.dtype)


def blend_norm(weight_logits: Tensor, left: Tensor, right: Tensor, eps: float) -> Tensor:
    """``layer_norm(w[0] * left + w[1] * right)`` with ``w = softmax(weight_logits)``; the norm has no parameters.

    Args:
        weight_logits: ``(compositions, 2)``.
        left, right: ``(compositions, size)``, the children.
        eps: added to the variance.

    Returns:
        ``(compositions, size)`` in the dtype of ``left``.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if left.shape != right.shape or weight_logits.shape != (len(left), 2):
        shapes = f"weight_logits {weight_logits.shape}, left {left.shape}, right {right.shape}"
        raise ValueError(f"shapes do not fit: {shapes}")
    if not runs_fused(left):
        return blend_norm_reference(weight_logits, left, right, eps)
    return _blend_norm(weight_logits.contiguous(), left.contiguous(), right.contiguous(), eps)[0]


@triton.jit
def _weights(logits, row):
    first, second = tl.load(logits + 2 * row).to(tl.float32), tl.load(logits + 2 * row + 1).to(tl.float32)
    highest = tl.maximum(first, second)
    first, second = tl.exp(first - highest), tl.exp(second - highest)
    return first / (first + second), second / (first + second)


@triton.jit
def _blend_norm_kernel(logits, left, right, out, reciprocal, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """One composition."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside, offsets = column < SIZE, row * SIZE + column
    of_left, of_right = _weights(logits, row)
    blend = of_left * tl.load(left + offsets, mask=inside, other=0).to(tl.float32)
    blend += of_right * tl.load(right + offsets, mask=inside, other=0).to(tl.float32)
    centred = tl.where(inside, blend - tl.sum(blend) / SIZE, 0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred) / SIZE + eps)
    tl.store(out + offsets, (centred * scale).to(out.dtype.element_ty), mask=inside)
    tl.store(reciprocal + row, scale)


@triton.jit
def _blend_norm_backward_kernel(
    upstream, logits, left, right, out, reciprocal, grad_logits, grad_left, grad_right,
    SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside, offsets = column < SIZE, row * SIZE + column
    arriving = tl.load(upstream + offsets, mask=inside, other=0).to(tl.float32)
    normed = tl.load(out + offsets, mask=inside, other=0).to(tl.float32)
    centred = arriving - tl.sum(arriving) / SIZE - normed * (tl.sum(arriving * normed) / SIZE)
    grad = tl.where(inside, centred * tl.load(reciprocal + row), 0)
    of_left, of_right = _weights(logits, row)
    tl.store(grad_left + offsets, (of_left * grad).to(grad_left.dtype.element_ty), mask=inside)
    tl.store(grad_right + offsets, (of_right * grad).to(grad_right.dtype.element_ty), mask=inside)
    difference = tl.load(left + offsets, mask=inside, other=0).to(tl.float32)
    difference -= tl.load(right + offsets, mask=inside, other=0).to(tl.float32)
    of_first = of_left * of_right * tl.sum(grad * difference)
    tl.store(grad_logits + 2 * row, of_first.to(grad_logits.dtype.element_ty))
    tl.store(grad_logits + 2 * row + 1, (-of_first).to(grad_logits.dtype.element_ty))


def _blend_norm_backward(
    upstream: Tensor, weight_logits: Tensor, left: Tensor, right: Tensor, out: Tensor, reciprocal: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grads = torch.empty_like(weight_logits), torch.empty_like(left), torch.empty_like(right)
    launch(
        _blend_norm_backward_kernel, len(left), upstream.contiguous(), weight_logits, left, right, out, reciprocal,
        *grads, **row_options(left.shape[1]),
    )  # fmt: skip
    return grads


def _save(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    context.save_for_backward(*inputs[:3], *output)
    context.set_materialize_grads(False)  # nobody differentiates the reciprocal deviations


def _differentiate(context: Any, upstream: Tensor, _: None) -> tuple[Tensor | None, ...]:
    return *_blend_norm_backward(upstream, *context.saved_tensors), None


@differentiable(_save, _differentiate)
def _blend_norm(weight_logits: Tensor, left: Tensor, right: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    count, size = left.shape
    out, reciprocal = torch.empty_like(left), left.new_empty(count, dtype=torch.float32)
    launch(_blend_norm_kernel, count, weight_logits, left, right, out, reciprocal, eps, **row_options(size))
    return out, reciprocal
