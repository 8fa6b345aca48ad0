"""Attention among the tokens of a composition, with the biases of its projection, in one pass over memory.

A task token attends to itself and both children; a child attends to both children. A softmax therefore has two or three
terms, and a whole head fits into registers.
"""

from typing import Any

import torch
from torch import Tensor

from .dropout import check_dropout, dropout_factor, dropout_factor_reference
from .launch import differentiable, launch, power_of_2, runs_fused, tl, triton


def composition_attention_reference(
    projected: Tensor, role_bias: Tensor, num_heads: int, dropout_p: float = 0.0, seed: int = 0
) -> Tensor:
    """The definition of `composition_attention`, which computes all pairs of tokens and applies a mask."""
    tokens, compositions, size = projected.shape[0], projected.shape[1], projected.shape[2] // 3
    biased = (projected + role_bias[:, None]).view(tokens, compositions, 3, num_heads, size // num_heads)
    query, key, value = biased.unbind(2)
    sees = torch.eye(tokens, dtype=torch.bool, device=projected.device)
    sees[:, -2:] = True
    scores = torch.einsum("qchd,kchd->qkch", query, key) * (size // num_heads) ** -0.5
    weights = scores.masked_fill(~sees[:, :, None, None], float("-inf")).softmax(1)
    if dropout_p:
        weights = weights * dropout_factor_reference(weights, seed, dropout_p)
    return torch.einsum("qkch,kchd->qchd", weights, value).flatten(-2).to(projected.dtype)


def composition_attention(
    projected: Tensor, role_bias: Tensor, num_heads: int, dropout_p: float = 0.0, seed: int = 0
) -> Tensor:
    """Attention among the tokens of each composition, in a layer of ``f`` (paper, Section 2.1).

    A task token attends to itself and both children, a child to both children.

    Args:
        projected: ``(tasks + 2, compositions, 3 * size)``, queries, keys and values; the children's tokens are last.
        role_bias: ``(tasks + 2, 3 * size)``, added to the queries, keys and values of each token.
        num_heads: the number of heads; it divides ``size``.
        dropout_p: the probability that an attention weight is dropped, at least 0 and less than 1.
        seed: the seed of dropout; equal seeds drop the same weights.

    Returns:
        ``(tasks + 2, compositions, size)`` in the dtype of ``projected``.

    Raises:
        ValueError: if ``num_heads`` does not divide ``size``, if the shapes do not fit, or if ``dropout_p`` is out of
            range.
    """
    check_dropout(dropout_p)
    if projected.shape[2] % (3 * num_heads):
        raise ValueError(
            f"3 * num_heads must divide the last axis of projected, got {num_heads} and {projected.shape[2]}"
        )
    if role_bias.shape != (len(projected), projected.shape[2]):
        raise ValueError(f"shapes do not fit: projected {projected.shape}, role_bias {role_bias.shape}")
    if not runs_fused(projected):
        return composition_attention_reference(projected, role_bias, num_heads, dropout_p, seed)
    return _attention(projected.contiguous(), role_bias.contiguous(), num_heads, dropout_p, seed)


@triton.jit
def _load(source, bias, token, part, plane, inside, in_head, SIZE: tl.constexpr):
    """One head of a token's biased queries (part 0), keys (1) or values (2), for a block of compositions."""
    values = tl.load(source + token * plane + part * SIZE, mask=inside, other=0).to(tl.float32)
    return values + tl.load(bias + (token * 3 + part) * SIZE, mask=in_head, other=0).to(tl.float32)


@triton.jit
def _load_children(source, bias, plane, inside, in_head, TASKS: tl.constexpr, SIZE: tl.constexpr):
    """The keys and values to which all tokens attend: those of the left child, then those of the right child."""
    left_key = _load(source, bias, TASKS, 1, plane, inside, in_head, SIZE)
    left_value = _load(source, bias, TASKS, 2, plane, inside, in_head, SIZE)
    right_key = _load(source, bias, TASKS + 1, 1, plane, inside, in_head, SIZE)
    right_value = _load(source, bias, TASKS + 1, 2, plane, inside, in_head, SIZE)
    return left_key, left_value, right_key, right_value


@triton.jit
def _store(grad, partial, values, token, part, plane, inside, in_head, SIZE: tl.constexpr):
    """Store the gradient of the values that `_load` loads, and the gradient of the bias, summed over the block."""
    tl.store(grad + token * plane + part * SIZE, values.to(grad.dtype.element_ty), mask=inside)
    tl.store(partial + (token * 3 + part) * SIZE, tl.sum(values, 0, keep_dims=True), mask=in_head)


@triton.jit
def _softmax(query, left_key, right_key, own_key, scale, IS_TASK: tl.constexpr):
    """The weights ``(BLOCK, 1)`` of the left child, of the right child and, for a task token, of the token itself."""
    to_left = tl.sum(query * left_key, 1, keep_dims=True) * scale
    to_right = tl.sum(query * right_key, 1, keep_dims=True) * scale
    highest = tl.maximum(to_left, to_right)
    to_own = tl.zeros_like(highest)
    if IS_TASK:
        own = tl.sum(query * own_key, 1, keep_dims=True) * scale
        highest = tl.maximum(highest, own)
        to_own = tl.exp(own - highest)
    to_left, to_right = tl.exp(to_left - highest), tl.exp(to_right - highest)
    total = to_left + to_right + to_own
    return to_left / total, to_right / total, to_own / total


@triton.jit
def _factors(token, first, step, seed, p, TASKS: tl.constexpr, DROPOUT: tl.constexpr):
    """Dropout factors of a token's three weights, indexed as in ``(tokens, tokens, compositions, heads)``."""
    left, right, own = 1.0, 1.0, 1.0
    if DROPOUT:
        first += token * (TASKS + 2) * step
        left = dropout_factor(first + TASKS * step, seed, p)
        right = dropout_factor(first + (TASKS + 1) * step, seed, p)
        own = dropout_factor(first + token * step, seed, p)
    return left, right, own


@triton.jit
def _place(count, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_HEAD: tl.constexpr):
    """The program's head, compositions ``(BLOCK, 1)`` and columns ``(1, BLOCK_HEAD)``, and two masks: which of both
    exist, and which columns exist."""
    head = tl.program_id(0) % HEADS
    rows = (tl.program_id(0) // HEADS).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, BLOCK_HEAD)[None, :]
    in_head = column < SIZE // HEADS
    return head, rows, head * (SIZE // HEADS) + column, (rows < count) & in_head, in_head


@triton.jit(do_not_specialize=["count", "seed"])
def _attention_kernel(
    projected, bias, out, count, scale, seed, p, TASKS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK: tl.constexpr, BLOCK_HEAD: tl.constexpr,
):  # fmt: skip
    head, rows, columns, inside, in_head = _place(count, HEADS, SIZE, BLOCK, BLOCK_HEAD)
    source, bias, plane = projected + rows * 3 * SIZE + columns, bias + columns, tl.cast(count, tl.int64) * 3 * SIZE
    left_key, left_value, right_key, right_value = _load_children(source, bias, plane, inside, in_head, TASKS, SIZE)
    for token in tl.static_range(TASKS + 2):
        query = _load(source, bias, token, 0, plane, inside, in_head, SIZE)
        own_key, own_value = left_key, left_value
        if token < TASKS:
            own_key = _load(source, bias, token, 1, plane, inside, in_head, SIZE)
            own_value = _load(source, bias, token, 2, plane, inside, in_head, SIZE)
        to_left, to_right, to_own = _softmax(query, left_key, right_key, own_key, scale, token < TASKS)
        left, right, own = _factors(token, rows * HEADS + head, plane // (3 * SIZE) * HEADS, seed, p, TASKS, DROPOUT)
        attended = to_left * left * left_value + to_right * right * right_value
        if token < TASKS:
            attended += to_own * own * own_value
        target = out + token * (plane // 3) + rows * SIZE + columns
        tl.store(target, attended.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["count", "seed"])
def _attention_backward_kernel(
    upstream, projected, bias, grad, partial, count, scale, seed, p, TASKS: tl.constexpr, HEADS: tl.constexpr,
    SIZE: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr, BLOCK_HEAD: tl.constexpr,
):  # fmt: skip
    head, rows, columns, inside, in_head = _place(count, HEADS, SIZE, BLOCK, BLOCK_HEAD)
    source, bias, plane = projected + rows * 3 * SIZE + columns, bias + columns, tl.cast(count, tl.int64) * 3 * SIZE
    grad += rows * 3 * SIZE + columns
    partial += (tl.program_id(0) // HEADS).to(tl.int64) * (TASKS + 2) * 3 * SIZE + columns
    left_key, left_value, right_key, right_value = _load_children(source, bias, plane, inside, in_head, TASKS, SIZE)
    grad_left_key, grad_left_value = tl.zeros_like(left_key), tl.zeros_like(left_key)
    grad_right_key, grad_right_value = tl.zeros_like(left_key), tl.zeros_like(left_key)
    for token in tl.static_range(TASKS + 2):
        target = upstream + token * (plane // 3) + rows * SIZE + columns
        arriving = tl.load(target, mask=inside, other=0).to(tl.float32)
        query = _load(source, bias, token, 0, plane, inside, in_head, SIZE)
        own_key, own_value = left_key, left_value
        if token < TASKS:
            own_key = _load(source, bias, token, 1, plane, inside, in_head, SIZE)
            own_value = _load(source, bias, token, 2, plane, inside, in_head, SIZE)
        to_left, to_right, to_own = _softmax(query, left_key, right_key, own_key, scale, token < TASKS)
        left, right, own = _factors(token, rows * HEADS + head, plane // (3 * SIZE) * HEADS, seed, p, TASKS, DROPOUT)
        grad_left_value += to_left * left * arriving
        grad_right_value += to_right * right * arriving
        if token < TASKS:
            _store(grad, partial, to_own * own * arriving, token, 2, plane, inside, in_head, SIZE)
        # Gradients of the weights, then of the scores.
        left *= tl.sum(arriving * left_value, 1, keep_dims=True)
        right *= tl.sum(arriving * right_value, 1, keep_dims=True)
        own *= tl.sum(arriving * own_value, 1, keep_dims=True)
        # By differences in pairs: with a weight of 1 these are 0, however a GPU rounds the weights' sum.
        left_right, left_own = to_left * to_right * (left - right), to_left * to_own * (left - own)
        right_own = to_right * to_own * (right - own)
        left, right, own = (
            (left_right + left_own) * scale,
            (right_own - left_right) * scale,
            -(left_own + right_own) * scale,
        )
        grad_left_key += left * query
        grad_right_key += right * query
        grad_query = left * left_key + right * right_key
        if token < TASKS:
            _store(grad, partial, own * query, token, 1, plane, inside, in_head, SIZE)
            grad_query += own * own_key
        _store(grad, partial, grad_query, token, 0, plane, inside, in_head, SIZE)
    _store(grad, partial, grad_left_key, TASKS, 1, plane, inside, in_head, SIZE)
    _store(grad, partial, grad_left_value, TASKS, 2, plane, inside, in_head, SIZE)
    _store(grad, partial, grad_right_key, TASKS + 1, 1, plane, inside, in_head, SIZE)
    _store(grad, partial, grad_right_value, TASKS + 1, 2, plane, inside, in_head, SIZE)


def _options(projected: Tensor, num_heads: int, dropout_p: float) -> dict[str, Any]:
    """The compile-time arguments of the kernels. A program has 1,024 values of each operand, four per thread to save
    registers."""
    block_head = power_of_2(projected.shape[2] // (3 * num_heads))
    return {
        "TASKS": projected.shape[0] - 2,
        "HEADS": num_heads,
        "SIZE": projected.shape[2] // 3,
        "DROPOUT": dropout_p > 0,
        "BLOCK": max(1024 // block_head, 1),
        "BLOCK_HEAD": block_head,
        "num_warps": 8,
    }


def _attention_backward(
    upstream: Tensor, projected: Tensor, role_bias: Tensor, num_heads: int, dropout_p: float, seed: int
) -> tuple[Tensor, Tensor]:
    count, size = projected.shape[1], projected.shape[2] // 3
    options = _options(projected, num_heads, dropout_p)
    blocks = -(-count // options["BLOCK"])
    grad = torch.empty_like(projected)
    partial = role_bias.new_empty(blocks, *role_bias.shape, dtype=torch.float32)
    launch(
        _attention_backward_kernel, num_heads * blocks, upstream.contiguous(), projected, role_bias, grad, partial,
        count, (size // num_heads) ** -0.5, seed, dropout_p, **options,
    )  # fmt: skip
    return grad, partial.sum(0).to(role_bias.dtype)


def _save(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    context.save_for_backward(*inputs[:2])
    context.options = inputs[2:]


def _differentiate(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    return *_attention_backward(upstream, *context.saved_tensors, *context.options), None, None, None


@differentiable(_save, _differentiate)
def _attention(projected: Tensor, role_bias: Tensor, num_heads: int, dropout_p: float, seed: int) -> Tensor:
    tokens, count, size = projected.shape[0], projected.shape[1], projected.shape[2] // 3
    out = projected.new_empty(tokens, count, size)
    options = _options(projected, num_heads, dropout_p)
    launch(
        _attention_kernel, num_heads * -(-count // options["BLOCK"]), projected, role_bias, out,
        count, (size // num_heads) ** -0.5, seed, dropout_p, **options,
    )  # fmt: skip
    return out
