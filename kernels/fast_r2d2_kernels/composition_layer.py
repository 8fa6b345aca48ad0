"""One layer of the composition stack: matrix products without bias, and fused ops between them.

A node of autograd's graph takes the host longer than the launch of a kernel. So eager code runs a layer as one node,
whose backward pass is written out here. The definition calls the ops one by one.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .attention import _attention, _attention_backward, composition_attention
from .bias_gelu import _bias_gelu, _bias_gelu_backward, bias_gelu
from .dropout import seed_of
from .launch import runs_fused
from .residual_norm import _residual_norm, _residual_norm_backward, residual_norm


class LayerWeights(NamedTuple):
    """The weights that a layer's matrix products and fused ops read."""

    query_key_value: Tensor
    attention_output: Tensor
    attention_output_bias: Tensor
    intermediate: Tensor
    intermediate_bias: Tensor
    output: Tensor
    output_bias: Tensor

    @classmethod
    def of(cls, layer: Any, dtype: torch.dtype | None = None) -> "LayerWeights":
        """A layer's own weights, its matrices in another dtype if one is given."""
        attention_output, intermediate, output = layer.attention_output, layer.intermediate, layer.output
        weights = cls(
            layer.query_key_value.weight, attention_output.weight, attention_output.bias,
            intermediate.weight, intermediate.bias, output.weight, output.bias,
        )  # fmt: skip
        return weights if dtype is None else cls(*(each.to(dtype) if each.dim() == 2 else each for each in weights))


class LayerOptions(NamedTuple):
    """Numbers of a layer. Its four dropouts have the seeds ``seed`` to ``seed + 3``."""

    num_heads: int
    eps: float
    attention_dropout: float
    dropout: float
    seed: int

    @classmethod
    def of(cls, layer: Any) -> "LayerOptions":
        attention_p, p = (each.p if each.training else 0.0 for each in (layer.attention_dropout, layer.dropout))
        return cls(layer.num_heads, layer.eps, attention_p, p, seed_of(max(attention_p, p)))


def composition_layer(
    layer: Any, hidden: Tensor, role_bias: Tensor, projected: Tensor | None = None, *given: Tensor
) -> Tensor:
    """Run one layer of the composition stack.

    Args:
        layer: a module with the members of `layers.CompositionLayer`, such as the model's own composition layer.
        hidden: ``(tokens, compositions, hidden_size)``; the children come last.
        role_bias: ``(tokens, 3 * hidden_size)``, added to the queries, keys and values of each token.
        projected: ``(tokens, compositions, 3 * hidden_size)``, queries, keys and values without bias; None computes
            them.
        given: `LayerWeights` to take instead of the layer's own.

    Returns:
        ``(tokens, compositions, hidden_size)`` in the dtype of ``hidden``.
    """
    weights = LayerWeights(*given) if given else LayerWeights.of(layer)
    device, result_dtype = hidden.device.type, hidden.dtype
    if not given and torch.is_autocast_enabled(device) and runs_fused(hidden):  # a backward pass is not under it
        dtype = torch.get_autocast_dtype(device)
        if hidden.dtype != dtype or weights.output.dtype != dtype:
            hidden, weights = hidden.to(dtype), LayerWeights.of(layer, dtype)
            projected = projected if projected is None else projected.to(dtype)
            return composition_layer(layer, hidden, role_bias, projected, *weights).to(result_dtype)
    options = LayerOptions.of(layer)
    if not (layer.is_gelu and runs_fused(hidden)) or hidden.dtype != weights.output.dtype:
        activation = None if layer.is_gelu else lambda inputs: layer.dropout(layer.activation(inputs))
        return composition_layer_reference(hidden, role_bias, projected, options, *weights, activation=activation)
    if torch.is_grad_enabled():
        return _Layer.apply(hidden, role_bias, projected, options, *weights)
    return _run(hidden, *_packed(role_bias, projected), options, weights).output.view(hidden.shape)


def composition_layer_reference(
    hidden: Tensor, role_bias: Tensor, projected: Tensor | None, options: LayerOptions, *tensors: Tensor,
    activation: Any = None,
) -> Tensor:  # fmt: skip
    """The definition, by other ops. ``tensors`` are the `LayerWeights`; ``activation`` is for layers without GELU."""
    weights, (heads, eps, attention_p, p, seed) = LayerWeights(*tensors), options
    projected = F.linear(hidden, weights.query_key_value) if projected is None else projected
    attended = composition_attention(projected, role_bias, heads, attention_p, seed)
    update = F.linear(attended, weights.attention_output)
    hidden = residual_norm(update, weights.attention_output_bias, hidden, eps, p, seed + 1)
    product = F.linear(hidden, weights.intermediate)
    if activation is None:
        expanded = bias_gelu(product, weights.intermediate_bias, p, seed + 2)
    else:
        expanded = activation(product + weights.intermediate_bias)
    return residual_norm(F.linear(expanded, weights.output), weights.output_bias, hidden, eps, p, seed + 3)


