"""Repeating the matrix products of a recorded step alone, to see which part of its time they take."""

import math
from collections.abc import Iterable, Sequence

import torch

from modeling_fast_r2d2.cpu_linear import linear, weight_gradient
from timing.recorder import Product


def replay(products: Iterable[Product], buffer: torch.Tensor) -> None:
    """Compute the same products on other numbers, by the routine that the model calls."""
    for (left, left_stride), (right, right_stride) in products:
        operands = buffer.as_strided(left, left_stride), buffer.as_strided(right, right_stride)
        if len(left) == 2 and left_stride[0] == 1 < left[0]:  # transposed: only in the gradient of a weight
            weight_gradient(operands[0].t(), operands[1])
        elif len(left) == 2:
            linear(operands[0], operands[1].t())
        else:
            torch.bmm(*operands)


def operations(products: Iterable[Product]) -> int:
    """Number of additions and multiplications."""
    return sum(2 * math.prod(left) * right[-1] for (left, _), (right, _) in products)


def largest_operand(products: Sequence[Product]) -> int:
    """Number of elements that the largest operand spans, for the buffer of `replay`."""
    extents = (sum((n - 1) * s for n, s in zip(*operand, strict=True)) + 1 for pair in products for operand in pair)
    return max(extents)
