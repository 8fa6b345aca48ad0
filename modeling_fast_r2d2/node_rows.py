"""Rows of all nodes of a chart in one buffer, which is filled level by level.

A level reads rows of lower levels and writes its own. If plain autograd watched writes in place, it would clone and
clear a gradient as large as the whole buffer for every level. Here the gradient is one buffer, too: the backward pass
of a read adds into it, and the backward pass of a write takes its rows out of it. Autograd does this from the top level
down, since a scalar goes from each write to the reads and to the write after it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .torch_internals import backward_pass, is_transformed


class SortedReads(NamedTuple):
    """The reads of ``ids``, sorted by node, so that a fused kernel can sum their gradients in this order.

    Attributes:
        kernels: the module of fused kernels.
        nodes: ``(ids.numel(),)`` long, ascending.
        order: ``(ids.numel(),)`` long, the place in ``ids.flatten()`` of each.
    """

    kernels: Any
    nodes: Tensor
    order: Tensor


class NodeRows:
    """One row per node: a vector, or a number if ``first`` has one axis.

    Args:
        first: ``(rows, ...)``, the rows of the first nodes.
        num_nodes: rows of the whole buffer.
    """

    def __init__(self, first: Tensor, num_nodes: int):
        self._store = _Store(first.new_empty(num_nodes, *first.shape[1:]))
        self._written: Tensor | None = None  # the scalar of the newest write; None while no row has a gradient
        self.write(slice(len(first)), first)

    @property
    def values(self) -> Tensor:
        """The buffer with the rows written so far, without a gradient."""
        return self._store.values

    def write(self, rows: slice, values: Tensor) -> None:
        """Fill rows that are not read yet; ``values`` are cast to the buffer's dtype."""
        if torch.is_grad_enabled() and (values.requires_grad or self._written is not None):
            self._written = _Write.apply(self._store, self._written, rows, values)
        else:
            self.values[rows] = values.detach()

    def read(self, ids: Tensor, reads: SortedReads | None = None) -> Tensor:
        """``ids.shape + (width,)``: one row per id. Without ``reads`` the gradient needs a sort of its own on a GPU."""
        if self._written is None or not torch.is_grad_enabled():
            return self._store.take(ids)
        return _Read.apply(self._store, self._written, ids, reads)

    def read_with_tasks(
        self, tasks: Tensor, left: Tensor, right: Tensor, reads: SortedReads | None, kernels: Any
    ) -> Tensor:
        """``(num_tasks + 2, compositions, width)``: tasks, the same in each composition, then one row per id."""
        if self._written is None or not torch.is_grad_enabled():
            return kernels.gather_children(self.values, tasks, left, right)
        return _ReadWithTasks.apply(self._store, self._written, tasks, left, right, reads, kernels)

    def all(self) -> Tensor:
        """``(num_nodes, ...)``, after every row is written."""
        if self._written is None or not torch.is_grad_enabled():
            return self.values
        return _All.apply(self._store, self._written)


class PlainNodeRows(NodeRows):
    """The same by torch's own gradients, which copy the buffer for every level."""

    def __init__(self, first: Tensor, num_nodes: int):
        self._rows = first.new_empty(num_nodes, *first.shape[1:])
        self.write(slice(len(first)), first)

    @property
    def values(self) -> Tensor:
        return self._rows.detach()

    def write(self, rows: slice, values: Tensor) -> None:
        self._rows = self._rows.slice_scatter(values.to(self._rows.dtype), 0, rows.start, rows.stop)

    def read(self, ids: Tensor, reads: SortedReads | None = None) -> Tensor:
        return self._rows[ids]

    def read_with_tasks(
        self, tasks: Tensor, left: Tensor, right: Tensor, reads: SortedReads | None, kernels: Any
    ) -> Tensor:
        return kernels.gather_children(self._rows, tasks, left, right)

    def all(self) -> Tensor:
        return self._rows


def rows_of_nodes(first: Tensor, num_nodes: int) -> NodeRows:
    """`NodeRows`; or plain ones, within functional transforms and where torch does not tell the backward passes of one
    graph apart."""
    return (PlainNodeRows if is_transformed() or backward_pass() is None else NodeRows)(first, num_nodes)


class _Store:
    """The buffer and its gradient. Autograd's graph refers to it; it must not refer back, or neither would be freed."""

    def __init__(self, values: Tensor):
        self.values = values
        self._gradient: tuple[int | None, Tensor] | None = None

    @property
    def gradient(self) -> Tensor:
        """Zeros when a backward pass begins. One graph may have several passes, some of them partial."""
        current = backward_pass()
        if self._gradient is None or self._gradient[0] != current:
            dtype = torch.promote_types(self.values.dtype, torch.float32)
            self._gradient = current, torch.zeros_like(self.values, dtype=dtype)
        return self._gradient[1]

    def release(self) -> None:
        self._gradient = None

    def take(self, ids: Tensor) -> Tensor:
        return self.values.index_select(0, ids.flatten()).view(*ids.shape, *self.values.shape[1:])

    def add(self, ids: Tensor, upstream: Tensor, reads: SortedReads | None = None) -> None:
        """Add to the gradient of the rows that were read, always in the same order."""
        gradient, ids = self.gradient, ids.flatten()
        if reads is not None:
            rows = gradient.view(len(gradient), -1)
            reads.kernels.add_to_rows(rows, upstream.reshape(len(ids), -1), reads.nodes, reads.order)
            return
        upstream = upstream.reshape(-1, *gradient.shape[1:]).to(gradient.dtype)
        if gradient.is_cuda:  # where `index_add_` adds in no fixed order
            gradient.index_put_((ids,), upstream, accumulate=True)
        else:
            gradient.index_add_(0, ids, upstream)


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, store: _Store, written: Tensor | None, rows: slice, values: Tensor) -> Tensor:
        context.store, context.rows, context.dtype, context.is_first = store, rows, values.dtype, written is None
        store.values[rows] = values
        return values.new_zeros((), dtype=store.values.dtype)

    @staticmethod
    @once_differentiable
    def backward(context: Any, after: Tensor) -> tuple[None, Tensor | None, None, Tensor]:
        upstream = context.store.gradient[context.rows].to(context.dtype, copy=True)
        if context.is_first:
            context.store.release()
        return None, None if context.is_first else after, None, upstream


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, store: _Store, written: Tensor, ids: Tensor, reads: SortedReads | None) -> Tensor:
        context.store, context.reads = store, reads
        context.save_for_backward(ids)
        return store.take(ids)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[None, Tensor, None, None]:
        context.store.add(*context.saved_tensors, upstream, context.reads)
        return None, upstream.new_zeros(()), None, None


class _ReadWithTasks(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, store: _Store, written: Tensor, tasks: Tensor, left: Tensor, right: Tensor,
        reads: SortedReads | None, kernels: Any,
    ) -> Tensor:  # fmt: skip
        context.store, context.reads, context.dtype = store, reads, tasks.dtype
        context.save_for_backward(left, right)
        return kernels.gather_children(store.values, tasks, left, right)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        ids = torch.cat(context.saved_tensors) if context.reads is None else context.reads.nodes
        context.store.add(ids, upstream[-2:], context.reads)
        of_tasks = upstream[:-2].sum(1, dtype=torch.promote_types(upstream.dtype, torch.float32))
        return None, upstream.new_zeros(()), of_tasks.to(context.dtype), None, None, None, None


class _All(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, store: _Store, written: Tensor) -> Tensor:
        context.store = store
        return store.values.detach()

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[None, Tensor]:
        context.store.gradient.add_(upstream)
        return None, upstream.new_zeros(())
