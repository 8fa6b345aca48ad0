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
    def of(cls, layer: Any) -> "LayerWeights":
        attention_output, intermediate, output = layer.attention_output, layer.intermediate, layer.output
        return cls(
            layer.query_key_value.weight, attention_output.weight, attention_output.bias,
            intermediate.weight, intermediate.bias, output.weight, output.bias,
        )  # fmt: skip


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


def composition_layer(layer: Any, hidden: Tensor, role_bias: Tensor) -> Tensor:
    """Run one layer of the composition stack.

    Args:
        layer: a module with the members of `layers.CompositionLayer`, such as the model's own composition layer.
        hidden: ``(tokens, compositions, hidden_size)``; the children come last.
        role_bias: ``(tokens, 3 * hidden_size)``, added to the queries, keys and values of each token.

    Returns:
        ``(tokens, compositions, hidden_size)`` in the dtype of ``hidden``.
    """
    weights, options = LayerWeights.of(layer), LayerOptions.of(layer)
    is_one_node = layer.is_gelu and runs_fused(hidden) and type(hidden) is Tensor and not torch.compiler.is_compiling()
    if not is_one_node or hidden.dtype != weights.output.dtype:  # such as under autocast
        activation = None if layer.is_gelu else lambda inputs: layer.dropout(layer.activation(inputs))
        return composition_layer_reference(hidden, role_bias, options, *weights, activation=activation)
    if torch.is_grad_enabled():
        return _Layer.apply(hidden, role_bias, options, *weights)
    return _run(hidden, role_bias, options, weights).output.view(hidden.shape)


def composition_layer_reference(
    hidden: Tensor, role_bias: Tensor, options: LayerOptions, *tensors: Tensor, activation: Any = None
) -> Tensor:
    """The definition, by other ops. ``tensors`` are the `LayerWeights`; ``activation`` is for layers without GELU."""
    weights, (heads, eps, attention_p, p, seed) = LayerWeights(*tensors), options
    attended = composition_attention(F.linear(hidden, weights.query_key_value), role_bias, heads, attention_p, seed)
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


def _run(hidden: Tensor, role_bias: Tensor, options: LayerOptions, weights: LayerWeights) -> _Activations:
    heads, eps, attention_p, p, seed = options
    tokens, compositions, size = hidden.shape
    rows = hidden.reshape(-1, size)
    projected = F.linear(rows, weights.query_key_value).view(tokens, compositions, 3 * size)
    attended = _attention(projected, role_bias, heads, attention_p, seed).view(-1, size)
    update = F.linear(attended, weights.attention_output)
    normed, normed_scale = _residual_norm(update, weights.attention_output_bias, rows, eps, p, seed + 1)
    product = F.linear(normed, weights.intermediate)
    expanded = _bias_gelu(product, weights.intermediate_bias, p, seed + 2)
    update = F.linear(expanded, weights.output)
    output, output_scale = _residual_norm(update, weights.output_bias, normed, eps, p, seed + 3)
    return _Activations(projected, attended, normed, normed_scale, product, expanded, output, output_scale)


class _Layer(torch.autograd.Function):
    """`_run` with a gradient."""

    @staticmethod
    def forward(context: Any, hidden: Tensor, role_bias: Tensor, options: LayerOptions, *tensors: Tensor) -> Tensor:
        weights = LayerWeights(*tensors)
        run = _run(hidden, role_bias, options, weights)
        context.options = options
        context.save_for_backward(hidden, role_bias, *weights, *run)
        return run.output.view(hidden.shape)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, role_bias, *saved = context.saved_tensors
        weights, run = LayerWeights(*saved[:7]), _Activations(*saved[7:])
        needed = context.needs_input_grad[3:]
        of_normed, of_feed_forward = _through_feed_forward(upstream, weights, run, context.options, needed)
        of_hidden, of_role_bias, of_attention = _through_attention(
            of_normed, hidden, role_bias, weights, run, context.options, needed
        )
        return of_hidden, of_role_bias, None, *of_attention, *of_feed_forward


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
    upstream: Tensor, hidden: Tensor, role_bias: Tensor, weights: LayerWeights, run: _Activations,
    options: LayerOptions, needed: tuple[bool, ...],
) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:  # fmt: skip
    """The gradients of ``hidden``, of ``role_bias`` and of the first three weights."""
    p, seed, rows = options.dropout, options.seed, hidden.reshape(run.normed.shape)
    of_update, of_bias, of_rows = _residual_norm_backward(
        upstream, run.normed, run.normed_scale, run.normed.dtype, p, seed + 1
    )
    of_update = of_update if p else of_rows
    of_attended = (of_update @ weights.attention_output).view(hidden.shape)
    of_projected, of_role_bias = _attention_backward(
        of_attended, run.projected, role_bias, options.num_heads, options.attention_dropout, seed
    )
    of_projected = of_projected.flatten(0, 1)
    of_output = of_update.t() @ run.attended if needed[1] else None
    of_query_key_value = of_projected.t() @ rows if needed[0] else None
    of_rows.addmm_(of_projected, weights.query_key_value)
    of_weights = of_query_key_value, of_output, of_bias.to(weights.attention_output_bias.dtype)
    return of_rows.view(hidden.shape), of_role_bias, of_weights


__all__ = ["LayerOptions", "LayerWeights", "composition_layer", "composition_layer_reference"]
