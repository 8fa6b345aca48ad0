"""The pruned chart as pure structure: cells, their candidates and children, level by level (paper, Section 2.1).

Sentences of a batch lie end to end: token ``t`` of sentence ``b`` is the *flat* position ``offsets[b] + t``, and
flat split point ``k`` lies between flat tokens ``k`` and ``k + 1``. The split point after a sentence's last token
is its end. `chart_planning` makes charts from split scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Level(NamedTuple):
    """Cells that can be composed together, since all their children lie in lower levels."""

    cells: slice  # rows of `Chart.splits`; their node ids are these plus `Chart.num_tokens`
    left: Tensor  # (cells, candidates) node ids of the left children
    right: Tensor  # (cells, candidates) node ids of the right children


@dataclass(frozen=True)
class Chart:
    """Nodes of a batch: the ``num_tokens`` leaves first, then the cells, level by level.

    Attributes:
        lengths: ``(batch,)`` long, tokens per sentence.
        offsets: ``(batch,)`` long, flat position of each sentence's first token.
        spans: ``(num_nodes, 2)`` long, first and last flat token of each node, inclusive.
        splits: ``(num_cells, window)`` long, candidate flat split points, ascending, -1 past the last one.
        left, right: ``(num_cells, window)`` long, node ids of the candidates' children, -1 past the last one.
        level_sizes: cells per level. Cells of level ``h`` have ``min(h, window)`` candidates.
        roots: ``(batch,)`` long, node id of each sentence's root.
    """

    lengths: Tensor
    offsets: Tensor
    spans: Tensor
    splits: Tensor
    left: Tensor
    right: Tensor
    level_sizes: tuple[int, ...]
    roots: Tensor

    @property
    def num_nodes(self) -> int:
        return self.spans.shape[0]

    @property
    def num_cells(self) -> int:
        return self.splits.shape[0]

    @property
    def num_tokens(self) -> int:
        return self.num_nodes - self.num_cells

    def to(self, device: torch.device) -> "Chart":
        """The chart on a device, for which the host does not wait."""
        tensors = (self.lengths, self.offsets, self.spans, self.splits, self.left, self.right)
        lengths, offsets, spans, splits, left, right, roots = to_device([*tensors, self.roots], device)
        return Chart(lengths, offsets, spans, splits, left, right, self.level_sizes, roots)

    @property
    def levels(self) -> list[Level]:
        levels, start = [], 0
        for height, size in enumerate(self.level_sizes, start=1):
            cells, candidates = slice(start, start + size), min(height, self.splits.shape[1])
            levels.append(Level(cells, self.left[cells, :candidates], self.right[cells, :candidates]))
            start += size
        return levels


def widest_neighbours(chart: Chart) -> tuple[Tensor, Tensor]:
    """The widest node that ends just before each token, and the widest that starts just after it.

    Returns:
        Two ``(num_tokens,)`` long tensors of node ids, -1 at a sentence's first and last token respectively.
    """
    start, end = chart.spans.unbind(-1)
    by_width = (end - start) * chart.num_nodes + torch.arange(chart.num_nodes, device=start.device)
    widest = torch.zeros_like(chart.spans[: chart.num_tokens, 0])
    ending = widest.scatter_reduce(0, end, by_width, "amax") % chart.num_nodes
    starting = widest.scatter_reduce(0, start, by_width, "amax") % chart.num_nodes
    before = ending.roll(1).index_fill(0, chart.offsets, -1)
    after = starting.roll(-1).index_fill(0, chart.offsets + chart.lengths - 1, -1)
    return before, after


def candidate_places(chart: Chart) -> tuple[Tensor, Tensor]:
    """Row and column in ``chart.splits`` of every candidate, ``(num_candidates,)`` long each, in order.

    They follow from the sizes of the levels, so that no device is asked.
    """
    window, device = chart.splits.shape[1], chart.splits.device
    lower = chart.level_sizes[: window - 1]  # level h has h candidates, all higher levels have the whole window
    sizes = [*enumerate(lower, start=1), (window, chart.num_cells - sum(lower))]
    start, rows, columns = 0, [], []
    for count, cells in sizes:
        rows.append(torch.arange(start, start + cells, device=device)[:, None].expand(-1, count).flatten())
        columns.append(torch.arange(count, device=device).repeat(cells))
        start += cells
    return torch.cat(rows), torch.cat(columns)


def sorted_children(chart: Chart) -> tuple[list[Tensor], list[Tensor]]:
    """The children of each level's compositions, sorted by node; one sort for the whole chart instead of one per level.

    Returns:
        For each level the node ids, ascending, and the place of each in ``torch.stack([left, right]).flatten()`` of the
        level, ascending for one node; ``(2 * compositions,)`` long each.
    """
    levels = chart.levels
    ids = [ids.flatten() for level in levels for ids in (level.left, level.right)]
    sizes = [2 * level.left.numel() for level in levels]
    counts = torch.tensor(sizes, device="cpu")
    number = torch.arange(len(levels), device="cpu").repeat_interleave(counts)
    number, start = to_device([number, (counts.cumsum(0) - counts)[number]], chart.roots.device)
    keys, order = (number * chart.num_nodes + torch.cat(ids)).sort(stable=True)
    return list((keys - number * chart.num_nodes).split(sizes)), list((order - start).split(sizes))


def planned_tree(chart: Chart) -> Tensor:
    """What `chosen_tree` returns, for the chart of `plan_tree`: every cell is in a tree and has one candidate."""
    tree = torch.full((chart.num_tokens,), -1, device=chart.roots.device)
    cells = torch.arange(chart.num_tokens, chart.num_nodes, device=tree.device)
    return tree.index_copy_(0, chart.splits[:, 0], cells)


def chosen_tree(chart: Chart, chosen: Tensor) -> Tensor:
    """The tree below each root that takes the chosen candidates: one sweep over the levels from the top down.

    Args:
        chosen: ``(num_cells,)`` long, the candidate that each cell takes.

    Returns:
        ``(num_tokens,)`` long: for each flat split point the node that splits there, -1 at sentence ends. No device is
        asked how deep the trees are.
    """
    nodes = torch.arange(chart.num_nodes, device=chosen.device)
    split, left, right = (of.gather(1, chosen[:, None])[:, 0] for of in (chart.splits, chart.left, chart.right))
    is_used = torch.zeros(chart.num_nodes + 1, dtype=torch.bool, device=chosen.device)  # the last takes what is not
    is_used.index_fill_(0, chart.roots, True)  # `[...] = True` copies a number, for which a GPU is waited for
    for level in reversed(chart.levels):
        used = is_used[chart.num_tokens : -1][level.cells]
        for child in (left, right):
            is_used.index_fill_(0, torch.where(used, child[level.cells], chart.num_nodes), True)
    place = torch.where(is_used[chart.num_tokens : -1], split, chart.num_tokens)
    tree = torch.full((chart.num_tokens + 1,), -1, device=chosen.device)
    return tree.index_put_((place,), nodes[chart.num_tokens :])[:-1]


# Charts are planned on the host, which waits for a GPU whenever it reads a number from it. So what it needs is read in
# one piece, and what it has planned is sent in one piece, which it does not wait for.


def to_host(*tensors: Tensor | None) -> list[Any]:
    """Tensors of integers or truth values as long tensors on the host, in one copy; None stays None."""
    given = [tensor for tensor in tensors if tensor is not None]
    if all(tensor.device.type == "cpu" for tensor in given):
        copied = [tensor.long() for tensor in given]
    else:
        copied = _cut(torch.cat([tensor.flatten().long() for tensor in given]).cpu(), given)
    rest = iter(copied)
    return [None if tensor is None else next(rest) for tensor in tensors]


def to_device(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Long tensors of the host on a device, in one copy. A GPU of CUDA copies while the host goes on; others might read
    what is freed by then."""
    if device.type == "cpu":
        return list(tensors)
    is_pinned = device.type == "cuda"
    count = sum(tensor.numel() for tensor in tensors)
    packed = torch.empty(count, dtype=torch.long, device="cpu", pin_memory=is_pinned)
    torch.cat([tensor.flatten() for tensor in tensors], out=packed)
    return _cut(packed.to(device, non_blocking=is_pinned), tensors)


def _cut(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    parts = packed.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
