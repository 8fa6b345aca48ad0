"""The composition function: a Transformer over ``[task tokens, left, right]`` (paper, Section 2.1)."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .dropout import Dropout
from .fused import fused_kernels
from .level_graphs import LevelGraphs
from .products import apply_linear, is_plain, linear, packed_weights

MOST_AT_ONCE = 256  # compositions on a CPU: more take more memory and no less time
WORTH_PACKING = 12  # levels on a CPU a byte of a value: so many make up for the time of laying the weights out


class CompositionLayer(GradientCheckpointingLayer):
    """Post-norm Transformer layer over tokens that lie on the first axis, the left and the right child last.

    The children see each other and themselves; a task token sees itself and both children. Roles are added to
    queries and keys only. Layer norms have no parameters.
    """

    # What the `kernels` library looks for when it puts `fast_r2d2_kernels.layers.CompositionLayer` in. transformers'
    # decorator does no more, but nothing where it finds another version of that library than it was made for.
    kernel_layer_name = "CompositionLayer"

    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.eps = config.layer_norm_eps
        self.is_gelu = config.hidden_act == "gelu"
        self.kernels = config.composition_kernels if self.is_gelu else "torch"
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
        """Linear layers, or what took their places."""
        return self.query_key_value, self.attention_output, self.intermediate, self.output

    def role_bias(self, num_tasks: int) -> Tensor:
        """``(tokens, 3 * hidden_size)``: a role added to the input of a projection is a bias after it, so that one
        product serves queries, keys and values."""
        weight, bias, roles = self.query_key_value.weight, self.query_key_value.bias, self._roles(num_tasks)
        size = roles.shape[1]
        return F.pad(linear(roles, weight[: 2 * size]), (0, size)) + bias

    def _roles(self, num_tasks: int) -> Tensor:
        task_role, child_roles = self.role_embeddings.weight.split([1, 2])
        return torch.cat([task_role.expand(num_tasks, -1), child_roles])

    def __call__(self, *args, **kwargs):
        # transformers checkpoints in the class's forward; one that the `kernels` library put in is the instance's own.
        if self.gradient_checkpointing and self.training:
            if getattr(self.forward, "__func__", type(self).forward) is not type(self).forward:
                return self._gradient_checkpointing_func(partial(nn.Module.__call__, self, **kwargs), *args)
        return super().__call__(*args, **kwargs)

    def forward(self, hidden: Tensor, role_bias: Tensor, projected_tasks: Tensor | None = None) -> Tensor:
        """
        Args:
            hidden: ``(tokens, compositions, hidden_size)``, as is what is returned.
            role_bias: of `role_bias`.
            projected_tasks: ``(tokens - 2, 1, 3 * hidden_size)``, queries, keys and values without bias of the task
                tokens, where they are still the same in all compositions.
        """
        kernels = fused_kernels(self.kernels, hidden)
        if kernels is not None and all(map(is_plain, self.linears)):
            return kernels.layers.CompositionLayer.forward(self, hidden, role_bias)
        # Adding in place spares a large allocation each; no product needs its own result for the backward pass.
        attended = apply_linear(self.attention_output, self._attend(*self._project(hidden, role_bias, projected_tasks)))
        hidden = self._norm(self.dropout(attended).add_(hidden))
        expanded = self.dropout(self._expand(hidden))
        return self._norm(self.dropout(apply_linear(self.output, expanded)).add_(hidden))

    def _expand(self, hidden: Tensor) -> Tensor:
        if self.is_gelu:
            return apply_linear(self.intermediate, hidden, gelu=True)
        return self.activation(apply_linear(self.intermediate, hidden))

    def _project(self, hidden: Tensor, role_bias: Tensor, projected_tasks: Tensor | None) -> Tensor:
        """Queries, keys and values, ``(3, tokens, compositions, heads, head size)``."""
        weight = self.query_key_value.weight
        if not is_plain(self.query_key_value):  # an adapter, perhaps, which must see the roles, too
            size = hidden.shape[-1]
            with_roles = self.query_key_value(hidden + self._roles(len(hidden) - 2)[:, None])
            projected = torch.cat([with_roles[..., : 2 * size], self.query_key_value(hidden)[..., 2 * size :]], -1)
        elif projected_tasks is None:
            projected = linear(hidden, weight).add_(role_bias[:, None])
        else:
            tasks = projected_tasks.expand(-1, hidden.shape[1], -1)
            projected = torch.cat([tasks, linear(hidden[-2:], weight)]).add_(role_bias[:, None])
        return projected.unflatten(-1, (3, self.num_heads, -1)).movedim(-3, 0)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """All tokens see both children, and task tokens themselves: three weights a token, not a row of scores. What
        counts in them is by how much a key differs from the right child's."""
        tasks = slice(len(query) - 2)
        keys = key[:-1] - key[-1]
        to_left = (query * keys[-1]).sum(-1)
        to_self = F.pad((query[tasks] * keys[tasks]).sum(-1), (0, 0, 0, 0, 0, 2), value=float("-inf"))
        scores = torch.stack([to_left, torch.zeros_like(to_left), to_self])
        weights = (query.shape[-1] ** -0.5 * scores).softmax(0)
        to_left, to_right, to_self = self.attention_dropout(weights)[..., None]
        attended = (to_left * value[-2]).addcmul_(to_right, value[-1])
        attended[tasks].addcmul_(to_self[tasks], value[tasks])
        return attended.flatten(-2)

    def _norm(self, hidden: Tensor) -> Tensor:
        return F.layer_norm(hidden, hidden.shape[-1:], eps=self.eps)


