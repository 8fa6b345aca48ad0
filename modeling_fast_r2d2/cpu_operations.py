"""Linear layers that are faster on a CPU than torch's. Everywhere else they are torch's own.

torch gives float32 products on a CPU to MKL, which leaves an AMD processor's widest instructions, AVX-512, unused.
oneDNN, which comes with torch as well, takes about half the time there. On a processor without them, MKL is faster.
"""

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .torch_internals import has_global_hooks, has_hooks, has_onednn, is_transformed, onednn_linear

HAS_WIDE_INSTRUCTIONS = torch.backends.cpu.get_cpu_capability() == "AVX512"
# For every new number of rows oneDNN sets itself up, which takes about as long as this many multiplications ...
MIN_MULTIPLICATIONS = 1e8
# ... but reading a weight of this many values takes longer than that, whatever the rows.
MIN_WEIGHT_VALUES = 2**19


def apply_linear(layer: nn.Module, inputs: Tensor, gelu: bool = False) -> Tensor:
    """A linear layer, then exact GELU if asked for. An adapter in the layer's place, or a layer with hooks, is called
    as a module."""
    if is_plain(layer) and not has_global_hooks():
        return linear(inputs, layer.weight, layer.bias, gelu)
    return F.gelu(layer(inputs)) if gelu else layer(inputs)


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is its weight and bias and nothing else: no adapter, no hook, no other forward pass."""
    return type(layer) is nn.Linear and not has_hooks(layer)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, gelu: bool = False) -> Tensor:
    """``F.linear(inputs, weight, bias)``, then exact GELU if asked for; differentiable as those are."""
    if not _is_faster(inputs, weight, gelu) or not _is_served(inputs, weight, bias):
        product = F.linear(inputs, weight, bias)
    elif torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (inputs, weight, bias)):
        product = _Linear.apply(inputs.flatten(0, -2), weight, bias).unflatten(0, inputs.shape[:-1])
    else:
        return onednn_linear(inputs, weight, bias, gelu)
    return F.gelu(product) if gelu else product


def weight_gradient(gradient: Tensor, inputs: Tensor) -> Tensor:
    """``gradient.t() @ inputs``. oneDNN copies both into a layout of its own, which is too dear for a small weight."""
    is_small = gradient.shape[1] * inputs.shape[1] < MIN_WEIGHT_VALUES
    return gradient.t() @ inputs if is_small else linear(gradient.t(), inputs.t())


def _is_faster(inputs: Tensor, weight: Tensor, gelu: bool) -> bool:
    """Whether a product is on a CPU that oneDNN uses better, and large enough. With GELU in bfloat16 any is: torch
    rounds between the two, so that results would depend on the batch."""
    is_large = weight.numel() >= MIN_WEIGHT_VALUES or inputs.numel() * len(weight) >= MIN_MULTIPLICATIONS
    is_rounded = gelu and inputs.dtype == torch.bfloat16
    is_gain = (HAS_WIDE_INSTRUCTIONS and is_large) or is_rounded
    return bool(is_gain and inputs.device.type == "cpu" and inputs.numel() > 0)


def _is_served(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN computes what ``F.linear`` would. That one says what is wrong with shapes, knows tensor subclasses
    and is what compilers and transforms look for."""
    tensors = (inputs, weight) if bias is None else (inputs, weight, bias)
    return bool(
        torch.backends.mkldnn.enabled
        and has_onednn(inputs.dtype)
        and not torch.compiler.is_compiling()
        and all(type(t) in (Tensor, nn.Parameter) and t.dtype == inputs.dtype for t in tensors)
        and weight.device == inputs.device
        and inputs.dim() > 1
        and inputs.shape[-1] == weight.shape[-1]
        and (bias is None or bias.shape == weight.shape[:1])
        and not torch.is_autocast_enabled("cpu")
        and not is_transformed()
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # inputs: (rows, size)
        context.save_for_backward(inputs, weight)
        return onednn_linear(inputs, weight, bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = context.saved_tensors
        of_inputs, of_weight, of_bias = context.needs_input_grad
        return (
            linear(gradient, weight.t()) if of_inputs else None,
            weight_gradient(gradient, inputs) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
