"""The matrix products of a recorded step alone: what no implementation of it on this machine can beat."""

import math
from collections.abc import Iterable, Sequence

import torch

from modeling_fast_r2d2.cpu_linear import linear, weight_gradient
from timing.recorder import Product


def replay(products: Iterable[Product], buffer: torch.Tensor) -> None:
    """The same products on other numbers, by the routine that the model calls."""
    for (left, left_stride), (right, right_stride) in products:
        operands = buffer.as_strided(left, left_stride), buffer.as_strided(right, right_stride)
        if len(left) == 2 and left_stride[0] == 1 < left[0]:  # transposed, as only in the gradient of a weight
            weight_gradient(operands[0].t(), operands[1])
        elif len(left) == 2:
            linear(operands[0], operands[1].t())
        else:
            torch.bmm(*operands)


def operations(products: Iterable[Product]) -> int:
    return sum(2 * math.prod(left) * right[-1] for (left, _), (right, _) in products)


def largest_operand(products: Sequence[Product]) -> int:
    extents = (sum((n - 1) * s for n, s in zip(*operand, strict=True)) + 1 for pair in products for operand in pair)
    return max(extents)
