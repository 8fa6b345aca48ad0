"""Bias, dropout, residual and layer norm in one pass, as at the end of both halves of a Transformer layer.

For the backward pass the op keeps its output and one reciprocal standard deviation per row, but not its input.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .dropout import check_dropout, dropout_factor, dropout_factor_reference
from .launch import differentiable, launch, row_options, rows_per_program, runs_fused, tl, triton


def residual_norm_reference(
    update: Tensor, bias: Tensor, residual: Tensor, eps: float, dropout_p: float = 0.0, seed: int = 0
) -> Tensor:
    """The definition of `residual_norm`."""
    update = update + bias
    if dropout_p:
        update = update * dropout_factor_reference(update, seed, dropout_p)
    return F.layer_norm(residual + update, bias.shape, eps=eps).to(residual.dtype)


def residual_norm(
    update: Tensor, bias: Tensor, residual: Tensor, eps: float, dropout_p: float = 0.0, seed: int = 0
) -> Tensor:
    """``layer_norm(residual + dropout(update + bias))``; the norm has no parameters.

    Args:
        update, residual: ``(..., size)``.
        bias: ``(size,)``.
        eps: added to the variance.
        dropout_p, seed: of dropout, as for `composition_attention`.

    Returns:
        ``(..., size)`` in the dtype of ``residual``.

    Raises:
        ValueError: if the shapes do not fit, or if ``dropout_p`` is out of range.
    """
    check_dropout(dropout_p)
    if update.shape != residual.shape or bias.shape != update.shape[-1:]:
        raise ValueError(f"shapes do not fit: update {update.shape}, bias {bias.shape}, residual {residual.shape}")
    if not runs_fused(update):
        return residual_norm_reference(update, bias, residual, eps, dropout_p, seed)
    return _residual_norm(update.contiguous(), bias.contiguous(), residual.contiguous(), eps, dropout_p, seed)[0]


@triton.jit(do_not_specialize=["seed"])
def _residual_norm_kernel(
    update, bias, residual, out, reciprocal, eps, seed, p,
    SIZE: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program normalises one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside, offsets = column < SIZE, row * SIZE + column
    values = tl.load(update + offsets, mask=inside, other=0).to(tl.float32)
    values += tl.load(bias + column, mask=inside, other=0).to(tl.float32)
    if DROPOUT:
        values *= dropout_factor(offsets, seed, p)
    values += tl.load(residual + offsets, mask=inside, other=0).to(tl.float32)
    centred = tl.where(inside, values - tl.sum(values) / SIZE, 0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred) / SIZE + eps)
    tl.store(out + offsets, (centred * scale).to(out.dtype.element_ty), mask=inside)
    tl.store(reciprocal + row, scale)


@triton.jit(do_not_specialize=["seed", "rows", "per_program"])
def _residual_norm_backward_kernel(
    upstream, out, reciprocal, grad_update, grad_residual, partial, rows, per_program, seed, p,
    SIZE: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program computes the gradients of some rows and sums them for the bias. Without dropout, the update and the
    residual have the same gradient, which is written once."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < SIZE
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(program * per_program, tl.minimum((program + 1) * per_program, rows)):
        offsets = row * SIZE + column
        arriving = tl.load(upstream + offsets, mask=inside, other=0).to(tl.float32)
        normed = tl.load(out + offsets, mask=inside, other=0).to(tl.float32)
        centred = arriving - tl.sum(arriving) / SIZE - normed * (tl.sum(arriving * normed) / SIZE)
        grad = centred * tl.load(reciprocal + row)
        tl.store(grad_residual + offsets, grad.to(grad_residual.dtype.element_ty), mask=inside)
        if DROPOUT:
            grad *= dropout_factor(offsets, seed, p)
            tl.store(grad_update + offsets, grad.to(grad_update.dtype.element_ty), mask=inside)
        total += grad
    tl.store(partial + program * SIZE + column, total, mask=inside)


def _residual_norm_backward(
    upstream: Tensor, out: Tensor, reciprocal: Tensor, update_dtype: torch.dtype, dropout_p: float, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of update, bias (float32) and residual. Without dropout the first is empty: it equals the third."""
    rows, size = reciprocal.numel(), out.shape[-1]
    per_program = rows_per_program(rows)
    programs = -(-rows // per_program)
    grad_residual = torch.empty_like(out)
    grad_update = out.new_empty(out.shape if dropout_p else [0], dtype=update_dtype)
    partial = out.new_empty(programs, size, dtype=torch.float32)
    launch(
        _residual_norm_backward_kernel, programs, upstream.contiguous(), out, reciprocal,
        grad_update, grad_residual, partial, rows, per_program, seed, dropout_p,
        DROPOUT=dropout_p > 0, **row_options(size),
    )  # fmt: skip
    return grad_update, partial.sum(0), grad_residual


def _save(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    update, bias, _, _, *context.dropout = inputs
    context.dtypes = update.dtype, bias.dtype
    context.save_for_backward(*output)
    context.set_materialize_grads(False)  # nobody differentiates the reciprocal deviations


def _differentiate(context: Any, upstream: Tensor, _: None) -> tuple[Tensor | None, ...]:
    (out, reciprocal), (update_dtype, bias_dtype) = context.saved_tensors, context.dtypes
    of_update, of_bias, of_residual = _residual_norm_backward(upstream, out, reciprocal, update_dtype, *context.dropout)
    of_update = of_update if context.dropout[0] else of_residual.to(update_dtype)
    return of_update, of_bias.to(bias_dtype), of_residual, None, None, None


@differentiable(_save, _differentiate)
def _residual_norm(
    update: Tensor, bias: Tensor, residual: Tensor, eps: float, dropout_p: float, seed: int
) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(residual)
    reciprocal = torch.empty(update.shape[:-1], dtype=torch.float32, device=update.device)
    launch(
        _residual_norm_kernel, reciprocal.numel(), update, bias, residual, out, reciprocal, eps, seed, dropout_p,
        DROPOUT=dropout_p > 0, **row_options(len(bias)),
    )  # fmt: skip
    return out, reciprocal
