"""Random numbers of training: Gumbel noise, and dropout that does not hold up training on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn

BYTE_VALUES = 2**8


def gumbel_noise(like: Tensor, scale: float) -> Tensor:
    """Independent samples of a Gumbel distribution times ``scale``, in the shape of ``like``, float32 or wider.

    Added to log-probabilities, they turn the choice of the highest into a sample (paper, Sections 2.1 and 3.1).
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    return -scale * torch.empty_like(like, dtype=dtype).exponential_().log()


class Dropout(nn.Dropout):
    """torch's dropout; on a CPU by a mask that takes a tenth of the time.

    There torch draws value by value from a slow distribution, which takes a fifth of a small model's training step.
    One random byte per value is enough, and torch's generator draws eight bytes at once. A value is dropped if its
    byte is below a threshold. The threshold is drawn for each call, so that it is ``p * BYTE_VALUES`` on average and
    each value is dropped with probability ``p``.
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
    """Bytes in the shape of ``like``, each 0 with probability ``threshold / 256`` and else 1.

    This is arithmetic on bytes, since torch is ten times slower with booleans.
    """
    words = torch.empty(-(-like.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    random = words.view(torch.uint8)[: like.numel()].view(like.shape)
    return random.clamp_(threshold - 1, threshold).sub_(threshold - 1)


class _Masked(torch.autograd.Function):
    """Inputs times a mask times a number. The backward pass keeps one byte per value."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, mask: Tensor, scale: float) -> Tensor:
        context.save_for_backward(mask)
        context.scale = scale
        return (inputs * mask).mul_(scale)

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return _Masked.apply(upstream, *context.saved_tensors, context.scale), None, None


__all__ = ["Dropout", "gumbel_noise"]
