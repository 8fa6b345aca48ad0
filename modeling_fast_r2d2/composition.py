"""The composition function: a Transformer over ``[task tokens, left, right]`` (paper, Section 2.1)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .children import Children, FromVectors
from .composition_layer import CompositionLayer
from .configuration_fast_r2d2 import FastR2D2Config
from .cpu_linear import is_plain, is_watched
from .fused import KernelSizes, fused_kernels


class CompositionStack(nn.Module):
    """``num_hidden_layers`` composition layers."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        self.layers: Any = nn.ModuleList(CompositionLayer(config) for _ in range(config.num_hidden_layers))

    def prepare(self, tasks: Tensor) -> "SharedInputs":
        """The inputs that are the same on every level. ``tasks``: ``(num_tasks, hidden_size)``."""
        first = self.layers[0]
        projected = first.project(tasks) if first.has_weight else tasks.new_zeros(len(tasks), 3 * tasks.shape[1])
        role_biases = tuple(layer.role_bias(len(tasks)) for layer in self.layers)
        return SharedInputs(tasks, projected, role_biases, tuple(layer.fused_weights(tasks) for layer in self.layers))

    def forward(self, shared: "SharedInputs", children: Tensor, projected: Tensor | None = None) -> Tensor:
        """The definition: all tokens of a composition together.

        Args:
            children: ``(2, compositions, hidden_size)``, left and right; or tasks, left and right.
            projected: ``(2, compositions, 3 * hidden_size)``, the first layer's projection of the children; None
                computes it. With tasks in front if ``children`` have them.

        Returns:
            ``(num_tasks + 2, compositions, hidden_size)``: outputs of the tasks, of the left and of the right child.
        """
        hidden, first = shared.join(shared.tasks, children.to(shared.dtype_of(children))), self.layers[0]
        is_fused = first.kernels_for(hidden) is not None
        if projected is None and is_plain(first.query_key_value) and not is_fused:
            projected = first.project(children)
        if projected is not None:
            projected = shared.join(shared.projected_tasks, projected)
        for layer, role_bias, weights in self._layers_with(shared):
            hidden = layer(hidden, role_bias, projected, *weights)
            projected = None
        return hidden

    def works_apart(self, vectors: Tensor) -> bool:
        """Whether torch's own operations run and children and tasks may be computed apart."""
        return self.may_be_cut() and self.layers[0].kernels_for(vectors) is None

    def may_be_cut(self) -> bool:
        """Whether parts of a layer may be left out: no hook or adapter needs to see a whole layer's input, and no layer
        is computed again for gradient checkpointing."""
        if torch.compiler.is_compiling() or is_watched(self) or nn.modules.module._has_any_global_hook():
            return False
        twice = any(layer.gradient_checkpointing and layer.training for layer in self.layers)
        plain = all(not is_watched(layer) and all(map(is_plain, layer.linears)) for layer in self.layers)
        return plain and not twice

    def read_out(self, task: Tensor, children: Tensor) -> Tensor:
        """The output at one task token.

        Args:
            task: ``(1, hidden_size)``.
            children: ``(2, compositions, hidden_size)``, left and right.

        Returns:
            ``(compositions, hidden_size)``.
        """
        shared = self.prepare(task)
        if not self.works_apart(children):
            return self(shared, children)[0]
        source = FromVectors(children, self.layers[0].query_key_value.weight)
        return self.task_output(shared, Children(self.layers, shared.role_biases, source), 0)

    def task_output(self, shared: "SharedInputs", children: Children, task: int) -> Tensor:
        """``(compositions, hidden_size)``: what `forward` gives for one task, computed without the other tasks."""
        hidden, projected = shared.tasks[task, None], shared.projected_tasks[task, None]
        for number, (layer, role_bias) in enumerate(zip(self.layers, shared.role_biases, strict=True)):
            with_bias = (layer.project(hidden) if number else projected) + role_bias[task]
            hidden = layer.finish(layer.attend_from_task(with_bias, children.keys_values(number)), hidden)
        return hidden

    def score_by_kernels(
        self, kernels: Any, shared: "SharedInputs", hidden: Tensor, projected: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The first task's output, without the other tasks.

        Args:
            hidden, projected: as for `forward`, with the first task in front.

        Returns:
            ``(compositions, hidden_size)``, and each layer's input of the children, ``(2, compositions, hidden_size)``.
        """
        children: list[Tensor] = []
        for number, (layer, role_bias, weights) in enumerate(self._layers_with(shared)):
            children.append(hidden[1:])
            outputs = 1 if number == len(self.layers) - 1 else None
            given = projected if number == 0 else None
            hidden = kernels.layers.composition_layer(layer, hidden, role_bias[-3:], given, *weights, outputs=outputs)
        return hidden[0], children

    def build_by_kernels(self, kernels: Any, shared: "SharedInputs", children: list[Tensor], rows: Tensor) -> Tensor:
        """``(3, rows, hidden_size)``: outputs of the last task, of the left and of the right child, of some
        compositions. ``children`` are from `score_by_kernels`."""
        hidden = shared.tasks[-1:, None].expand(-1, len(rows), -1).to(children[0].dtype)
        for number, (layer, role_bias, weights) in enumerate(self._layers_with(shared)):
            hidden = torch.cat([hidden, children[number].index_select(1, rows)])
            outputs = None if number == len(self.layers) - 1 else 1
            hidden = kernels.layers.composition_layer(layer, hidden, role_bias[-3:], None, *weights, outputs=outputs)
        return hidden

    def _layers_with(self, shared: "SharedInputs") -> Iterator[tuple[Any, Tensor, tuple[Tensor, ...]]]:
        return zip(self.layers, shared.role_biases, shared.weights, strict=True)


class SharedInputs(NamedTuple):
    """Inputs that all compositions of a batch share."""

    tasks: Tensor  # (num_tasks, hidden_size)
    projected_tasks: Tensor  # (num_tasks, 3 * hidden_size), without bias
    role_biases: tuple[Tensor, ...]  # for each layer (num_tasks + 2, 3 * hidden_size)
    weights: tuple[tuple[Tensor, ...], ...]  # for each layer `CompositionLayer.fused_weights`

    def dtype_of(self, vectors: Tensor) -> torch.dtype:
        """The dtype of vectors between layers: that of fused kernels' weights, else the vectors' own."""
        return self.weights[0][0].dtype if self.weights[0] else vectors.dtype

    def join(self, tasks: Tensor, children: Tensor) -> Tensor:
        """``(num_tasks + 2, compositions, ...)``: tasks, the same in each composition, in front of the children; these
        may have tasks in front already."""
        if len(children) > 2:
            return children
        return torch.cat([tasks[:, None].expand(-1, children.shape[1], -1).to(children.dtype), children])


class Composition(nn.Module):
    """``f`` of the paper's Equation 1: two children to their parent and the log-probability of joining them."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        self.eps, self.composition_kernels = config.layer_norm_eps, config.composition_kernels
        self.kernel_sizes = KernelSizes.of(config)
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

    def works_apart(self, vectors: Tensor) -> bool:
        """Whether `log_prob` and `parent` may be used instead of `forward`."""
        return not self._is_compiled() and not is_watched(self) and self.stack.works_apart(vectors)

    def scores_first_by_kernels(self) -> bool:
        """Whether `log_prob_by_kernels` and `parent_by_kernels` may be used instead of `forward` where kernels run: in
        evaluation, without gradients."""
        may_be_cut = not self._is_compiled() and not is_watched(self) and self.stack.may_be_cut()
        return may_be_cut and not self.training and not torch.is_grad_enabled()

    def kernels_that_gather(self, vectors: Tensor) -> Any:
        """The fused kernels if children may be gathered together with tasks and their projections; else None."""
        first = self.stack.layers[0]
        is_own = not self._is_compiled() and is_plain(first.query_key_value)
        return first.kernels_for(vectors) if is_own else None

    def forward(
        self, shared: SharedInputs, children: Tensor, projected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Parents and log-probabilities, all tokens of a composition together.

        Args:
            shared: from `prepare`.
            children: ``(2, compositions, hidden_size)``, left and right; or tasks, left and right.
            projected: ``(2, compositions, 3 * hidden_size)``, the first layer's projection of the children; None
                computes it. With tasks in front if ``children`` have them.

        Returns:
            Parents ``(compositions, hidden_size)`` and log-probabilities ``(compositions,)`` in nats, float32 or
            wider; None without ``[CLS]``.
        """
        *scored, summed, left, right = self.stack(shared, children, projected)
        return self._blend(summed, left, right), self._log_prob(scored[0]) if scored else None

    def log_prob(self, shared: SharedInputs, children: Children) -> Tensor:
        """The second result of `forward` alone; no parent is built."""
        return self._log_prob(self.stack.task_output(shared, children, 0))

    def parent(self, shared: SharedInputs, children: Children) -> Tensor:
        """The first result of `forward` alone."""
        return self._blend(self.stack.task_output(shared, children, len(shared.tasks) - 1), *children.output())

    def log_prob_by_kernels(
        self, kernels: Any, shared: SharedInputs, hidden: Tensor, projected: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The second result of `forward` alone, and what `parent_by_kernels` needs."""
        scored, children = self.stack.score_by_kernels(kernels, shared, hidden, projected)
        return self._log_prob(scored), children

    def parent_by_kernels(self, kernels: Any, shared: SharedInputs, children: list[Tensor], rows: Tensor) -> Tensor:
        """The first result of `forward` for some compositions; ``rows`` is ``(selected,)`` long."""
        return self._blend(*self.stack.build_by_kernels(kernels, shared, children, rows))

    def _log_prob(self, scored: Tensor) -> Tensor:
        """Computed in float32 or wider: half precision rounds many logits to the same number, of which the first would
        be chosen."""
        dtype = torch.promote_types(scored.dtype, torch.float32)
        if not is_plain(self.score):  # such as an adapter, which has its own dtype
            return F.logsigmoid(self.score(scored)[:, 0].to(dtype))
        with torch.autocast(scored.device.type, enabled=False):
            logit = F.linear(scored.to(dtype), self.score.weight.to(dtype), self.score.bias.to(dtype))[:, 0]
        return F.logsigmoid(logit)

    def _blend(self, summed: Tensor, left: Tensor, right: Tensor) -> Tensor:
        fused = fused_kernels(self.composition_kernels, summed, self.kernel_sizes)
        if fused is not None:
            return fused.blend_norm(self.blend(summed), left, right, self.eps)
        to_left, to_right = self.blend(summed).softmax(-1).unsqueeze(-2).unbind(-1)
        parent = torch.addcmul(to_left * left, to_right, right)
        return F.layer_norm(parent, parent.shape[-1:], eps=self.eps)

    def _is_compiled(self) -> bool:
        return torch.compiler.is_compiling() or self._compiled_call_impl is not None


__all__ = ["Composition", "CompositionLayer", "CompositionStack", "SharedInputs"]
