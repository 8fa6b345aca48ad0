"""Dropout that does not hold up training on a CPU."""

import torch
from torch import Tensor, nn

BYTE_VALUES = 2**8


class Dropout(nn.Dropout):
    """torch's dropout; on a CPU by a mask that takes a tenth of the time.

    There torch draws value by value from a slow distribution, a fifth of a training step of a small model. A random
    byte a value does as well, and torch's generator gives eight at once. A value is dropped if its byte is below a
    threshold, which is drawn for each call so that it is ``p * BYTE_VALUES`` on average and each value dropped with
    probability ``p``.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        is_usual = inputs.device.type == "cpu" and not self.inplace and not torch.compiler.is_compiling()
        if not is_usual or not 1 <= self.p * BYTE_VALUES <= BYTE_VALUES - 1:
            return super().forward(inputs)
        threshold = int(self.p * BYTE_VALUES + torch.rand(()))
        return _Masked.apply(inputs, _random_mask(inputs, threshold), 1 / (1 - self.p))


def _random_mask(like: Tensor, threshold: int) -> Tensor:
    """As many bytes, each 0 with probability ``threshold / 256`` and else 1.

    By arithmetic on bytes: torch computes with truth values ten times as slowly.
    """
    words = torch.empty(-(-like.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    random = words.view(torch.uint8)[: like.numel()].view(like.shape)
    return random.clamp_(threshold - 1, threshold).sub_(threshold - 1)


class _Masked(torch.autograd.Function):
    """Inputs times a mask times a number; for the backward pass a byte a value is kept."""

    @staticmethod
    def forward(context, inputs: Tensor, mask: Tensor, scale: float) -> Tensor:
        context.save_for_backward(mask)
        context.scale = scale
        return (inputs * mask).mul_(scale)

    @staticmethod
    def backward(context, upstream: Tensor):
        return _Masked.apply(upstream, *context.saved_tensors, context.scale), None, None


__all__ = ["Dropout"]
