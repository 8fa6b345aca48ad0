"""The same encoding, with children apart from tasks: all candidates are scored, and the chosen ones alone are built.

A candidate's vector plays no part in the choice, only its probability does. So it is enough to score all candidates and
to build the chosen one's vector with a gradient. The vectors of the others are needed for the gradient of the choice
alone, and are built without a gradient of their own.

No child sees a task, and no task sees another task. So children are computed apart from tasks, once, and only as far as
they are needed: a layer's keys and values for a task that reads them, and the last layer's output for the parent that
is made of it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .chart import Level
from .choice import EncodedCells, Nodes, choice_weights, sampling_offsets
from .composition import CompositionLayer, CompositionStack, SharedInputs
from .cpu_operations import linear
from .node_rows import NodeRows

# Compositions of a level. With fewer, scoring first costs more than it saves, since the weights are read more often: a
# training step takes 0.95 x (tiny size) and 0.98 x (base size) of the time that it takes with 0.
MIN_COMPOSITIONS_APART = 48


class NodesApart(Nodes):
    """`Nodes` of which each is projected once by the first layer, however many compositions it is a child in."""

    def compose(self, level: Level) -> tuple[Tensor, Tensor | None]:
        ids = torch.stack([level.left.flatten(), level.right.flatten()])
        projected = torch.cat([rows.read(ids) for rows in self.projections], -1)
        return self.composition(self.shared, self.vectors.read(ids), projected)

    def encode_level(self, level: Level, noise: float = 0.0, vectors_train_choice: bool = True) -> EncodedCells:
        if level.left.numel() < MIN_COMPOSITIONS_APART:
            return super().encode_level(level, noise, vectors_train_choice)
        left, stack = level.left, self.composition.stack
        ids = torch.stack([left.flatten(), level.right.flatten()])
        children = Children(stack.layers, self.shared.role_biases, FromNodes(ids, self.vectors, *self.projections))
        step = self.composition.log_prob(task_output(stack, self.shared, children, 0)).view(left.shape)
        candidates = self.add_below(step, level)
        weights, chosen = choice_weights(candidates, sampling_offsets(candidates, noise))
        first = torch.arange(0, left.numel(), left.shape[1], device=left.device)
        vectors = self._build(children.select(first + chosen) if left.shape[1] > 1 else children)
        if weights.requires_grad and vectors_train_choice:
            vectors = self._pass_gradient_to_choice(children, vectors, weights, chosen)
        return EncodedCells(vectors, (weights * candidates).sum(-1), chosen, step, candidates)

    def project(self, vectors: Tensor) -> tuple[Tensor, ...]:
        """Queries; keys and values."""
        size = vectors.shape[-1]
        return self.composition.stack.layers[0].project(vectors).split([size, 2 * size], -1)

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
    shared = stack.prepare(task)
    source = FromVectors(children, stack.layers[0].query_key_value.weight)
    return task_output(stack, shared, Children(stack.layers, shared.role_biases, source), 0)


def task_output(stack: CompositionStack, shared: SharedInputs, children: "Children", task: int) -> Tensor:
    """``(compositions, hidden_size)``: what a stack gives for one task, computed without the other tasks."""
    hidden, projected = shared.tasks[task, None], shared.projected_tasks[task, None]
    for number, (layer, role_bias) in enumerate(zip(stack.layers, shared.role_biases, strict=True)):
        with_bias = (layer.project(hidden) if number else projected) + role_bias[task]
        hidden = layer.finish(attend_from_task(layer, with_bias, children.keys_values(number)), hidden)
    return hidden


def attend_among_children(layer: CompositionLayer, query: Tensor, keys_values: Tensor) -> Tensor:
    """
    Args:
        query: ``(2, compositions, hidden_size)``, queries of the left and the right children, with bias.
        keys_values: ``(2, compositions, 2 * hidden_size)``, their keys and values, with bias.

    Returns:
        ``(2, compositions, hidden_size)``.
    """
    [query], (key, value) = layer.heads(query, 1), layer.heads(keys_values, 2)
    to_left = (query * (key[0] - key[1])).sum(-1)
    weights = layer.softmax(query.shape[-1] ** -0.5 * torch.stack([to_left, torch.zeros_like(to_left)]))
    to_left, to_right = layer.attention_dropout(weights)[..., None].unbind()
    left, right = value.unbind()
    return torch.addcmul(to_left * left, to_right, right).flatten(-2)


def attend_from_task(layer: CompositionLayer, task: Tensor, keys_values: Tensor) -> Tensor:
    """
    Args:
        task: ``(compositions, 3 * hidden_size)``, the task's query, key and value with bias; or
            ``(1, 3 * hidden_size)`` where they are the same in all compositions.
        keys_values: ``(2, compositions, 2 * hidden_size)`` of the children, with bias.

    Returns:
        ``(compositions, hidden_size)``.
    """
    (query, own_key, own_value), (key, value) = layer.heads(task, 3), layer.heads(keys_values, 2)
    to_left = (query * (key[0] - key[1])).sum(-1)  # (compositions, heads), as in `CompositionLayer._attend`
    to_self = (query * (own_key - key[1])).sum(-1)
    scores = torch.stack([to_left, torch.zeros_like(to_left), to_self])
    weights = layer.softmax(query.shape[-1] ** -0.5 * scores)
    to_left, to_right, to_self = layer.attention_dropout(weights)[..., None].unbind()
    left, right = value.unbind()
    attended = torch.addcmul(to_left * left, to_right, right)
    return torch.addcmul(attended, to_self, own_value).flatten(-2)


class FromNodes(NamedTuple):
    """Rows of tables of all nodes. Each node is projected once, however many compositions it is a child in."""

    ids: Tensor  # (2, compositions) long
    nodes: NodeRows
    queries: NodeRows
    all_keys_values: NodeRows

    def vectors(self) -> Tensor:  # (2, compositions, hidden_size), left and right
        return self.nodes.read(self.ids)

    def query(self) -> Tensor:  # (2, compositions, hidden_size)
        return self.queries.read(self.ids)

    def keys_values(self) -> Tensor:  # (2, compositions, 2 * hidden_size)
        return self.all_keys_values.read(self.ids)

    def select(self, rows: Tensor) -> "FromNodes":
        """The same of some compositions, ``(selected,)`` long."""
        return self._replace(ids=self.ids.index_select(1, rows))


class FromVectors(NamedTuple):
    """Given vectors, ``(2, compositions, hidden_size)``, projected when they are asked for."""

    given: Tensor
    weight: Tensor  # (3 * hidden_size, hidden_size)

    def vectors(self) -> Tensor:
        return self.given

    def query(self) -> Tensor:
        return linear(self.given, self.weight[: self.weight.shape[1]])

    def keys_values(self) -> Tensor:
        return linear(self.given, self.weight[self.weight.shape[1] :])

    def select(self, rows: Tensor) -> "FromVectors":
        return self._replace(given=self.given.index_select(1, rows))


class LayerInput(NamedTuple):
    """The input of one layer; queries, keys and values have their bias."""

    hidden: Tensor  # (2, compositions, hidden_size)
    query: Tensor  # (2, compositions, hidden_size)
    keys_values: Tensor  # (2, compositions, 2 * hidden_size)

    def select(self, rows: Tensor) -> "LayerInput":
        return LayerInput(*(part.index_select(1, rows) for part in self))


class Children:
    """All layers, each computed when it is first asked for.

    Args:
        role_biases: ``(tokens, 3 * hidden_size)`` for each layer, the two children's rows last.
        source: where the children's vectors and their projections by the first layer, without bias, come from.
    """

    def __init__(
        self, layers: Sequence[CompositionLayer], role_biases: Sequence[Tensor], source: "FromNodes | FromVectors"
    ):
        self.layers, self.source = layers, source
        self.biases = [bias[-2:, None] for bias in role_biases]
        self._upper_inputs: list[LayerInput] = []  # of the second layer, the third, ...
        self._first_keys_values: Tensor | None = None

    def keys_values(self, number: int) -> Tensor:
        """``(2, compositions, 2 * hidden_size)``: the keys and values that a task reads in a layer."""
        if number:
            return self._input(number).keys_values
        if self._first_keys_values is None:
            self._first_keys_values = self.source.keys_values() + self.biases[0][..., self._size :]
        return self._first_keys_values

    def output(self) -> Tensor:
        """``(2, compositions, hidden_size)``: the output of the last layer."""
        return self._output(len(self.layers) - 1)

    def select(self, rows: Tensor) -> "Children":
        """The same of some compositions, with the inputs of layers that are computed already."""
        children = Children(self.layers, (), self.source.select(rows))
        children.biases = self.biases
        children._upper_inputs = [layer_input.select(rows) for layer_input in self._upper_inputs]
        return children

    @property
    def _size(self) -> int:
        return self.biases[0].shape[-1] // 3

    def _input(self, number: int) -> LayerInput:
        if number == 0:
            query = self.source.query() + self.biases[0][..., : self._size]
            return LayerInput(self.source.vectors(), query, self.keys_values(0))
        while len(self._upper_inputs) < number:
            layer = len(self._upper_inputs) + 1
            hidden = self._output(layer - 1)
            projected = self.layers[layer].project(hidden).add_(self.biases[layer])
            self._upper_inputs.append(LayerInput(hidden, *projected.split([self._size, 2 * self._size], -1)))
        return self._upper_inputs[number - 1]

    def _output(self, number: int) -> Tensor:
        layer, entering = self.layers[number], self._input(number)
        return layer.finish(attend_among_children(layer, entering.query, entering.keys_values), entering.hidden)


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
