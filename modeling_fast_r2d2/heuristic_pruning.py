"""R2D2's own pruning, the baseline (paper, Section 2.1): merge the likeliest pair of the best subtrees.

Each merge depends on the probabilities of the cells before it, so structure and vectors advance together, one merge of
every sentence at a time. A sentence is a row of *units*, at first its tokens. A merge joins two neighbouring units into
one that is not split again. The table holds the nodes over 1 to ``window_size + 1`` neighbouring units.

An example of five tokens, ``a b c d e``, and window 2. The units are the tokens, and the table begins with all nodes
over 1, 2 and 3 units::

    abc  bcd  cde
    ab   bc   cd   de
    a    b    c    d    e

Every node of the top row has a best tree. Of all pairs of units in these trees, say that ``bc`` is the likeliest. Then
``b`` and ``c`` become one unit: nodes that hold both stay, nodes that hold only one of them go, and the nodes that the
top row lacks are encoded::

    abcd  bcde        abcd = a + bcd or abc + d,  bcde = bc + de or bcd + e
    abc   bcd   de
    a     bc    d     e

Four units are more than ``window_size + 1``, so one more merge follows; then the rest of the table is the whole chart.

Every merge takes the larger of two probabilities. If they are equal up to rounding, the shapes of the matrix products
decide, and so do the other sentences of the batch: in float32, one of 7,000 drawn sentences had another tree in another
batch. A comparison that ignores small differences would only move the border.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart, Level, to_device
from .composition import Composition
from .encoder import EncodedChart, nodes_for


def encode_heuristic(
    lengths: Tensor, leaves: Tensor, composition: Composition, tasks: Tensor, window_size: int, choice_noise: float = 0
) -> tuple[Chart, EncodedChart]:
    """Prune and encode a batch: the chart, and its encoding as from `encoder.encode_chart`, whose arguments these are.
    ``lengths`` is on the host, where charts are pruned. Each merge makes it wait once, for the probabilities of the new
    cells."""
    table = UnitTable.of_tokens(lengths, window_size)
    longest = int(lengths.max())
    cells = GrowingCells(lengths, leaves, composition, tasks, window_size, choice_noise)
    for height in range(2, min(window_size + 1, longest) + 1):
        starts = torch.arange(table.ends.shape[1], device=lengths.device)
        cells.encode(table, height, *(starts + height <= table.counts[:, None]).nonzero(as_tuple=True))
    while (table.counts > window_size + 1).any():
        merges = _pick_merges(table, cells, window_size)
        table = table.merge(merges)
        cells.encode(table, window_size + 1, *table.missing().nonzero(as_tuple=True))
    sentences = torch.arange(len(lengths), device=lengths.device)
    return cells.finish(roots=table.nodes[sentences, table.counts - 1, 0])


@dataclass
class UnitTable:
    """The shrinking chart: ``nodes[b, h - 1, u]`` is sentence ``b``'s node over ``h`` units from unit ``u`` on.

    Attributes:
        nodes: ``(batch, window_size + 1, units)`` long, -1 where there is none.
        ends: ``(batch, units)`` long, last flat token of each unit; values past the last unit mean nothing.
        counts: ``(batch,)`` long, units left.
    """

    nodes: Tensor
    ends: Tensor
    counts: Tensor

    @classmethod
    def of_tokens(cls, lengths: Tensor, window_size: int) -> "UnitTable":
        units = torch.arange(int(lengths.max()), device=lengths.device)
        ends = (lengths.cumsum(0) - lengths)[:, None] + units
        nodes = lengths.new_full((len(lengths), window_size + 1, len(units)), -1)
        nodes[:, 0] = torch.where(units < lengths[:, None], ends, -1)
        return cls(nodes, ends, lengths)

    def merge(self, at: Tensor) -> "UnitTable":
        """Join units ``at`` and ``at + 1`` of each sentence; ``at`` is ``(batch,)`` long, -1 for no merge.

        A node that holds both units is now over one unit less. A node that holds only one of them is gone.
        """
        rows, last = self.nodes.shape[1], self.ends.shape[1] - 1
        start = torch.arange(last + 1, device=at.device)
        height = torch.arange(1, rows + 1, device=at.device)[:, None]
        split, merges = at[:, None, None], (at >= 0)[:, None, None]
        holds_both = merges & (start <= split) & (split < start + height)
        from_row = height - 1 + holds_both
        from_start = start + (merges & (start > split))
        sentences = torch.arange(len(at), device=at.device)[:, None, None]
        nodes = self.nodes[sentences, from_row.clamp(max=rows - 1), from_start.clamp(max=last)]
        counts = self.counts - (at >= 0).long()
        exists = (from_row < rows) & (start + height <= counts[:, None, None])
        ends_from = (start + (merges[:, 0] & (start >= split[:, 0]))).clamp(max=last)
        return UnitTable(nodes.masked_fill(~exists, -1), self.ends.gather(1, ends_from), counts)

    def missing(self) -> Tensor:
        """``(batch, units)`` bool: where the top row lacks a node."""
        rows, start = self.nodes.shape[1], torch.arange(self.ends.shape[1], device=self.ends.device)
        return (self.nodes[:, -1] < 0) & (start + rows <= self.counts[:, None])


class GrowingCells:
    """Cells in the order in which they are encoded. Their places, and the probabilities that decide about merges, are
    on the host."""

    def __init__(
        self,
        lengths: Tensor,
        leaves: Tensor,
        composition: Composition,
        tasks: Tensor,
        window_size: int,
        choice_noise: float,
    ):
        self.lengths, self.num_tokens, self.choice_noise = lengths, len(leaves), choice_noise
        # Room for the full chart's lower rows, then for at most `window_size + 1` new cells per merge.
        room = self.num_tokens + int((lengths * (2 * window_size + 1)).sum())
        self.vectors = nodes_for(composition, leaves, tasks, room)
        tokens = torch.arange(self.num_tokens, device=lengths.device)
        self.spans = torch.cat([tokens, tokens.new_empty(room - len(leaves))])[:, None].repeat(1, 2)
        self.splits = tokens.new_full((room, window_size), -1)
        self.left, self.right = self.splits.clone(), self.splits.clone()
        dtype = torch.promote_types(leaves.dtype, torch.float32)
        self.step_log_prob = tokens.new_full(self.splits.shape, float("-inf"), dtype=dtype)
        self.candidate_log_prob = self.step_log_prob.clone()
        self.level_sizes: list[int] = []
        # Of each level, where the vectors are.
        self._candidate_log_prob = [leaves.new_empty(0, window_size, dtype=dtype)]
        self._chosen = [torch.empty(0, dtype=torch.long, device=leaves.device)]

    @property
    def num_nodes(self) -> int:
        return self.num_tokens + sum(self.level_sizes)

    def encode(self, table: UnitTable, height: int, sentences: Tensor, starts: Tensor) -> None:
        """Encode the cells over ``height`` units from unit ``starts`` of ``sentences``; enter them in the table."""
        offsets = torch.arange(1, height, device=starts.device)
        row, start = sentences[:, None], starts[:, None]
        left = table.nodes[row, offsets - 1, start]
        right = table.nodes[row, height - offsets - 1, start + offsets]
        left_there, right_there = to_device([left, right], self._chosen[0].device)
        rows, first = slice(self.num_nodes, self.num_nodes + len(starts)), sum(self.level_sizes)
        level = Level(slice(first, first + len(starts)), left_there, right_there)
        encoded = self.vectors.encode_level(level, self.choice_noise)
        self.vectors.write(level, encoded.vectors, encoded.log_prob)
        missing = self.splits.shape[1] - left.shape[1]
        self._candidate_log_prob.append(F.pad(encoded.candidates.detach(), (0, missing), value=float("-inf")))
        self._chosen.append(encoded.chosen)
        step, candidates = torch.stack([encoded.step, encoded.candidates]).detach().cpu()
        self.spans[rows] = torch.stack([self.spans[left[:, 0], 0], self.spans[right[:, -1], 1]], dim=-1)
        for kept, values in (
            (self.splits, table.ends[row, start + offsets - 1]), (self.left, left), (self.right, right),
            (self.step_log_prob, step), (self.candidate_log_prob, candidates),
        ):  # fmt: skip
            kept[rows, : height - 1] = values
        table.nodes[sentences, height - 1, starts] = torch.arange(rows.start, rows.stop, device=starts.device)
        self.level_sizes.append(len(starts))

    def finish(self, roots: Tensor) -> tuple[Chart, EncodedChart]:
        """The chart of all cells so far, and their encoding."""
        nodes, cells = slice(self.num_nodes), slice(self.num_tokens, self.num_nodes)
        offsets, level_sizes = self.lengths.cumsum(0) - self.lengths, tuple(self.level_sizes)
        of_cells = self.splits[cells], self.left[cells], self.right[cells]
        chart = Chart(self.lengths, offsets, self.spans[nodes], *of_cells, level_sizes, roots)
        vectors, log_prob = self.vectors.all_vectors()[nodes], self.vectors.log_prob.all()[nodes]
        encoded = EncodedChart(vectors, log_prob, torch.cat(self._candidate_log_prob), torch.cat(self._chosen))
        return chart.to(vectors.device), encoded


def _pick_merges(table: UnitTable, cells: GrowingCells, window_size: int) -> Tensor:
    """Steps 1 and 2 of the heuristic: the likeliest two-unit cell in any best tree of the table's top row.

    Returns:
        ``(batch,)`` long, the first of the two units; -1 where the root is encoded already.
    """
    top = table.nodes[:, window_size]
    in_subtree = torch.zeros_like(table.nodes, dtype=torch.bool)
    in_subtree[:, window_size] = top >= 0
    split_at = _unit_splits(table, cells)
    for height in range(window_size + 1, 2, -1):
        sentence, start = in_subtree[:, height - 1].nonzero(as_tuple=True)
        node = table.nodes[sentence, height - 1, start]
        candidate = cells.candidate_log_prob[node].masked_fill(split_at[node] < 0, float("-inf")).argmax(1)
        end = split_at[node, candidate]  # the left child's last unit
        in_subtree[sentence, end - start, start] = True
        in_subtree[sentence, height - 2 - end + start, end + 1] = True
    pairs = table.nodes[:, 1]
    step = cells.step_log_prob[pairs].masked_fill(split_at[pairs] < 0, float("-inf")).amax(-1)
    best = step.masked_fill(~in_subtree[:, 1], float("-inf")).argmax(1)
    return torch.where(table.counts > window_size + 1, best, -1)


def _unit_splits(table: UnitTable, cells: GrowingCells) -> Tensor:
    """For each candidate, ``(num_nodes, window_size)``, the unit that ends at its split point; -1 where none does.

    A candidate inside a unit would break a non-splittable span.
    """
    is_unit = torch.arange(table.ends.shape[1], device=table.ends.device) < table.counts[:, None]
    unit_of_end = table.ends.new_full((cells.num_tokens + 1,), -1)  # the last: no candidate, -1
    unit_of_end[table.ends[is_unit]] = is_unit.nonzero()[:, 1]
    return unit_of_end[cells.splits]
