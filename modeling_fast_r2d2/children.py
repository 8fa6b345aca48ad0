"""The children of a group of compositions, as every layer of the composition stack sees them.

No child sees a task. So children are computed apart from tasks, once, and only as far as they are needed: a layer's
keys and values for a task that reads them, and the last layer's output for the parent that is made of it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from .composition_layer import CompositionLayer
from .cpu_linear import linear
from .node_rows import NodeRows


class Source(Protocol):
    """Where children's vectors and their projections by the first layer, without bias, come from."""

    def vectors(self) -> Tensor:
        """``(2, compositions, hidden_size)``, left and right."""

    def query(self) -> Tensor:
        """``(2, compositions, hidden_size)``."""

    def keys_values(self) -> Tensor:
        """``(2, compositions, 2 * hidden_size)``."""

    def select(self, rows: Tensor) -> "Source":
        """The same of some compositions; ``rows`` is ``(selected,)`` long."""


class FromNodes(NamedTuple):
    """Rows of tables of all nodes. Each node is projected once, however many compositions it is a child in."""

    ids: Tensor  # (2, compositions) long
    nodes: NodeRows
    queries: NodeRows
    all_keys_values: NodeRows

    def vectors(self) -> Tensor:
        return self.nodes.read(self.ids)

    def query(self) -> Tensor:
        return self.queries.read(self.ids)

    def keys_values(self) -> Tensor:
        return self.all_keys_values.read(self.ids)

    def select(self, rows: Tensor) -> "FromNodes":
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
    """

    def __init__(self, layers: Sequence[CompositionLayer], role_biases: Sequence[Tensor], source: Source):
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
        """The same of some compositions, with everything that is computed already."""
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
        return layer.finish(layer.attend_among_children(entering.query, entering.keys_values), entering.hidden)


__all__ = ["Children", "FromNodes", "FromVectors"]
