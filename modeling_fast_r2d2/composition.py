"""The composition function: a Transformer over ``[task tokens, left, right]`` (paper, Section 2.1)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .composition_layer import CompositionLayer
from .configuration_fast_r2d2 import FastR2D2Config
from .cpu_operations import is_plain


class SharedInputs(NamedTuple):
    """Inputs that all compositions of a batch share."""

    tasks: Tensor  # (num_tasks, hidden_size)
    projected_tasks: Tensor  # (num_tasks, 3 * hidden_size), queries, keys and values of the first layer, without bias
    role_biases: tuple[Tensor, ...]  # for each layer (num_tasks + 2, 3 * hidden_size)


class CompositionStack(nn.Module):
    """``num_hidden_layers`` composition layers."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        self.config = config
        self.layers: Any = nn.ModuleList(CompositionLayer(config) for _ in range(config.num_hidden_layers))

    def prepare(self, tasks: Tensor) -> SharedInputs:
        """The inputs that are the same on every level. ``tasks``: ``(num_tasks, hidden_size)``."""
        first = self.layers[0]
        projected = first.project(tasks) if first.has_weight else tasks.new_zeros(len(tasks), 3 * tasks.shape[1])
        return SharedInputs(tasks, projected, tuple(layer.role_bias(len(tasks)) for layer in self.layers))

    def forward(self, shared: SharedInputs, children: Tensor, projected: Tensor | None = None) -> Tensor:
        """
        Args:
            children: ``(2, compositions, hidden_size)``, left and right.
            projected: ``(2, compositions, 3 * hidden_size)``, the first layer's projection of the children; None
                computes it.

        Returns:
            ``(num_tasks + 2, compositions, hidden_size)``: outputs of the tasks, of the left and of the right child.
        """
        hidden, first = _join(shared.tasks, children), self.layers[0]
        if projected is None and is_plain(first.query_key_value):
            projected = first.project(children)
        if projected is not None:
            projected = _join(shared.projected_tasks, projected)
        for layer, role_bias in zip(self.layers, shared.role_biases, strict=True):
            hidden = layer(hidden, role_bias, projected)
            projected = None
        return hidden


def _join(tasks: Tensor, children: Tensor) -> Tensor:
    """``(num_tasks + 2, compositions, ...)``: tasks, the same in each composition, in front of the children."""
    return torch.cat([tasks[:, None].expand(-1, children.shape[1], -1).to(children.dtype), children])


class Composition(nn.Module):
    """``f`` of the paper's Equation 1: two children to their parent and the log-probability of joining them."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        self.eps = config.layer_norm_eps
        self.stack = CompositionStack(config)
        self.score = nn.Linear(config.hidden_size, 1)
        self.blend = nn.Linear(config.hidden_size, 2)

    def prepare(self, tasks: Tensor) -> SharedInputs:
        """The inputs that all levels of a batch share.

        Args:
            tasks: ``(2, hidden_size)``, the embeddings of ``[CLS]`` and ``[SUM]``; or ``(1, hidden_size)``, ``[SUM]``
                alone, where no probability is needed. No other token's output depends on ``[CLS]``.
        """
        return self.stack.prepare(tasks)

    def forward(
        self, shared: SharedInputs, children: Tensor, projected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            shared: from `prepare`.
            children, projected: as for `CompositionStack`.

        Returns:
            Parents ``(compositions, hidden_size)`` and log-probabilities ``(compositions,)`` in nats, float32 or
            wider; None without ``[CLS]``.
        """
        *scored, summed, left, right = self.stack(shared, children, projected)
        return self.parent(summed, left, right), self.log_prob(scored[0]) if scored else None

    def log_prob(self, scored: Tensor) -> Tensor:
        """Log-probabilities from the outputs at ``[CLS]``, ``(compositions, hidden_size)``.

        Computed in float32 or wider: half precision rounds many logits to the same number, of which the first would be
        chosen.
        """
        dtype = torch.promote_types(scored.dtype, torch.float32)
        if not is_plain(self.score):  # such as an adapter, which has its own dtype
            return F.logsigmoid(self.score(scored)[:, 0].to(dtype))
        with torch.autocast(scored.device.type, enabled=False):
            logit = F.linear(scored.to(dtype), self.score.weight.to(dtype), self.score.bias.to(dtype))[:, 0]
        return F.logsigmoid(logit)

    def parent(self, summed: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Parents from the outputs at ``[SUM]`` and at both children, each ``(compositions, hidden_size)``."""
        to_left, to_right = self.blend(summed).softmax(-1).unsqueeze(-2).unbind(-1)
        parent = torch.addcmul(to_left * left, to_right, right)
        return F.layer_norm(parent, parent.shape[-1:], eps=self.eps)


__all__ = ["Composition", "CompositionLayer", "CompositionStack", "SharedInputs"]
