"""The input of a batch of compositions: repeated task tokens, then the vectors of the left and the right children.

A node may be the child of many compositions. Its gradient is summed over them in order, without atomic additions, so
that it is the same in every run. The order comes from a sort, which may be made for many levels at once.
"""

from typing import Any

import torch
from torch import Tensor

from .launch import differentiable, launch, row_options, runs_fused, tl, triton


def gather_children_reference(nodes: Tensor, tasks: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The definition of `gather_children`."""
    repeated = tasks.to(nodes.dtype)[:, None].expand(-1, len(left), -1)
    return torch.cat([repeated, nodes[left][None], nodes[right][None]])


def gather_children(nodes: Tensor, tasks: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Gather the input tokens of compositions.

    Args:
        nodes: ``(num_nodes, size)``, the vectors of all nodes.
        tasks: ``(tasks, size)``, the task tokens, the same for each composition.
        left, right: ``(compositions,)`` long, the children as rows of ``nodes``; they are not checked.

    Returns:
        ``(tasks + 2, compositions, size)`` in the dtype of ``nodes``.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if left.shape != right.shape or nodes.shape[1] != tasks.shape[1]:
        raise ValueError(f"shapes do not fit: {nodes.shape}, {tasks.shape}, {left.shape}, {right.shape}")
    if not runs_fused(nodes):
        return gather_children_reference(nodes, tasks, left, right)
    return _gather_children(nodes.contiguous(), tasks.contiguous(), left.contiguous(), right.contiguous())


def add_to_rows_reference(rows: Tensor, values: Tensor, row: Tensor, order: Tensor) -> Tensor:
    """The definition of `add_to_rows`."""
    return rows.index_add_(0, row, values[order].to(rows.dtype))


def add_to_rows(rows: Tensor, values: Tensor, row: Tensor, order: Tensor) -> Tensor:
    """Add values to rows in place, those of one row in the given order: ``rows[row[i]] += values[order[i]]``.

    Args:
        rows: ``(num_rows, size)``, contiguous. It cannot be differentiated.
        values: ``(count, size)``.
        row: ``(count,)`` long, sorted.
        order: ``(count,)`` long, the place of each row's value among ``values``.

    Returns:
        ``rows``.

    Raises:
        ValueError: if ``rows`` is not contiguous.
    """
    if not rows.is_contiguous():
        raise ValueError("rows must be contiguous")
    if not runs_fused(rows):
        return add_to_rows_reference(rows, values, row, order)
    return _add_to_rows(rows, values.contiguous(), row.contiguous(), order.contiguous())


@triton.jit(do_not_specialize=["count"])
def _gather_kernel(nodes, tasks, left, right, out, count, TASKS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """A program copies all tokens of one composition."""
    composition = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < SIZE
    out += composition * SIZE + column
    plane = tl.cast(count, tl.int64) * SIZE
    for task in tl.static_range(TASKS):
        values = tl.load(tasks + task * SIZE + column, mask=inside)
        tl.store(out + task * plane, values.to(out.dtype.element_ty), mask=inside)
    values = tl.load(nodes + tl.load(left + composition).to(tl.int64) * SIZE + column, mask=inside)
    tl.store(out + TASKS * plane, values, mask=inside)
    values = tl.load(nodes + tl.load(right + composition).to(tl.int64) * SIZE + column, mask=inside)
    tl.store(out + (TASKS + 1) * plane, values, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _add_to_rows_kernel(rows, values, row, order, count, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The program at the first of a row's ``count`` places does the work for all of them."""
    place = tl.program_id(0)
    number = tl.load(row + place)
    before = tl.load(row + place - 1, mask=place > 0, other=-1)
    if number != before:
        column = tl.arange(0, BLOCK)
        target = rows + number * SIZE + column
        total = tl.load(target, mask=column < SIZE, other=0).to(tl.float32)
        current = number
        while current == number:
            source = values + tl.load(order + place) * SIZE + column
            total += tl.load(source, mask=column < SIZE, other=0).to(tl.float32)
            place += 1
            current = tl.load(row + place, mask=place < count, other=-1)
        tl.store(target, total.to(rows.dtype.element_ty), mask=column < SIZE)


def _add_to_rows(rows: Tensor, values: Tensor, row: Tensor, order: Tensor) -> Tensor:
    launch(_add_to_rows_kernel, len(row), rows, values, row, order, len(row), **row_options(rows.shape[1]))
    return rows


def _save(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
    nodes, tasks, *children = inputs
    context.num_nodes, context.task_dtype = len(nodes), tasks.dtype
    context.save_for_backward(*children)


def _differentiate(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    nodes, order = torch.cat(context.saved_tensors).sort(stable=True)
    of_nodes = upstream.new_zeros(context.num_nodes, upstream.shape[2], dtype=torch.float32)
    of_children = upstream[-2:].flatten(0, 1).contiguous()
    of_nodes = _add_to_rows(of_nodes, of_children, nodes, order)
    of_tasks = upstream[:-2].sum(1, dtype=torch.float32).to(context.task_dtype)
    return of_nodes.to(upstream.dtype), of_tasks, None, None


@differentiable(_save, _differentiate)
def _gather_children(nodes: Tensor, tasks: Tensor, left: Tensor, right: Tensor) -> Tensor:
    (num_tasks, size), count = tasks.shape, len(left)
    out = nodes.new_empty(num_tasks + 2, count, size)
    launch(_gather_kernel, count, nodes, tasks, left, right, out, count, TASKS=num_tasks, **row_options(size))
    return out
