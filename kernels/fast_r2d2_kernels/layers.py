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

from torch import Tensor, nn

from .composition_layer import composition_layer


class CompositionLayer(nn.Module):
    """`modeling_fast_r2d2.composition.CompositionLayer` with fused ops between its matrix products.

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
    linears: tuple[nn.Module, ...]
    activation: nn.Module
    attention_dropout: nn.Dropout
    dropout: nn.Dropout

    def forward(self, hidden: Tensor, role_bias: Tensor, projected: Tensor | None = None) -> Tensor:
        """Run the layer; arguments and result are those of `composition_layer`."""
        if any(type(each) is not nn.Linear for each in self.linears):  # adapters and quantised layers are no weights
            return type(self).forward(self, hidden, role_bias, projected)  # the replaced layer's own
        if self.gradient_checkpointing and self.training:  # as the layer's own forward does it
            run = partial(composition_layer, self)
            return self._gradient_checkpointing_func(run, hidden, role_bias, projected)
        return composition_layer(self, hidden, role_bias, projected)


__all__ = ["CompositionLayer", "composition_layer"]
