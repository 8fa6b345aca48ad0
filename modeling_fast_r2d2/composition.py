"""The composition function: a Transformer over ``[task tokens, left, right]`` (paper, Section 2.1)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_fast_r2d2 import FastR2D2Config
from .cpu_operations import apply_linear, is_plain, linear
from .torch_internals import has_global_hooks, has_hooks

GELU = type(ACT2FN["gelu"])


class CompositionLayer(GradientCheckpointingLayer):
    """Post-norm Transformer layer. Tokens lie on the first axis: the tasks, the left child, the right child.

    The children see each other and themselves; a task token sees itself and both children. Roles are added to
    queries and keys only. Layer norms have no parameters.
    """

    # The `kernels` library puts `fast_r2d2_kernels.layers.CompositionLayer` in place of layers with this name. The
    # decorator in transformers that sets it does nothing with some versions of that library.
    kernel_layer_name = "CompositionLayer"

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.eps = config.layer_norm_eps
        self.role_embeddings = nn.Embedding(3, size)  # task, left, right
        self.query_key_value = nn.Linear(size, 3 * size)
        self.attention_output = nn.Linear(size, size)
        self.intermediate = nn.Linear(size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, size)
        self.activation = ACT2FN[config.hidden_act]
        self.attention_dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    @property
    def linears(self) -> tuple[nn.Module, ...]:
        """The linear layers, or adapters in their places."""
        return self.query_key_value, self.attention_output, self.intermediate, self.output

    @property
    def is_gelu(self) -> bool:
        """Whether the activation is exact GELU and nothing else, so that it may be computed with the product before."""
        return type(self.activation) is GELU and not has_hooks(self.activation)

    def role_bias(self, tasks: Tensor) -> Tensor:
        """``(tokens, 3 * hidden_size)``: the roles, projected to queries and keys, plus the projection's bias. Added
        after the projection, they do what roles in its input would, and one product serves queries, keys and values,
        which have no role. It is 0, and not used, if the projection is no plain layer."""
        roles = self._roles(len(tasks), tasks.device)
        size = roles.shape[1]
        if not is_plain(self.query_key_value):
            return roles.new_zeros(len(roles), 3 * size)
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        return F.pad(linear(roles, weight[: 2 * size]), (0, size)) + bias

    def _roles(self, num_tasks: int, device: torch.device) -> Tensor:
        task_role, child_roles = self.role_embeddings(torch.arange(3, device=device)).split([1, 2])
        return torch.cat([task_role.expand(num_tasks, -1), child_roles])

    def forward(self, hidden: Tensor, role_bias: Tensor, projected: Tensor | None = None) -> Tensor:
        """
        Args:
            hidden: ``(tokens, compositions, hidden_size)``.
            role_bias: from the method of that name.
            projected: ``(tokens, compositions, 3 * hidden_size)``, queries, keys and values of ``hidden`` without bias;
                None computes them.

        Returns:
            ``(tokens, compositions, hidden_size)``.
        """
        return self.finish(self._attend(self._project(hidden, role_bias, projected)), hidden)

    def project(self, hidden: Tensor) -> Tensor:
        """``(..., 3 * hidden_size)``: queries, keys and values without bias, of vectors in any shape."""
        return linear(hidden, self.query_key_value.weight)

    def finish(self, attended: Tensor, hidden: Tensor) -> Tensor:
        """The rest of the layer after attention, for tokens in any shape ``(..., hidden_size)``."""
        hidden = self._norm(self._add(self.attention_output, attended, hidden))
        expanded = self.dropout(self._expand(hidden))
        return self._norm(self._add(self.output, expanded, hidden))

    def _add(self, layer: nn.Module, inputs: Tensor, hidden: Tensor) -> Tensor:
        """``hidden`` plus a layer's output. Adding in place saves a large allocation, and no product needs its own
        result for the backward pass; but a hook or an adapter may keep what it has seen."""
        update = self.dropout(apply_linear(layer, inputs))
        is_ours = is_plain(layer) and not has_hooks(self.dropout) and not has_global_hooks()
        return update.add_(hidden) if is_ours else update + hidden

    def heads(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        """``(..., parts * hidden_size)`` to ``parts`` tensors ``(..., heads, head size)``."""
        return tuple(part.unflatten(-1, (self.num_heads, -1)) for part in projected.chunk(parts, -1))

    def _expand(self, hidden: Tensor) -> Tensor:
        if self.is_gelu:
            return apply_linear(self.intermediate, hidden, gelu=True)
        return self.activation(apply_linear(self.intermediate, hidden))

    def _project(self, hidden: Tensor, role_bias: Tensor, projected: Tensor | None) -> Tensor:
        """``(tokens, compositions, 3 * hidden_size)`` with bias."""
        if not is_plain(self.query_key_value):  # such as an adapter, which must see the roles as well
            size = hidden.shape[-1]
            with_roles = self.query_key_value(hidden + self._roles(len(hidden) - 2, hidden.device)[:, None])
            return torch.cat([with_roles[..., : 2 * size], self.query_key_value(hidden)[..., 2 * size :]], -1)
        if projected is None:
            return self.project(hidden).add_(role_bias[:, None])
        return projected + role_bias[:, None]

    def _attend(self, projected: Tensor) -> Tensor:
        """Masked attention, `composition_attention_reference` of the kernels, with three weights per token, not a row
        of scores: every token sees the left child, the right child and, if it is a task token, itself. A softmax does
        not change if the right child's score is subtracted from all scores, so only the difference of each key to the
        right child's is needed."""
        query, key, value = self.heads(projected, 3)
        tasks = slice(len(query) - 2)
        keys = key[:-1] - key[-1]
        to_left = (query * keys[-1]).sum(-1)
        to_self = F.pad((query[tasks] * keys[tasks]).sum(-1), (0, 0, 0, 0, 0, 2), value=float("-inf"))
        scores = torch.stack([to_left, torch.zeros_like(to_left), to_self])
        weights = self.softmax(query.shape[-1] ** -0.5 * scores)
        to_left, to_right, to_self = self.attention_dropout(weights)[..., None]
        attended = (to_left * value[-2]).addcmul_(to_right, value[-1])
        attended[tasks].addcmul_(to_self[tasks], value[tasks])
        return attended.flatten(-2)

    def softmax(self, scores: Tensor) -> Tensor:
        """Over the first axis. In half precision torch's own rounds the last values of a tensor otherwise than the
        others, so that results would depend on the batch."""
        return scores.softmax(0, torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)

    def _norm(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, hidden.shape[-1:], eps=self.eps)


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
        is_read = is_plain(first.query_key_value)
        projected = first.project(tasks) if is_read else tasks.new_zeros(len(tasks), 3 * tasks.shape[1])
        return SharedInputs(tasks, projected, tuple(layer.role_bias(tasks) for layer in self.layers))

    def forward(self, shared: SharedInputs, children: Tensor, projected: Tensor | None = None) -> Tensor:
        """
        Args:
            children: ``(2, compositions, hidden_size)``, left and right.
            projected: ``(2, compositions, 3 * hidden_size)``, the first layer's projection of the children; None
                computes it.

        Returns:
            ``(num_tasks + 2, compositions, hidden_size)``: outputs of the tasks, of the left and of the right child.
        """
        hidden, first = in_front(shared.tasks, children), self.layers[0]
        if projected is None and is_plain(first.query_key_value):
            projected = first.project(children)
        if projected is not None:
            projected = in_front(shared.projected_tasks, projected)
        for layer, role_bias in zip(self.layers, shared.role_biases, strict=True):
            hidden = layer(hidden, role_bias, projected)
            projected = None
        return hidden


def in_front(tasks: Tensor, children: Tensor) -> Tensor:
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
