"""A layer that replaces a model's own, for Hugging Face's library `kernels`.

The library finds this package in the folder ``kernels/`` of a checkout, or in a repository on the Hub. It replaces the
``forward`` of each composition layer of a model:

    from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_mapping

    layer = LocalLayerRepository(repo_path=Path("kernels"), layer_name="CompositionLayer")
    with use_kernel_mapping({"CompositionLayer": {"cuda": layer}}):
        kernelize(model, mode=Mode.TRAINING, device="cuda")

This is needed only if the package is not installed. If it is, ``config.composition_kernels`` decides.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .attention import composition_attention
from .bias_gelu import bias_gelu
from .dropout import dropout_of
from .residual_norm import residual_norm


class CompositionLayer(nn.Module):
    """`modeling_fast_r2d2.composition_layer.CompositionLayer` with fused ops between its matrix products.

    It has no state. ``forward`` reads the members of the layer that it replaces; they are annotated here.
    """

    has_backward = True  # can_torch_compile is not set, since drawing the seed of dropout breaks the graph

    gradient_checkpointing: bool
    _gradient_checkpointing_func: Callable[..., Tensor]
    num_heads: int
    eps: float
    is_gelu: bool
    query_key_value: nn.Linear
    attention_output: nn.Linear
    intermediate: nn.Linear
    output: nn.Linear
    activation: nn.Module
    attention_dropout: nn.Dropout
    dropout: nn.Dropout

    def forward(self, hidden: Tensor, role_bias: Tensor, projected_tasks: Tensor | None = None) -> Tensor:
        """Run the layer.

        Args:
            hidden: ``(tokens, compositions, hidden_size)``; the children come last.
            role_bias: ``(tokens, 3 * hidden_size)``, added to the queries, keys and values of each token.
            projected_tasks: not used; this layer projects the task tokens together with the others.

        Returns:
            ``(tokens, compositions, hidden_size)`` in the dtype of ``hidden``.
        """
        if self.gradient_checkpointing and self.training:  # as the layer's own forward does it
            return self._gradient_checkpointing_func(partial(composition_layer, self), hidden, role_bias)
        return composition_layer(self, hidden, role_bias)


def composition_layer(layer: Any, hidden: Tensor, role_bias: Tensor) -> Tensor:
    """Run one layer of the composition stack, with matrix products without bias and fused ops between them.

    Args:
        layer: a module with the members of `CompositionLayer`, such as the model's own composition layer.
        hidden, role_bias: as for `CompositionLayer.forward`, which returns the same.
    """
    product = F.linear(hidden, layer.query_key_value.weight)
    attended = composition_attention(product, role_bias, layer.num_heads, *dropout_of(layer.attention_dropout))
    update = F.linear(attended, layer.attention_output.weight)
    hidden = residual_norm(update, layer.attention_output.bias, hidden, layer.eps, *dropout_of(layer.dropout))
    if layer.is_gelu:
        product = F.linear(hidden, layer.intermediate.weight)
        expanded = bias_gelu(product, layer.intermediate.bias, *dropout_of(layer.dropout))
    else:
        expanded = layer.dropout(layer.activation(layer.intermediate(hidden)))
    update = F.linear(expanded, layer.output.weight)
    return residual_norm(update, layer.output.bias, hidden, layer.eps, *dropout_of(layer.dropout))


__all__ = ["CompositionLayer", "composition_layer"]