class CompositionStack(nn.Module):
    """``num_hidden_layers`` composition layers."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(CompositionLayer(config) for _ in range(config.num_hidden_layers))

    def prepare(self, tasks: Tensor) -> "Constants":
        """What need not be computed anew for every level. ``tasks``: ``(num_tasks, hidden_size)``."""
        projected = linear(tasks[:, None], self.layers[0].query_key_value.weight)
        return Constants(tasks, projected, tuple(layer.role_bias(len(tasks)) for layer in self.layers))

    def forward(self, constants: "Constants", left: Tensor, right: Tensor) -> Tensor:
        """Args: ``left`` and ``right`` ``(compositions, hidden_size)``.

        Returns:
            ``(num_tasks + 2, compositions, hidden_size)``: the tasks' outputs, then the left's and the right's.
        """
        tasks = constants.tasks[:, None].expand(-1, len(left), -1)
        return self.run(constants, torch.cat([tasks, left[None], right[None]]))

    def run(self, constants: "Constants", hidden: Tensor) -> Tensor:
        """The layers over ``hidden``, in which the task tokens come first."""
        projected_tasks = constants.projected_tasks
        for layer, role_bias in zip(self.layers, constants.role_biases, strict=True):
            hidden = layer(hidden, role_bias, projected_tasks)
            projected_tasks = None  # after one layer they know their children
        return hidden


class Constants(NamedTuple):
    """What is the same in all compositions: the task tokens, how the first layer projects them, roles as biases."""

    tasks: Tensor  # (num_tasks, hidden_size)
    projected_tasks: Tensor  # (num_tasks, 1, 3 * hidden_size), without bias
    role_biases: tuple[Tensor, ...]  # of each layer (num_tasks + 2, 3 * hidden_size)

    def tensors(self) -> list[Tensor]:
        return [self.tasks, self.projected_tasks, *self.role_biases]

    @classmethod
    def of_tensors(cls, tensors: list[Tensor]) -> "Constants":
        return cls(*tensors[:2], tuple(tensors[2:]))


class Composition(nn.Module):
    """``f`` of the paper's Equation 1: two children to their parent and the log-probability of joining them."""

    def __init__(self, config):
        super().__init__()
        self.eps, self.kernels = config.layer_norm_eps, config.composition_kernels
        self.graphs = LevelGraphs() if config.cuda_graphs else None
        self.stack = CompositionStack(config)
        self.score = nn.Linear(config.hidden_size, 1)
        self.blend = nn.Linear(config.hidden_size, 2)

    def prepare(self, tasks: Tensor) -> Constants:
        """What all levels of a batch share.

        Args:
            tasks: ``(2, hidden_size)``, the embeddings of ``[CLS]`` and ``[SUM]``, or ``(1, hidden_size)``, that of
                ``[SUM]`` alone when no probability is wanted. No token's output depends on ``[CLS]``.
        """
        if self.graphs is not None:
            self.graphs.begin(self)
        return self.stack.prepare(tasks)

    def packed(self, num_levels: int) -> AbstractContextManager:
        """Inside, on a CPU without gradients, products find the weights laid out for them, if there are levels enough
        to make up for that. The weights must not change inside."""
        is_compiled = torch.compiler.is_compiling() or self._compiled_call_impl is not None
        if is_compiled or num_levels < WORTH_PACKING * self.score.weight.element_size():
            return nullcontext()
        linears = (each for layer in self.stack.layers for each in layer.linears)
        return packed_weights(each.weight for each in linears if is_plain(each))

    def forward(self, constants: Constants, nodes: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            constants: of `prepare`.
            nodes: ``(num_nodes, hidden_size)``.
            left, right: ``(compositions,)`` long, the children's rows of ``nodes``.

        Returns:
            Parents ``(compositions, hidden_size)`` and log-probabilities ``(compositions,)`` in nats, float32 or
            wider, or None.
        """
        if self.graphs is not None and self.graphs.serve(nodes, len(left)):
            return self.graphs.run(self, constants, nodes, left, right)
        if nodes.is_cuda or torch.is_grad_enabled() or torch.compiler.is_compiling() or len(left) <= MOST_AT_ONCE:
            return self.compose(constants, nodes, left, right)
        parts = zip(left.split(MOST_AT_ONCE), right.split(MOST_AT_ONCE), strict=True)
        parents, log_probs = zip(*(self.compose(constants, nodes, *part) for part in parts), strict=True)
        return torch.cat(parents), None if log_probs[0] is None else torch.cat(log_probs)

    def compose(self, constants: Constants, nodes: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        """`forward`, all at once and launch by launch."""
        kernels = fused_kernels(self.kernels, nodes)
        *scored, summed, left, right = self._encode(kernels, constants, nodes, left, right)
        if kernels is not None:
            parent = kernels.blend_norm(self.blend(summed), left, right, self.eps)
        else:
            weights = self.blend(summed).softmax(-1)
            parent = (weights[:, :1] * left).addcmul_(weights[:, 1:], right)
            parent = F.layer_norm(parent, parent.shape[-1:], eps=self.eps)
        if not scored:
            return parent, None
        logit = self.score(scored[0])[:, 0]
        return parent, F.logsigmoid(logit.to(torch.promote_types(logit.dtype, torch.float32)))

    def _encode(self, kernels, constants: Constants, nodes: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if kernels is None:
            return self.stack(constants, nodes.index_select(0, left), nodes.index_select(0, right))
        return self.stack.run(constants, kernels.gather_children(nodes, constants.tasks, left, right))


__all__ = ["Composition", "CompositionLayer", "CompositionStack", "Constants"]
