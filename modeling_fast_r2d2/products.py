"""Matrix products of linear layers, on a CPU by oneDNN.

torch gives float32 products on a CPU to MKL, which leaves an AMD processor's widest instructions unused; oneDNN, which
comes with torch as well, takes about half the time there. The operation called here is the one that torch's compiler
calls. Where it cannot be used, ``F.linear`` is.

oneDNN lays a weight out anew for every product, which with few rows takes longer than the product itself. Inside
`packed_weights` it is done once.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

# oneDNN sets itself up for every new number of rows, in about the time of so many multiplications ...
LEAST = 1e8
# ... but a weight of so many values takes longer to read than that, whatever the rows.
LARGE = 2**19

_packed: ContextVar[Mapping[Tensor, Tensor]] = ContextVar("packed", default=MappingProxyType({}))


def apply_linear(layer: nn.Module, inputs: Tensor, gelu: bool = False) -> Tensor:
    """A linear layer, and exact GELU if asked for; what took a linear layer's place, or hooks onto it, is called."""
    if is_plain(layer) and not nn.modules.module._has_any_global_hook():
        return linear(inputs, layer.weight, layer.bias, gelu)
    return F.gelu(layer(inputs)) if gelu else layer(inputs)


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer is its weight and bias and nothing else: no adapter, no hook, no other forward pass."""
    return type(layer) is nn.Linear and not is_watched(layer)


def is_watched(module: nn.Module) -> bool:
    """Whether anything wants to see what enters or leaves a module: a hook, or a forward pass of somebody else."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or "forward" in vars(module)


@contextmanager
def packed_weights(weights: Iterable[Tensor]) -> Iterator[None]:
    """Inside, `linear` without gradients finds these weights as oneDNN wants them. None may change meanwhile."""
    large = filter(_is_worth_packing, weights)
    token = _packed.set({weight: torch.ops.mkldnn._reorder_linear_weight(weight) for weight in large})
    try:
        yield
    finally:
        _packed.reset(token)


def _is_worth_packing(weight: Tensor) -> bool:
    served = _is_worth_it(weight, weight) and _served_by_onednn(weight, weight, None)
    return served and weight.numel() >= LARGE and not torch.is_grad_enabled()


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None, gelu: bool = False) -> Tensor:
    """``F.linear(inputs, weight, bias)``, then exact GELU if asked for; differentiable as those are."""
    if not (_is_worth_it(inputs, weight) and _served_by_onednn(inputs, weight, bias)):
        product = F.linear(inputs, weight, bias)
    elif torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (inputs, weight, bias)):
        product = _Linear.apply(inputs.flatten(0, -2), weight, bias).unflatten(0, inputs.shape[:-1])
    else:
        return _onednn(inputs, weight, bias, gelu)
    return F.gelu(product) if gelu else product


def _is_worth_it(inputs: Tensor, weight: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()  # the compiler chooses for itself
        and inputs.device.type == "cpu"
        and (weight.numel() >= LARGE or inputs.numel() * len(weight) >= LEAST)
        and inputs.numel() > 0
        and torch.backends.mkldnn.enabled
        and _has_onednn(inputs.dtype)
    )


@cache
def _has_onednn(dtype: torch.dtype) -> bool:
    """On x86; what is best on other processors was not measured."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX") or not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _served_by_onednn(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether it computes what ``F.linear`` would, which says what is wrong with shapes and knows tensor subclasses."""
    tensors = (inputs, weight) if bias is None else (inputs, weight, bias)
    return (
        all(type(t) in (Tensor, nn.Parameter) and t.dtype == inputs.dtype for t in tensors)
        and weight.device == inputs.device
        and inputs.dim() > 1
        and inputs.shape[-1] == weight.shape[-1]
        and (bias is None or bias.shape == weight.shape[:1])
        and not torch.is_autocast_enabled("cpu")
        and forward_ad._current_level < 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _onednn(inputs: Tensor, weight: Tensor, bias: Tensor | None, gelu: bool = False) -> Tensor:
    activation, algorithm = ("gelu", "none") if gelu else ("none", "")
    weight = _packed.get().get(weight, weight)
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
            weight_gradient(gradient, inputs) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def weight_gradient(gradient: Tensor, inputs: Tensor) -> Tensor:
    """``gradient.t() @ inputs``. oneDNN lays both operands out anew, which a small weight does not make up for."""
    is_small = gradient.shape[1] * inputs.shape[1] < LARGE
    return gradient.t() @ inputs if is_small else linear(gradient.t(), inputs.t())


__all__ = ["apply_linear", "is_plain", "is_watched", "linear", "packed_weights", "weight_gradient"]
