"""The table of a chart's nodes that compositions read from and write to."""

from typing import Any

import torch
from torch import Tensor

from .children import Children, FromNodes
from .composition import Composition
from .node_rows import NodeRows, Uses


class NodeTable:
    """Vectors and log p̃ of all nodes.

    Args:
        leaves: ``(num_tokens, hidden_size)``, the first rows.
        tasks: as for `Composition.prepare`.
        projects: also keep the first layer's projection of each node, so that it is computed once for all compositions
            that the node is a child in. It has no effect where the composition needs its whole input.

    Where fused kernels run, the vectors have the dtype in which these compute.
    """

    def __init__(self, leaves: Tensor, num_nodes: int, composition: Composition, tasks: Tensor, projects: bool = False):
        self.composition, self.shared = composition, composition.prepare(tasks)
        self.kernels, self.dtype = composition.kernels_that_gather(leaves), leaves.dtype
        if self.kernels is not None:
            leaves = leaves.to(self.shared.dtype_of(leaves))
        self.vectors = NodeRows(leaves, num_nodes)
        dtype = torch.promote_types(leaves.dtype, torch.float32)
        self.log_prob = NodeRows(leaves.new_zeros(len(leaves), dtype=dtype), num_nodes)
        self.projections: list[NodeRows] = []  # queries, and keys and values; with fused kernels all in one
        if self.kernels is None:
            self.scores_first = projects and composition.works_apart(leaves)
        else:
            self.scores_first = projects and composition.scores_first_by_kernels()
        if projects and (self.scores_first or self.kernels is not None):
            self.projections = [NodeRows(part, num_nodes) for part in self._project(leaves)]

    def write(self, rows: slice, vectors: Tensor, log_prob: Tensor | None = None) -> None:
        vectors = vectors.to(self.vectors.values.dtype)
        self.vectors.write(rows, vectors)
        if log_prob is not None:
            self.log_prob.write(rows, log_prob)
        if self.projections and rows.stop < len(self.vectors.values):  # nodes of the last level are no children
            for table, part in zip(self.projections, self._project(vectors), strict=True):
                table.write(rows, part)

    def _project(self, vectors: Tensor) -> tuple[Tensor, ...]:
        size, projected = vectors.shape[-1], self.composition.stack.layers[0].project(vectors)
        return projected.split([size, 2 * size], -1) if self.kernels is None else (projected,)

    def all_vectors(self) -> Tensor:
        """``(num_nodes, hidden_size)`` in the leaves' dtype, after every row is written."""
        return self.vectors.all().to(self.dtype)

    def score(self, left: Tensor, right: Tensor) -> tuple[Tensor, Any]:
        """Log-probabilities ``(compositions,)``, and the children, of which `build` makes parents; only where the table
        ``scores_first``."""
        if self.kernels is None:
            children = self._children(left, right)
            return self.composition.log_prob(self.shared, children), children
        tables = (self.vectors, self.shared.tasks), (self.projections[0], self.shared.projected_tasks)
        inputs = (table.read_behind(tasks[:1], left, right, None, self.kernels) for table, tasks in tables)
        return self.composition.log_prob_by_kernels(self.kernels, self.shared, *inputs)

    def build(self, children: Any, rows: Tensor | None) -> Tensor:
        """``(rows, hidden_size)``: parents of some compositions, for None of all; ``children`` are from `score`."""
        if self.kernels is None:
            return self.composition.parent(self.shared, children if rows is None else children.select(rows))
        assert rows is not None  # by kernels, levels of one candidate are built whole
        return self.composition.parent_by_kernels(self.kernels, self.shared, children, rows)

    def _children(self, left: Tensor, right: Tensor) -> Children:
        """Children that are computed apart from tasks."""
        ids, stack = torch.stack([left, right]), self.composition.stack
        source = FromNodes(ids, self.vectors, *self.projections)
        return Children(stack.layers, self.shared.role_biases, source)

    def compose(self, left: Tensor, right: Tensor, uses: Uses | None = None) -> tuple[Tensor, Tensor | None]:
        """Parents and log-probabilities of ``(compositions,)`` children, all tokens together; ``uses`` of both."""
        if self.kernels is not None:
            where = left, right, uses, self.kernels
            hidden = self.vectors.read_behind(self.shared.tasks, *where)
            projections = [table.read_behind(self.shared.projected_tasks, *where) for table in self.projections]
            return self.composition(self.shared, hidden, *projections)
        ids = torch.stack([left, right])
        projected = torch.cat([table.read(ids) for table in self.projections], -1) if self.projections else None
        return self.composition(self.shared, self.vectors.read(ids), projected)

    def compose_and_score(self, left: Tensor, right: Tensor, uses: Uses | None = None) -> tuple[Tensor, Tensor]:
        """`compose` where there are probabilities, since ``tasks`` has ``[CLS]``."""
        parents, log_prob = self.compose(left, right, uses)
        assert log_prob is not None
        return parents, log_prob

    def with_children(self, step: Tensor, left: Tensor, right: Tensor, uses: Uses | None = None) -> Tensor:
        """log p̃ of candidates from log p of their compositions, each ``(cells, candidates)``, by ascending split point.

        The leftmost candidate's left child and the rightmost candidate's right child get no gradient, as in the
        authors' code.
        """
        if uses is None:
            of_left, of_right = self.log_prob.read(left), self.log_prob.read(right)
        else:
            of_left, of_right = self.log_prob.read(torch.stack([left, right]), uses)
        of_left = torch.cat([of_left[:, :1].detach(), of_left[:, 1:]], dim=1)
        of_right = torch.cat([of_right[:, :-1], of_right[:, -1:].detach()], dim=1)
        return step.view(left.shape) + of_left + of_right


__all__ = ["NodeTable"]
