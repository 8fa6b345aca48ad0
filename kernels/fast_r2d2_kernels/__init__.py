"""Fused Triton kernels for Fast-R2D2. Each file has one op: its definition in plain torch, its kernels, one function.

On a GPU, the functions run their kernels for tensors in float32, float16 and bfloat16. For all other tensors they
compute the definition. Arithmetic is in float32. With ``TRITON_INTERPRET=1`` the kernels run on CPU tensors, for tests.
All ops are registered with torch, as ``torch.ops.fast_r2d2_kernels``, so that ``torch.compile`` and autograd know them.
`layers` is for Hugging Face's library `kernels`.
"""

from . import layers, trust
from .attention import composition_attention
from .bias_gelu import bias_gelu
from .blend_norm import blend_norm
from .choice import choose
from .gather import add_to_rows, gather_children
from .launch import is_available, runs_fused
from .range_logsumexp import range_logsumexp
from .residual_norm import residual_norm

__all__ = [
    "add_to_rows",
    "bias_gelu",
    "blend_norm",
    "choose",
    "composition_attention",
    "gather_children",
    "is_available",
    "layers",
    "range_logsumexp",
    "residual_norm",
    "runs_fused",
    "trust",
]
