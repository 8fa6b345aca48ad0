"""Recording every matrix product of a training step while it runs, including those inside larger operations."""

from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Operand = tuple[tuple[int, ...], tuple[int, ...]]  # shape, stride
Product = tuple[Operand, Operand]

OPERANDS = {"aten.mm": (0, 1), "aten.addmm": (1, 2), "aten.bmm": (0, 1)}


class ProductRecorder(TorchDispatchMode):
    """Notes the operands' shapes and strides of every matrix product."""

    def __init__(self):
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.products += products_of(function, args)
        return function(*args, **(kwargs or {}))


def products_of(function, args: tuple) -> list[Product]:
    """The products of one call of an operation. Its arguments come in the order of its schema."""
    name = str(function.overloadpacket)
    if name in OPERANDS:
        left, right = OPERANDS[name]
        return [(_operand(args[left]), _operand(args[right]))]
    if name == "mkldnn._linear_pointwise":
        return [(_operand(args[0].flatten(0, -2)), _operand(args[1].t()))]
    if name in HIDDEN:
        names = [argument.name for argument in function._schema.arguments]
        return list(HIDDEN[name](**dict(zip(names, args, strict=False))))
    return []


def _operand(tensor: torch.Tensor) -> Operand:
    return tuple(tensor.shape), tuple(tensor.stride())


def _rows(rows: int, columns: int) -> Operand:
    return (rows, columns), (columns, 1)


def _columns(rows: int, columns: int) -> Operand:
    """The operand of a transposed matrix."""
    return (rows, columns), (1, rows)


def _cross_entropy(
    input, linear_weight, batch_chunk_size, compute_input_grad, compute_linear_weight_grad, **_
) -> Iterator[Product]:
    """Scores and both gradients, for ``batch_chunk_size`` rows at a time; the backward pass has no matrix products."""
    (num_rows, size), classes = input.shape, len(linear_weight)
    for start in range(0, num_rows, batch_chunk_size):
        rows = min(batch_chunk_size, num_rows - start)
        yield _rows(rows, size), _columns(size, classes)
        if compute_input_grad:
            yield _rows(rows, classes), _rows(classes, size)
        if compute_linear_weight_grad:
            yield _columns(classes, rows), _rows(rows, size)


def _rnn(input, weight0, weight1, **_) -> Iterator[Product]:
    """One direction of one layer: its inputs for all steps at once, then the states step by step."""
    (steps, batch, below), (gates, size) = input.shape, weight1.shape
    yield _rows(steps * batch, below), _columns(below, gates)
    for _step in range(steps):
        yield _rows(batch, size), _columns(size, gates)


def _rnn_backward(input, weight1, weight2, **_) -> Iterator[Product]:
    """The backward pass of `_rnn`; here the first weight is called ``weight1``. Weights' gradients wait for no step."""
    (steps, batch, below), (gates, size) = input.shape, weight2.shape
    for _step in range(steps):
        yield _rows(batch, gates), _rows(gates, size)
    yield _columns(gates, steps * batch), _rows(steps * batch, size)
    yield _rows(steps * batch, gates), _rows(gates, below)
    yield _columns(gates, steps * batch), _rows(steps * batch, below)


HIDDEN = {
    "torch_nn._linear_cross_entropy_batch_chunked": _cross_entropy,
    "aten.mkldnn_rnn_layer": _rnn,
    "aten.mkldnn_rnn_layer_backward": _rnn_backward,
}