class _Activations(NamedTuple):
    """What a layer computes on its way; its backward pass reads all of it. Two axes each, but for ``projected``."""

    projected: Tensor
    attended: Tensor
    normed: Tensor
    normed_scale: Tensor
    product: Tensor
    expanded: Tensor
    output: Tensor
    output_scale: Tensor


def _run(
    hidden: Tensor, role_bias: Tensor, projected: Tensor | None, options: LayerOptions, weights: LayerWeights
) -> _Activations:
    heads, eps, attention_p, p, seed = options
    tokens, compositions, size = hidden.shape
    rows = hidden.reshape(-1, size).contiguous()  # the kernels read packed rows
    if projected is None:
        projected = F.linear(rows, weights.query_key_value).view(tokens, compositions, 3 * size)
    attended = _attention(projected, role_bias, heads, attention_p, seed).view(-1, size)
    update = F.linear(attended, weights.attention_output)
    normed, normed_scale = _residual_norm(update, weights.attention_output_bias, rows, eps, p, seed + 1)
    product = F.linear(normed, weights.intermediate)
    expanded = _bias_gelu(product, weights.intermediate_bias, p, seed + 2)
    update = F.linear(expanded, weights.output)
    output, output_scale = _residual_norm(update, weights.output_bias, normed, eps, p, seed + 3)
    return _Activations(projected, attended, normed, normed_scale, product, expanded, output, output_scale)


def _packed(role_bias: Tensor, projected: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return role_bias.contiguous(), None if projected is None else projected.contiguous()


class _Layer(torch.autograd.Function):
    """`_run` with a gradient."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, role_bias: Tensor, projected: Tensor | None, options: LayerOptions,
        *tensors: Tensor,
    ) -> Tensor:  # fmt: skip
        weights = LayerWeights(*(tensor.contiguous() for tensor in tensors))
        role_bias, projected = _packed(role_bias, projected)
        run = _run(hidden, role_bias, projected, options, weights)
        context.options, context.projects = options, projected is None
        context.save_for_backward(hidden, role_bias, *weights, *run)
        return run.output.view(hidden.shape)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, role_bias, *saved = context.saved_tensors
        weights, run = LayerWeights(*saved[:7]), _Activations(*saved[7:])
        options, needed = context.options, context.needs_input_grad[4:]
        of_normed, of_feed_forward = _through_feed_forward(upstream, weights, run, options, needed)
        of_hidden, of_projected, of_role_bias, *of_output = _through_attention(
            of_normed, role_bias, weights, run, options, needed
        )
        if not context.projects:
            return of_hidden.view(hidden.shape), of_role_bias, of_projected, None, None, *of_output, *of_feed_forward
        of_projected = of_projected.flatten(0, 1)
        of_query_key_value = of_projected.t() @ hidden.reshape(of_hidden.shape) if needed[0] else None
        of_hidden = of_hidden.addmm_(of_projected, weights.query_key_value).view(hidden.shape)
        return of_hidden, of_role_bias, None, None, of_query_key_value, *of_output, *of_feed_forward


def _through_feed_forward(
    upstream: Tensor, weights: LayerWeights, run: _Activations, options: LayerOptions, needed: tuple[bool, ...]
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The gradients of ``run.normed`` and of the last four weights."""
    p, seed = options.dropout, options.seed
    of_update, of_bias, of_normed = _residual_norm_backward(
        upstream.reshape(run.output.shape), run.output, run.output_scale, run.output.dtype, p, seed + 3
    )
    of_update = of_update if p else of_normed
    of_product, of_intermediate_bias = _bias_gelu_backward(
        of_update @ weights.output, run.product, weights.intermediate_bias, p, seed + 2
    )
    of_output = of_update.t() @ run.expanded if needed[5] else None
    of_intermediate = of_product.t() @ run.normed if needed[3] else None
    of_normed.addmm_(of_product, weights.intermediate)
    return of_normed, (of_intermediate, of_intermediate_bias, of_output, of_bias.to(weights.output_bias.dtype))


def _through_attention(
    upstream: Tensor, role_bias: Tensor, weights: LayerWeights, run: _Activations, options: LayerOptions,
    needed: tuple[bool, ...],
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """The gradients of the layer's input as a residual, of its projection, of ``role_bias`` and of two weights."""
    p, seed = options.dropout, options.seed
    of_update, of_bias, of_rows = _residual_norm_backward(
        upstream, run.normed, run.normed_scale, run.normed.dtype, p, seed + 1
    )
    of_update = of_update if p else of_rows
    of_attended = (of_update @ weights.attention_output).view(*run.projected.shape[:2], of_update.shape[1])
    of_projected, of_role_bias = _attention_backward(
        of_attended, run.projected, role_bias, options.num_heads, options.attention_dropout, seed
    )
    of_output = of_update.t() @ run.attended if needed[1] else None
    return of_rows, of_projected, of_role_bias, of_output, of_bias.to(weights.attention_output_bias.dtype)
