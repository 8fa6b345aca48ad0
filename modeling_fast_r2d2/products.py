"""Matrix products of linear layers, on a CPU by oneDNN.

torch gives float32 products on a CPU to MKL, which leaves an AMD processor's widest instructions unused; oneDNN, which
comes with torch as well, takes about half the time there. The operation called here is the one that torch's compiler
calls. Where it cannot be used, ``F.linear`` is.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def apply_linear(layer: nn.Module, inputs: Tensor, gelu: bool = False) -> Tensor:
    """A linear layer, and exact GELU if asked for; what took a linear layer's place, or hooks onto it, is called."""
    has_hooks = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
    if type(layer) is nn.Linear and not has_hooks:
        return linear(inputs, layer.weight, layer.bias, gelu)
    return F.gelu(layer(inputs)) if gelu else layer(inputs)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, gelu: bool = False) -> Tensor:
    """``F.linear(inputs, weight, bias)``, then exact GELU if asked for; differentiable as those are."""
    if not _served_by_onednn(inputs, weight):
        product = F.linear(inputs, weight, bias)
    elif torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (inputs, weight, bias)):
        product = _Linear.apply(inputs.flatten(0, -2), weight, bias).unflatten(0, inputs.shape[:-1])
    else:
        return _onednn(inputs, weight, bias, gelu)
    return F.gelu(product) if gelu else product


def _served_by_onednn(inputs: Tensor, weight: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()  # the compiler chooses for itself
        and inputs.dtype == weight.dtype
        and inputs.dtype in (torch.float32, torch.bfloat16)
        and inputs.device.type == weight.device.type == "cpu"
        and inputs.dim() > 1
        and inputs.shape[-1] == weight.shape[-1]  # if not, F.linear says so
        and inputs.numel() > 0
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and not torch.is_autocast_enabled("cpu")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _onednn(inputs: Tensor, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> Tensor:
    activation, algorithm = ("gelu", "none") if gelu else ("none", "")
    return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, activation, [], algorithm)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # inputs: (rows, size)
        context.save_for_backward(inputs, weight)
        return _onednn(inputs, weight, bias)

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = context.saved_tensors
        of_inputs, of_weight, of_bias = context.needs_input_grad
        return (
            linear(gradient, weight.t()) if of_inputs else None,
            linear(gradient.t(), inputs.t()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


__all__ = ["apply_linear", "linear"]
