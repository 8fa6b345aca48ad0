"""Bias, exact GELU and dropout in one pass. The backward pass computes the activation again from its input."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .dropout import check_dropout, dropout_factor, dropout_factor_reference
from .launch import differentiable, launch, power_of_2, rows_per_program, runs_fused, tl, triton, warps_for

LARGEST_BLOCK = 1024  # columns per program


def bias_gelu_reference(x: Tensor, bias: Tensor, dropout_p: float = 0.0, seed: int = 0) -> Tensor:
    """The definition of `bias_gelu`."""
    activated = F.gelu(x + bias)
    if dropout_p:
        activated = activated * dropout_factor_reference(activated, seed, dropout_p)
    return activated.to(x.dtype)


def bias_gelu(x: Tensor, bias: Tensor, dropout_p: float = 0.0, seed: int = 0) -> Tensor:
    """``dropout(gelu(x + bias))`` with the exact GELU, which uses the error function.

    Args:
        x: ``(..., size)``.
        bias: ``(size,)``.
        dropout_p, seed: of dropout, as for `composition_attention`.

    Returns:
        ``(..., size)`` in the dtype of ``x``.

    Raises:
        ValueError: if the shapes do not fit, or if ``dropout_p`` is out of range.
    """
    check_dropout(dropout_p)
    if bias.shape != x.shape[-1:]:
        raise ValueError(f"shapes do not fit: x {x.shape}, bias {bias.shape}")
    if not runs_fused(x):
        return bias_gelu_reference(x, bias, dropout_p, seed)
    return _bias_gelu(x.contiguous(), bias.contiguous(), dropout_p, seed)


@triton.jit
def _place(rows, per_program, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The program's group of rows, its columns, which of them exist, its first row and the one after its last row.
    Programs with successive numbers have the same rows first."""
    blocks: tl.constexpr = (SIZE + BLOCK - 1) // BLOCK
    group = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    return group, column, column < SIZE, group * per_program, tl.minimum((group + 1) * per_program, rows)


@triton.jit(do_not_specialize=["seed", "rows", "per_program"])
def _bias_gelu_kernel(
    x, bias, out, rows, per_program, seed, p, SIZE: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr
):
    _, column, inside, first, last = _place(rows, per_program, SIZE, BLOCK)
    biases = tl.load(bias + column, mask=inside, other=0).to(tl.float32)
    for row in range(first, last):
        offsets = row * SIZE + column
        values = tl.load(x + offsets, mask=inside, other=0).to(tl.float32) + biases
        activated = values * 0.5 * (1 + tl.erf(values * 0.7071067811865476))
        if DROPOUT:
            activated *= dropout_factor(offsets, seed, p)
        tl.store(out + offsets, activated.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["seed", "rows", "per_program"])
def _bias_gelu_backward_kernel(
    upstream, x, bias, grad, partial, rows, per_program, seed, p,
    SIZE: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    group, column, inside, first, last = _place(rows, per_program, SIZE, BLOCK)
    biases = tl.load(bias + column, mask=inside, other=0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(first, last):
        offsets = row * SIZE + column
        values = tl.load(x + offsets, mask=inside, other=0).to(tl.float32) + biases
        below = 0.5 * (1 + tl.erf(values * 0.7071067811865476))  # the normal distribution; `density` is its derivative
        density = 0.3989422804014327 * tl.exp(-0.5 * values * values)
        arriving = tl.load(upstream + offsets, mask=inside, other=0).to(tl.float32) * (below + values * density)
        if DROPOUT:
            arriving *= dropout_factor(offsets, seed, p)
        tl.store(grad + offsets, arriving.to(grad.dtype.element_ty), mask=inside)
        total += arriving
    tl.store(partial + group * SIZE + column, total, mask=inside)


def _grid(x: Tensor) -> tuple[int, int, int, int]:
    """The numbers of rows, of rows per program, of groups of rows, and of columns per program."""
    rows = x.numel() // max(x.shape[-1], 1)
    per_program = rows_per_program(rows)
    return rows, per_program, -(-rows // per_program), min(power_of_2(x.shape[-1]), LARGEST_BLOCK)


def _bias_gelu_backward(
    upstream: Tensor, x: Tensor, bias: Tensor, dropout_p: float, seed: int
) -> tuple[Tensor, Tensor]:
    rows, per_program, groups, block = _grid(x)
    grad = torch.empty_like(x)
    partial = x.new_empty(groups, len(bias), dtype=torch.float32)
    launch(
        _bias_gelu_backward_kernel, groups * -(-len(bias) // block), upstream.contiguous(), x, bias, grad, partial,
        rows, per_program, seed, dropout_p,
        SIZE=len(bias), DROPOUT=dropout_p > 0, BLOCK=block, num_warps=warps_for(block),
    )  # fmt: skip
    return grad, partial.sum(0).to(bias.dtype)


def _save(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, bias, *context.dropout = inputs
    context.save_for_backward(x, bias)


def _differentiate(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    return *_bias_gelu_backward(upstream, *context.saved_tensors, *context.dropout), None, None


@differentiable(_save, _differentiate)
def _bias_gelu(x: Tensor, bias: Tensor, dropout_p: float, seed: int) -> Tensor:
    rows, per_program, groups, block = _grid(x)
    out = torch.empty_like(x)
    launch(
        _bias_gelu_kernel, groups * -(-len(bias) // block), x, bias, out, rows, per_program, seed, dropout_p,
        SIZE=len(bias), DROPOUT=dropout_p > 0, BLOCK=block, num_warps=warps_for(block),
    )  # fmt: skip
    return out
