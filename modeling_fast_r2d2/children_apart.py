"""The same encoding, with children apart from tasks: all candidates are scored, and the chosen ones alone are built.

A candidate's vector plays no part in the choice, only its probability does. So it is enough to score all candidates and
to build the chosen one's vector with a gradient. The vectors of the others are needed for the gradient of the choice
alone, and are built without a gradient of their own.

No child sees a task, and no task sees another task. So children are computed apart from tasks, once, and only as far as
they are needed: a layer's keys and values for a task that reads them, and the last layer's output for the parent that
is made of it.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .chart import Level
from .choice import EncodedCells, Nodes, choice_weights, sampling_offsets
from .composition import Composition, CompositionLayer, CompositionStack, SharedInputs
from .node_rows import rows_of_nodes

# Compositions of a level. With fewer, scoring first costs more than it saves, since the weights are read more often: a
# training step takes 0.95 x (tiny size) and 0.98 x (base size) of the time that it takes with 0.
MIN_COMPOSITIONS_APART = 48


class NodesApart(Nodes):
    """`Nodes` of which each is projected once by the first layer, however many compositions it is a child in."""

    def __init__(self, composition: Composition, leaves: Tensor, tasks: Tensor, num_nodes: int):
        super().__init__(composition, leaves, tasks, num_nodes)
        self.projections = rows_of_nodes(self._project(leaves), num_nodes)

    def write(self, level: Level, vectors: Tensor, log_prob: Tensor | None = None) -> None:
        super().write(level, vectors, log_prob)
        rows = self.rows(level)
        if rows.stop < len(self.vectors.values):  # nodes of the last level are no children
            self.projections.write(rows, self._project(vectors))

    def compose(self, level: Level) -> tuple[Tensor, Tensor | None]:
        ids = torch.stack([level.left.flatten(), level.right.flatten()])
        return self.composition(self.shared, self.vectors.read(ids), self.projections.read(ids))

    def encode_level(self, level: Level, noise: float = 0.0, vectors_train_choice: bool = True) -> EncodedCells:
        if level.left.numel() < MIN_COMPOSITIONS_APART:
            return super().encode_level(level, noise, vectors_train_choice)
        left, stack = level.left, self.composition.stack
        ids = torch.stack([left.flatten(), level.right.flatten()])
        read = self.vectors.read(ids), self.projections.read(ids)
        children = Children(stack.layers, self.shared.role_biases, *read)
        step = self.composition.log_prob(task_output(stack, self.shared, children, 0)).view(left.shape)
        candidates = self.add_below(step, level)
        weights, chosen = choice_weights(candidates, sampling_offsets(candidates, noise))
        first = torch.arange(0, left.numel(), left.shape[1], device=left.device)
        vectors = self._build(children.select(first + chosen) if left.shape[1] > 1 else children)
        if weights.requires_grad and vectors_train_choice:
            vectors = self._pass_gradient_to_choice(children, vectors, weights, chosen)
        return EncodedCells(vectors, (weights * candidates).sum(-1), chosen, step, candidates)

    def _project(self, vectors: Tensor) -> Tensor:
        return self.composition.stack.layers[0].project(vectors)

    def _build(self, children: "Children") -> Tensor:
        """``(compositions, hidden_size)``: parents."""
        summed = task_output(self.composition.stack, self.shared, children, len(self.shared.tasks) - 1)
        return self.composition.parent(summed, *children.output())

    def _pass_gradient_to_choice(
        self, children: "Children", vectors: Tensor, weights: Tensor, chosen: Tensor
    ) -> Tensor:
        """The chosen vectors, with a gradient for the choice's ``weights``, for which the other candidates are built.

        Cells of one candidate take part as well. Of several processes that train together, one may have no other cells,
        and every process must give the choice's weights a gradient.
        """
        cells, count = weights.shape
        numbers = torch.arange(count - 1, device=weights.device)
        others = numbers + (numbers >= chosen[:, None])  # (cells, count - 1)
        passed_over = vectors.new_empty(0, vectors.shape[1])
        if count > 1:
            first = torch.arange(0, cells * count, count, device=weights.device)[:, None]
            with torch.no_grad():
                passed_over = self._build(children.select((first + others).flatten()))
        passed_over = passed_over.view(cells, count - 1, vectors.shape[1])
        return _GradientOfChoice.apply(vectors, weights, passed_over, chosen[:, None], others)


def read_out(stack: CompositionStack, task: Tensor, children: Tensor) -> Tensor:
    """As `encoder.read_out`."""
    shared, projected = stack.prepare(task), stack.layers[0].project(children)
    return task_output(stack, shared, Children(stack.layers, shared.role_biases, children, projected), 0)


def task_output(stack: CompositionStack, shared: SharedInputs, children: "Children", task: int) -> Tensor:
    """``(compositions, hidden_size)``: what a stack gives for one task, computed without the other tasks."""
    hidden, projected = shared.tasks[task, None], shared.projected_tasks[task, None]
    for number, (layer, role_bias) in enumerate(zip(stack.layers, shared.role_biases, strict=True)):
        query, *own = ((layer.project(hidden) if number else projected) + role_bias[task]).chunk(3, -1)
        hidden = layer.finish(attend(layer, query, children.keys_values(number), own), hidden)
    return hidden


def attend(layer: CompositionLayer, query: Tensor, keys_values: Tensor, own: Sequence[Tensor] = ()) -> Tensor:
    """Attention to the two children, as in `CompositionLayer._attend`.

    Args:
        query: ``(2, compositions, hidden_size)``, of the children; or of a task, ``(compositions, hidden_size)``, or
            ``(1, hidden_size)`` where it is the same in all compositions. All have their bias.
        keys_values: ``(2, compositions, 2 * hidden_size)`` of the children.
        own: the key and the value of a task, which sees itself as well.

    Returns:
        ``(2, compositions, hidden_size)`` or ``(compositions, hidden_size)``.
    """
    [query], (key, value) = layer.heads(query, 1), layer.heads(keys_values, 2)
    to_left = (query * (key[0] - key[1])).sum(-1)
    scores = [to_left, torch.zeros_like(to_left)]
    if own:
        own_key, own_value = (layer.heads(part, 1)[0] for part in own)
        scores.append((query * (own_key - key[1])).sum(-1))
    weights = layer.softmax(query.shape[-1] ** -0.5 * torch.stack(scores))
    to_left, to_right, *to_self = layer.attention_dropout(weights)[..., None].unbind()
    attended = torch.addcmul(to_left * value[0], to_right, value[1])
    if own:
        attended = torch.addcmul(attended, to_self[0], own_value)
    return attended.flatten(-2)


class Children:
    """The children in all layers, each computed when it is first asked for.

    Args:
        role_biases: ``(tokens, 3 * hidden_size)`` for each layer, the two children's rows last.
        hidden: ``(2, compositions, hidden_size)``, the vectors of the children.
        projected: ``(2, compositions, 3 * hidden_size)``, their queries, keys and values in the first layer without
            bias.
    """

    def __init__(
        self, layers: Sequence[CompositionLayer], role_biases: Sequence[Tensor], hidden: Tensor, projected: Tensor
    ):
        self.layers, self.biases = layers, [bias[-2:, None] for bias in role_biases]
        self._keys_values: list[Tensor] = []  # of the layers that were entered
        self._enter(hidden, projected + self.biases[0])

    def keys_values(self, number: int) -> Tensor:
        """``(2, compositions, 2 * hidden_size)``: the keys and values that a task reads in a layer."""
        while len(self._keys_values) <= number:
            layer, hidden = len(self._keys_values), self._leave()
            self._enter(hidden, self.layers[layer].project(hidden).add_(self.biases[layer]))
        return self._keys_values[number]

    def output(self) -> Tensor:
        """``(2, compositions, hidden_size)``: the output of the last layer."""
        self.keys_values(len(self.layers) - 1)
        return self._leave()

    def select(self, rows: Tensor) -> "Children":
        """The same of some compositions, with what is computed already."""
        selected = copy.copy(self)
        selected._hidden, selected._query, *selected._keys_values = (
            part.index_select(1, rows) for part in (self._hidden, self._query, *self._keys_values)
        )
        return selected

    def _enter(self, hidden: Tensor, projected: Tensor) -> None:
        """Go on to the next layer, with its queries, keys and values."""
        size = hidden.shape[-1]
        self._hidden, (self._query, keys_values) = hidden, projected.split([size, 2 * size], -1)
        self._keys_values.append(keys_values)

    def _leave(self) -> Tensor:
        """The output of the layer that was entered last."""
        layer = self.layers[len(self._keys_values) - 1]
        return layer.finish(attend(layer, self._query, self._keys_values[-1]), self._hidden)


class _GradientOfChoice(torch.autograd.Function):
    """Passes the chosen vectors on; ``weights`` get the gradient that a weighted sum of all candidates would give."""

    @staticmethod
    def forward(
        context: Any, vectors: Tensor, weights: Tensor, passed_over: Tensor, chosen: Tensor, others: Tensor
    ) -> Tensor:
        context.save_for_backward(vectors, passed_over, chosen, others)
        context.dtype = weights.dtype
        return vectors.view_as(vectors)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        vectors, passed_over, chosen, others = context.saved_tensors
        of_chosen = (upstream * vectors).sum(-1, keepdim=True)
        of_others = (upstream[:, None] * passed_over).sum(-1)
        of_weights = upstream.new_empty(len(chosen), 1 + others.shape[1])
        of_weights.scatter_(1, chosen, of_chosen).scatter_(1, others, of_others)
        return upstream, of_weights.to(context.dtype), None, None, None
