"""Integers on their way between the host, where charts are planned, and a model's device.

The host waits for a GPU whenever it reads a number from it. So what it needs is read in one piece, and what it has
planned is sent in one piece, which it does not wait for.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_host(*tensors: Tensor | None) -> list[Any]:
    """Tensors of integers or truth values as long tensors on the host, in one copy; None stays None."""
    given = [tensor for tensor in tensors if tensor is not None]
    if all(tensor.device.type == "cpu" for tensor in given):
        copied = [tensor.long() for tensor in given]
    else:
        copied = _cut(torch.cat([tensor.flatten().long() for tensor in given]).cpu(), given)
    rest = iter(copied)
    return [None if tensor is None else next(rest) for tensor in tensors]


def to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Long tensors of the host on a device, in one copy. A GPU copies while the host goes on."""
    if device.type == "cpu":
        return list(tensors)
    count = sum(tensor.numel() for tensor in tensors)
    packed = torch.empty(count, dtype=torch.long, pin_memory=device.type == "cuda")
    torch.cat([tensor.flatten() for tensor in tensors], out=packed)
    return _cut(packed.to(device, non_blocking=True), tensors)


def _cut(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = packed.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


__all__ = ["to_device", "to_host"]
