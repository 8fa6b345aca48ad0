"""Dropout that does not hold up training on a CPU."""

import torch
from torch import Tensor, nn

STEPS = 2**16  # a probability is rounded to one of so many, and what is kept is scaled by the rounded one


class Dropout(nn.Dropout):
    """torch's dropout; on a CPU by a mask that takes a quarter of the time.

    There torch draws value by value from a slow distribution, a fifth of a training step of a small model. Sixteen
    random bits a value do as well, and torch's generator gives four values' worth of them at once.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        num_dropped = round(self.p * STEPS)
        is_usual = inputs.device.type == "cpu" and not self.inplace and not torch.compiler.is_compiling()
        if not is_usual or not 0 < num_dropped < STEPS:
            return super().forward(inputs)
        is_kept = _random_int16(inputs) >= num_dropped - STEPS // 2
        return inputs * is_kept.to(inputs.dtype).mul_(STEPS / (STEPS - num_dropped))


def _random_int16(like: Tensor) -> Tensor:
    """As many values, each of int16's 65,536 as probable as another."""
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[: like.numel()].view(like.shape)


__all__ = ["Dropout"]
