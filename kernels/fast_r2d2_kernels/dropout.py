"""Dropout without a stored mask: the seed and the index of a value decide whether it is dropped.

The index, modulo 2**32, is hashed twice with MurmurHash3's finaliser, under two keys from the seed. The 24 high bits of
the hash are a fraction between 0 and 1; the value is dropped if this fraction is below the probability.
"""

import torch
from torch import Tensor

from .launch import tl, triton

LOW_BITS = 0xFFFFFFFF


def check_dropout(p: float) -> None:
    """Raise a ValueError if the probability is out of range."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout_p must be at least 0 and less than 1, got {p}")


def seed_of(p: float) -> int:
    """The first of four seeds, from torch's generator, so that runs are repeatable; 0 if nothing is dropped.

    All four fit into 32 bits: Triton compiles a kernel again for longer integers.
    """
    return 4 * int(torch.randint(2**29, (), device="cpu")) if p else 0


@triton.jit
def _mix(bits):
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    return bits ^ (bits >> 16)


@triton.jit
def dropout_factor(index, seed, p):
    """The float32 factor of the value with this index: 0 if it is dropped, ``1 / (1 - p)`` if it is kept."""
    seed = tl.cast(seed, tl.int64)
    first_key = _mix(seed.to(tl.uint32) ^ 0x9E3779B9)
    second_key = _mix(first_key ^ (seed >> 32).to(tl.uint32))
    bits = _mix(_mix(index.to(tl.uint32) + first_key) ^ second_key)
    dropped = (bits >> 8).to(tl.float32) < p * 16777216.0
    return tl.where(dropped, 0.0, 1 / (1 - p))


def dropout_factor_reference(like: Tensor, seed: int, p: float) -> Tensor:
    """The factors of all values of a tensor, in its shape and dtype. The first value has index 0."""

    def mix(bits: Tensor) -> Tensor:
        bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & LOW_BITS
        bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & LOW_BITS
        return bits ^ (bits >> 16)

    first_key = mix(torch.tensor((seed & LOW_BITS) ^ 0x9E3779B9, device=like.device))
    second_key = mix(first_key ^ (seed >> 32 & LOW_BITS))
    index = torch.arange(like.numel(), device=like.device).view(like.shape)
    bits = mix(mix((index + first_key) & LOW_BITS) ^ second_key)
    is_kept = bits >> 8 >= torch.tensor(p, dtype=torch.float32, device=like.device) * 2**24
    return is_kept.to(like.dtype) / (1 - p)
