"""One Transformer layer of the composition function (paper, Section 2.1)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_fast_r2d2 import FastR2D2Config
from .cpu_operations import Dropout, apply_linear, is_plain, linear


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
        self.is_gelu = config.hidden_act == "gelu"
        self.role_embeddings = nn.Embedding(3, size)  # task, left, right
        self.query_key_value = nn.Linear(size, 3 * size)
        self.attention_output = nn.Linear(size, size)
        self.intermediate = nn.Linear(size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, size)
        self.activation = ACT2FN[config.hidden_act]
        self.attention_dropout = Dropout(config.attention_probs_dropout_prob)
        self.dropout = Dropout(config.hidden_dropout_prob)

    @property
    def linears(self) -> tuple[nn.Module, ...]:
        """The linear layers, or adapters in their places."""
        return self.query_key_value, self.attention_output, self.intermediate, self.output

    @property
    def has_weight(self) -> bool:
        """Whether the projection's matrix can be read. torch's quantised linear layers hide it."""
        return isinstance(getattr(self.query_key_value, "weight", None), Tensor)

    def role_bias(self, num_tasks: int) -> Tensor:
        """``(tokens, 3 * hidden_size)``: a role that is added to the input of a projection, as a bias after it. So one
        product serves queries, keys and values, of which the last have no role. It is 0, and not used, without
        ``has_weight``."""
        roles = self._roles(num_tasks)
        size = roles.shape[1]
        if not self.has_weight:
            return roles.new_zeros(len(roles), 3 * size)
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        return F.pad(linear(roles, weight[: 2 * size]), (0, size)) + bias

    def _roles(self, num_tasks: int) -> Tensor:
        task_role, child_roles = self.role_embeddings.weight.split([1, 2])
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
        # Adding in place saves two large allocations; no product needs its own result for the backward pass.
        hidden = self._norm(self.dropout(apply_linear(self.attention_output, attended)).add_(hidden))
        expanded = self.dropout(self._expand(hidden))
        return self._norm(self.dropout(apply_linear(self.output, expanded)).add_(hidden))

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
            with_roles = self.query_key_value(hidden + self._roles(len(hidden) - 2)[:, None])
            return torch.cat([with_roles[..., : 2 * size], self.query_key_value(hidden)[..., 2 * size :]], -1)
        if projected is None:
            return self.project(hidden).add_(role_bias[:, None])
        return projected + role_bias[:, None]

    def _attend(self, projected: Tensor) -> Tensor:
        """`attention_reference` with three weights per token, not a row of scores: every token sees the left child, the
        right child and, if it is a task token, itself. A softmax does not change if the right child's score is
        subtracted from all scores, so only the difference of each key to the right child's is needed."""
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


def attention_reference(projected: Tensor, num_heads: int) -> Tensor:
    """The definition of the layer's attention, without dropout.

    Args:
        projected: ``(tokens, compositions, 3 * hidden_size)``, queries, keys and values, the two children's last.

    Returns:
        ``(tokens, compositions, hidden_size)``.
    """
    query, key, value = (part.unflatten(-1, (num_heads, -1)).transpose(0, 2) for part in projected.chunk(3, -1))
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5  # (heads, compositions, tokens, tokens)
    sees = torch.eye(len(projected), dtype=torch.bool, device=projected.device)
    sees[:, -2:] = True
    weights = scores.masked_fill(~sees, float("-inf")).softmax(-1)
    return (weights @ value).transpose(0, 2).flatten(-2)


__all__ = ["CompositionLayer", "attention_reference"]
