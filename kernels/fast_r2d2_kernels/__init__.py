"""Fused Triton kernels for Fast-R2D2. Each file has one op: its definition in plain torch, its kernels, one function.

On a GPU, the functions run their kernels for tensors in float32, float16 and bfloat16. For all other tensors they
compute the definition, and so they do where ``torch.compile`` traces them. Arithmetic is in float32. With
``TRITON_INTERPRET=1`` the kernels run on CPU tensors, for tests. `layers` is for Hugging Face's library `kernels`.
"""

from . import layers, trust
from .attention import composition_attention
from .bias_gelu import bias_gelu
from .blend_norm import blend_norm
from .choice import choose
from .gather import add_to_rows, gather_children
from .launch import is_available, runs_fused
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
    "residual_norm",
    "runs_fused",
    "trust",
]
