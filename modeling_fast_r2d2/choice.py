"""One level of a chart: its candidates are composed, and every cell chooses one (paper, Section 2.1).

The choice is straight-through, also in evaluation: it has the best candidate's values and the softmax's gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Level
from .composition import Composition
from .node_rows import SortedReads, rows_of_nodes


class EncodedCells(NamedTuple):
    vectors: Tensor  # (cells, hidden_size)
    log_prob: Tensor  # (cells,), log p̃ of the chosen candidates
    chosen: Tensor  # (cells,) long
    step: Tensor  # (cells, candidates), log p of their compositions
    candidates: Tensor  # (cells, candidates), log p̃


class Nodes:
    """Vectors and log p̃ of a chart's nodes, filled from the lowest level up.

    This is the definition. A subclass may compute the same in another order or by other operations.

    Args:
        composition: makes parents of children.
        leaves: ``(num_tokens, hidden_size)``, the first rows.
        tasks: as for `Composition.prepare`.
        num_nodes: rows in all.
    """

    def __init__(self, composition: Composition, leaves: Tensor, tasks: Tensor, num_nodes: int):
        self.composition, self.shared, self.num_tokens = composition, composition.prepare(tasks), len(leaves)
        self.reads: dict[int, SortedReads] = {}  # of all children of a level, by its first cell, where they were sorted
        self.vectors = rows_of_nodes(leaves, num_nodes)
        dtype = torch.promote_types(leaves.dtype, torch.float32)
        self.log_prob = rows_of_nodes(leaves.new_zeros(len(leaves), dtype=dtype), num_nodes)
        self.projections = [rows_of_nodes(part, num_nodes) for part in self.project(leaves)]

    def encode_level(self, level: Level, noise: float = 0.0, vectors_train_choice: bool = True) -> EncodedCells:
        """Build the vectors of all candidates, then choose among them (paper, Equations 1 to 5).

        Args:
            level: cells all of whose children are written; ``candidates`` in ascending order of split point.
            noise: scale of the Gumbel noise that samples the choice.
            vectors_train_choice: whether the gradient of the vectors reaches the choice.
        """
        vectors, step = self.compose(level)
        assert step is not None  # tasks have [CLS]
        vectors, step = vectors.view(*level.left.shape, -1), step.view(level.left.shape)
        candidates = self.add_below(step, level)
        vector, log_prob, chosen = self.choose(vectors, candidates, sampling_offsets(candidates, noise))
        if not vectors_train_choice:
            vector = vectors.take_along_dim(chosen[:, None, None], 1)[:, 0]
        return EncodedCells(vector, log_prob, chosen, step, candidates)

    def compose(self, level: Level) -> tuple[Tensor, Tensor | None]:
        """Parents ``(cells * candidates, hidden_size)``, and log-probabilities ``(cells * candidates,)`` or None."""
        children = self.vectors.read(torch.stack([level.left.flatten(), level.right.flatten()]))
        return self.composition(self.shared, children)

    def add_below(self, step: Tensor, level: Level) -> Tensor:
        """log p̃ of candidates from log p of their compositions, each ``(cells, candidates)``.

        The leftmost candidate's left child and the rightmost candidate's right child get no gradient, as in the
        authors' code.
        """
        ids = torch.stack([level.left, level.right])
        left, right = self.log_prob.read(ids, self.reads.get(level.cells.start))
        left = torch.cat([left[:, :1].detach(), left[:, 1:]], dim=1)
        right = torch.cat([right[:, :-1], right[:, -1:].detach()], dim=1)
        return step + left + right

    def choose(self, vectors: Tensor, candidates: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        return choose(vectors, candidates, offsets)

    def write(self, level: Level, vectors: Tensor, log_prob: Tensor | None = None) -> None:
        rows = slice(self.num_tokens + level.cells.start, self.num_tokens + level.cells.stop)  # node ids
        self.vectors.write(rows, vectors)
        if log_prob is not None:
            self.log_prob.write(rows, log_prob)
        if self.projections and rows.stop < len(self.vectors.values):  # nodes of the last level are no children
            for projections, part in zip(self.projections, self.project(vectors), strict=True):
                projections.write(rows, part)

    def project(self, vectors: Tensor) -> tuple[Tensor, ...]:
        """What else is kept of each node, such as its projection by the first layer, however often it is a child."""
        return ()

    def all_vectors(self) -> Tensor:
        """``(num_nodes, hidden_size)`` in the leaves' dtype, after every row is written."""
        return self.vectors.all()


def choose(vectors: Tensor, candidates: Tensor, offsets: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Straight-through choice among candidates.

    Args:
        vectors: ``(cells, candidates, hidden_size)``.
        candidates: ``(cells, candidates)``, log p̃ in nats.
        offsets: ``(cells, candidates)``, added to log p̃ for the choice only; None adds nothing.

    Returns:
        Vectors ``(cells, hidden_size)``, log p̃ ``(cells,)`` and chosen candidates ``(cells,)`` long.
    """
    weights, chosen = choice_weights(candidates, offsets)
    vector = (weights[..., None].to(vectors.dtype) * vectors).sum(1)
    return vector, (weights * candidates).sum(-1), chosen


def sampling_offsets(candidates: Tensor, noise: float) -> Tensor | None:
    """Noise that samples the choice, as `choose` adds it; None for no noise."""
    return gumbel_noise(candidates, noise) if noise else None


def choice_weights(candidates: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """``(cells, candidates)`` one-hot with the softmax's gradient, and ``(cells,)`` long, the chosen candidates."""
    logits = candidates if offsets is None else candidates + offsets
    chosen = logits.argmax(-1)
    soft = logits.softmax(-1)
    return F.one_hot(chosen, candidates.shape[1]) + (soft - soft.detach()), chosen  # exactly one-hot


def gumbel_noise(like: Tensor, scale: float) -> Tensor:
    """Independent samples of a Gumbel distribution times ``scale``, in the shape of ``like``, float32 or wider.

    Added to log-probabilities, they turn the choice of the highest into a sample (paper, Sections 2.1 and 3.1).
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    return -scale * torch.empty_like(like, dtype=dtype).exponential_().log()
