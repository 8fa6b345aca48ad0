"""The table of a chart's nodes that compositions read from and write to."""

import torch
from torch import Tensor

from .children import Children, FromNodes
from .composition import Composition
from .node_rows import NodeRows


class NodeTable:
    """Vectors and log p̃ of all nodes.

    Args:
        leaves: ``(num_tokens, hidden_size)``, the first rows.
        tasks: as for `Composition.prepare`.
        projects: also keep the first layer's projection of each node, so that it is computed once for all compositions
            that the node is a child in. It has no effect where the composition needs its whole input.
    """

    def __init__(self, leaves: Tensor, num_nodes: int, composition: Composition, tasks: Tensor, projects: bool = False):
        self.composition, self.shared = composition, composition.prepare(tasks)
        self.vectors = NodeRows(leaves, num_nodes)
        dtype = torch.promote_types(leaves.dtype, torch.float32)
        self.log_prob = NodeRows(leaves.new_zeros(len(leaves), dtype=dtype), num_nodes)
        self.projections: list[NodeRows] = []  # queries; keys and values
        if projects and composition.works_apart(leaves):
            self.projections = [NodeRows(part, num_nodes) for part in self._project(leaves)]

    def write(self, rows: slice, vectors: Tensor, log_prob: Tensor | None = None) -> None:
        vectors = vectors.to(self.vectors.values.dtype)
        self.vectors.write(rows, vectors)
        if log_prob is not None:
            self.log_prob.write(rows, log_prob)
        if self.projections and rows.stop < len(self.vectors.values):  # nodes of the last level are no children
            for table, part in zip(self.projections, self._project(vectors), strict=True):
                table.write(rows, part)

    def _project(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        size = vectors.shape[-1]
        return self.composition.stack.layers[0].project(vectors).split([size, 2 * size], -1)

    def children(self, left: Tensor, right: Tensor) -> Children:
        """Children that are computed apart from tasks; only where nodes are projected."""
        ids, stack = torch.stack([left.flatten(), right.flatten()]), self.composition.stack
        source = FromNodes(ids, self.vectors, *self.projections)
        return Children(stack.layers, self.shared.role_biases, source)

    def compose(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor | None]:
        """Parents and log-probabilities of ``(compositions,)`` children, all tokens together."""
        ids = torch.stack([left, right])
        projected = torch.cat([table.read(ids) for table in self.projections], -1) if self.projections else None
        return self.composition(self.shared, self.vectors.read(ids), projected)

    def compose_and_score(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """`compose` where there are probabilities, since ``tasks`` has ``[CLS]``."""
        parents, log_prob = self.compose(left, right)
        assert log_prob is not None
        return parents, log_prob

    def with_children(self, step: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """log p̃ of candidates from log p of their compositions, each ``(cells, candidates)``, by ascending split point.

        The leftmost candidate's left child and the rightmost candidate's right child get no gradient, as in the
        authors' code.
        """
        of_left, of_right = self.log_prob.read(left), self.log_prob.read(right)
        of_left = torch.cat([of_left[:, :1].detach(), of_left[:, 1:]], dim=1)
        of_right = torch.cat([of_right[:, :-1], of_right[:, -1:].detach()], dim=1)
        return step.view(left.shape) + of_left + of_right


__all__ = ["NodeTable"]
