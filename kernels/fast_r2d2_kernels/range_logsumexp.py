"""``logsumexp`` of many ranges of one tensor. Each range is summed separately: other values do not affect its sum."""

from typing import Any

import torch
from torch import Tensor

from .launch import on_device_of, operator, runs_fused, tl, triton, wrap_triton

BLOCK = 256  # values that a program reads at once


def range_logsumexp_reference(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """The definition of `range_logsumexp`, with a mask ``(ranges, values)``."""
    position = torch.arange(len(values), device=values.device)
    inside = (first[:, None] <= position) & (position <= last[:, None])
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    return torch.where(inside, values, float("-inf")).logsumexp(1)


def range_logsumexp(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """``logsumexp(values[first ... last])`` in nats, for many ranges.

    One program reads each range, so the time is proportional to the sum of the lengths: for the spans of a tree over
    ``n`` tokens, ``n * log(n)`` if it is balanced and ``n * n / 2`` if it is a chain. Gradients are summed with atomic
    additions, so their last bits may differ between runs.

    Args:
        values: ``(num_values,)``; -inf is allowed.
        first, last: ``(ranges,)`` long, the ends of the ranges, inclusive; they are not checked. An empty range gives
            -inf.

    Returns:
        ``(ranges,)`` float32; float64 for values in float64.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if values.dim() != 1 or first.shape != last.shape:
        raise ValueError(f"shapes do not fit: {values.shape}, {first.shape}, {last.shape}")
    if not runs_fused(values):
        return range_logsumexp_reference(values, first, last)
    return _range_logsumexp(values.contiguous(), first.contiguous(), last.contiguous())


@triton.jit
def _range_logsumexp_kernel(values, first, last, out, BLOCK: tl.constexpr):
    """A program reads one range twice: for its maximum, then for its sum relative to the maximum."""
    place = tl.program_id(0)
    start, stop = tl.load(first + place), tl.load(last + place) + 1
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    for begin in range(start, stop, BLOCK):
        position = begin + tl.arange(0, BLOCK)
        value = tl.load(values + position, mask=position < stop, other=float("-inf")).to(tl.float32)
        highest = tl.maximum(highest, value)
    top = tl.max(highest, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(start, stop, BLOCK):
        position = begin + tl.arange(0, BLOCK)
        value = tl.load(values + position, mask=position < stop, other=float("-inf")).to(tl.float32)
        total += tl.exp(value - top)
    tl.store(out + place, top + tl.log(tl.sum(total, 0)))


@triton.jit
def _range_logsumexp_backward_kernel(upstream, values, first, last, out, grad, BLOCK: tl.constexpr):
    """A program computes the gradient of one range: the softmax of its values."""
    place = tl.program_id(0)
    start, stop = tl.load(first + place), tl.load(last + place) + 1
    arriving, total = tl.load(upstream + place), tl.load(out + place)
    total = tl.where(total == float("-inf"), 0.0, total)
    for begin in range(start, stop, BLOCK):
        position = begin + tl.arange(0, BLOCK)
        value = tl.load(values + position, mask=position < stop, other=float("-inf")).to(tl.float32)
        tl.atomic_add(grad + position, arriving * tl.exp(value - total), mask=position < stop, sem="relaxed")


@operator("range_logsumexp", mutates_args=())
def _range_logsumexp(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    out = values.new_empty(len(first), dtype=torch.float32)
    if len(first):
        with on_device_of(values):
            wrap_triton(_range_logsumexp_kernel)[(len(first),)](values, first, last, out, BLOCK=BLOCK, num_warps=2)
    return out


@operator("range_logsumexp_backward", mutates_args=())
def _range_logsumexp_backward(upstream: Tensor, values: Tensor, first: Tensor, last: Tensor, out: Tensor) -> Tensor:
    grad = torch.zeros_like(values, dtype=torch.float32)
    if len(first):
        with on_device_of(values):
            wrap_triton(_range_logsumexp_backward_kernel)[(len(first),)](
                upstream.contiguous(), values, first, last, out, grad, BLOCK=BLOCK, num_warps=2
            )
    return grad


@_range_logsumexp.register_fake
def _(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    return values.new_empty(len(first), dtype=torch.float32)


@_range_logsumexp_backward.register_fake
def _(upstream: Tensor, values: Tensor, first: Tensor, last: Tensor, out: Tensor) -> Tensor:
    return torch.empty_like(values, dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs, output)


def _differentiate(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    grad = _range_logsumexp_backward(upstream, *ctx.saved_tensors)
    return grad.to(ctx.saved_tensors[0].dtype), None, None


_range_logsumexp.register_autograd(_differentiate, setup_context=_save)
