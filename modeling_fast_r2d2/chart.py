"""The pruned chart as pure structure: split scores in, cells and levels out (paper, Sections 2.1 and 3.1).

Sentences of a batch lie end to end: token ``t`` of sentence ``b`` is the *flat* position ``offsets[b] + t``, and
flat split point ``k`` lies between flat tokens ``k`` and ``k + 1``. The split point after a sentence's last token
is its end and ranks above everything, so that nothing ever reaches across sentences.

Merging in ascending order of score with window ``m`` looks sequential, but leaves cells with a closed form:
``(i, j)`` is a cell iff it has at most ``m`` inner split points, or both its boundaries rank above its
``(m+1)``-th highest inner split point. Its candidates are its ``m`` highest inner split points. Hence the cells
whose ``(m+1)``-th highest inner split point is ``p`` are known from the ``m + 1`` nearest greater ranks on
either side of ``p``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .fused import fused_kernels


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

    @property
    def levels(self) -> list[Level]:
        levels, start = [], 0
        for height, size in enumerate(self.level_sizes, start=1):
            cells, candidates = slice(start, start + size), min(height, self.splits.shape[1])
            levels.append(Level(cells, self.left[cells, :candidates], self.right[cells, :candidates]))
            start += size
        return levels


def merge_ranks(split_scores: Tensor, lengths: Tensor, nesting: Tensor | None = None) -> Tensor:
    """Place of every split point in the merge order, lowest first; ties keep their order in the sentence.

    Working on ranks makes equal, infinite and wildly scaled scores harmless.

    Args:
        split_scores: ``(batch, seq_len - 1)`` floating point, without NaN at split points.
        lengths: ``(batch,)`` long, tokens per sentence, at least 1.
        nesting: ``(batch, seq_len - 1)`` long or None, number of span constraints around each split point. Split
            points with a higher number merge before all with a lower one, which is what lowering their scores by
            more than the range of scores does, without its rounding.

    Returns:
        ``(num_tokens,)`` long, flat; the split point after a sentence's last token has the value ``num_tokens``.
    """
    position = torch.arange(split_scores.shape[1] + 1, device=split_scores.device)
    is_token = position < lengths[:, None]
    is_end = (position == lengths[:, None] - 1)[is_token]
    pad = (0, 1)
    order = torch.nn.functional.pad(split_scores, pad)[is_token].sort(stable=True).indices
    if nesting is not None:
        flat_nesting = torch.nn.functional.pad(nesting, pad)[is_token]
        order = order[flat_nesting[order].sort(stable=True, descending=True).indices]
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return ranks.masked_fill(is_end, len(order))


def plan_chart(
    ranks: Tensor, lengths: Tensor, window_size: int, reachable_only: bool = False, kernels: str = "torch"
) -> Chart:
    """The chart that is left when spans merge in the order of ``ranks`` (paper, Section 3.1).

    Args:
        ranks: ``(num_tokens,)`` long, from `merge_ranks`.
        lengths: ``(batch,)`` long, tokens per sentence.
        window_size: the paper's ``m``, at least 1: how many candidates a cell may have.
        reachable_only: drop the cells that no tree from the root uses, about a quarter of them. Language-model
            contexts need the others.
        kernels: ``config.composition_kernels``, for the search of greater ranks.

    Memory is linear in tokens times ``window_size``, but for a table of ranks of ``log(longest sentence)`` rows.
    """
    if window_size < 1:
        raise ValueError(f"window_size must be >= 1, got {window_size}")
    small, large = _small_cells(lengths, window_size), _large_cells(ranks, lengths, window_size, kernels)
    chart = _assemble(lengths, torch.cat([small[0], large[0]]), torch.cat([small[1], large[1]]))
    return _drop_unreachable(chart) if reachable_only else chart


def plan_tree(ranks: Tensor, lengths: Tensor, kernels: str = "torch") -> Chart:
    """The parser's tree, which splits every span at its highest rank: the reachable chart of window 1.

    Arguments as for `plan_chart`. Every cell has the one candidate that names it.
    """
    splits = _is_inner(ranks).nonzero()
    return _assemble(lengths, tree_spans(ranks, lengths, kernels)[splits[:, 0]], splits)


def tree_spans(ranks: Tensor, lengths: Tensor, kernels: str = "torch") -> Tensor:
    """The constituent of the parser's tree that splits at each split point: it reaches to the next greater ranks.

    Returns:
        ``(num_tokens, 2)`` long, first and last flat token, -1 at sentence ends.
    """
    left, right = _nearest_greater(ranks, lengths, 1, kernels)
    return torch.stack([left[0] + 1, right[0]], dim=-1).masked_fill(~_is_inner(ranks)[:, None], -1)


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


def crossing_candidates(chart: Chart, nesting: Tensor) -> Tensor:
    """Candidates that cut into a span constraint although their cell has one that does not.

    Args:
        nesting: ``(num_tokens,)`` long, flat, number of span constraints around each split point.

    Returns:
        ``(num_cells, window)`` bool. Constrained split points merge first, so a cell that reaches beyond a constraint
        always has a candidate outside it; without the crossing ones, its trees keep every constraint whole.
    """
    is_candidate = chart.splits >= 0
    depth = nesting[chart.splits.clamp(min=0)].masked_fill(~is_candidate, torch.iinfo(torch.long).max)
    return is_candidate & (depth > depth.amin(1, keepdim=True))


def follow(chart: Chart, choose: Callable[[Tensor], Tensor], num_trees: int = 1) -> Tensor:
    """Walk down from the roots, taking one candidate of every cell on the way: the paper's Algorithm 2.

    Args:
        choose: takes ``(cells,)`` long, rows of ``chart.splits`` (one may occur once for each tree), and returns
            ``(cells,)`` long, the candidate that each takes.
        num_trees: trees per sentence, all walked at once.

    Returns:
        ``(num_trees, num_tokens)`` long: for each flat split point the node that splits there, -1 at sentence ends.
    """
    device = chart.roots.device
    nodes = chart.roots.repeat(num_trees)
    trees = torch.arange(num_trees, device=device).repeat_interleave(len(chart.roots))
    result = torch.full((num_trees, chart.num_tokens), -1, device=device)
    while True:
        is_cell = nodes >= chart.num_tokens
        nodes, trees = nodes[is_cell], trees[is_cell]
        if not len(nodes):
            return result
        cells = nodes - chart.num_tokens
        choice = choose(cells)
        result[trees, chart.splits[cells, choice]] = nodes
        nodes = torch.cat([chart.left[cells, choice], chart.right[cells, choice]])
        trees = trees.repeat(2)


def best_tree(chart: Chart, chosen: Tensor) -> Tensor:
    """The tree below each root that takes the chosen candidates: one sweep over the levels from the top down.

    Args:
        chosen: ``(num_cells,)`` long, the candidate that each cell takes.

    Returns:
        ``(num_tokens,)`` long, as a row of what `follow` returns, but without asking a device how deep the trees are.
    """
    nodes = torch.arange(chart.num_nodes, device=chosen.device)
    split, left, right = (of.gather(1, chosen[:, None])[:, 0] for of in (chart.splits, chart.left, chart.right))
    is_used = torch.zeros(chart.num_nodes + 1, dtype=torch.bool, device=chosen.device)  # the last takes what is not
    is_used[chart.roots] = True
    for level in reversed(chart.levels):
        used = is_used[chart.num_tokens : -1][level.cells]
        for child in (left, right):
            is_used[torch.where(used, child[level.cells], chart.num_nodes)] = True
    place = torch.where(is_used[chart.num_tokens : -1], split, chart.num_tokens)
    tree = torch.full((chart.num_tokens + 1,), -1, device=chosen.device)
    return tree.index_put_((place,), nodes[chart.num_tokens :])[:-1]


def _is_inner(ranks: Tensor) -> Tensor:
    return ranks < len(ranks)


def _nearest_greater(ranks: Tensor, lengths: Tensor, count: int, kernels: str = "torch") -> tuple[Tensor, Tensor]:
    """The ``count`` nearest split points of greater rank on either side, each ``(count, num_tokens)``.

    Position -1 is the end of a sentence that precedes the first. A search that has met a sentence end stays there.
    """
    fused = fused_kernels(kernels, ranks)
    if fused is not None:
        return fused.nearest_greater(ranks, count)
    fenced = torch.nn.functional.pad(ranks, (1, 0), value=len(ranks))
    reach = int(lengths.max())
    left = _previous_greater(fenced, count, reach)[:, 1:] - 1
    right = len(ranks) - 1 - _previous_greater(fenced.flip(0), count, reach).flip(1)[:, 1:]
    return left, right


def _previous_greater(ranks: Tensor, count: int, reach: int) -> Tensor:
    """Binary descent over a table of block maxima; ``ranks[0]`` must be a sentence end."""
    end = ranks.max()
    block_max = [ranks]  # block_max[h][q] is the greatest rank in (q - 2**h, q]
    while 1 << len(block_max) <= reach:
        half, shift = block_max[-1], 1 << (len(block_max) - 1)
        block_max.append(torch.maximum(half, torch.cat([end.expand(shift), half])[: len(ranks)]))
    position, found = torch.arange(len(ranks), device=ranks.device), []
    for _ in range(count):
        position = position - (ranks[position] < end).long()
        for height in range(len(block_max) - 1, -1, -1):
            skips = (block_max[height][position] <= ranks) & (ranks < end)
            position = torch.where(skips, position - (1 << height), position)
        found.append(position)
    return torch.stack(found)


def _small_cells(lengths: Tensor, window_size: int) -> tuple[Tensor, Tensor]:
    """Cells of 1 to ``window_size`` inner split points, all of which are candidates."""
    last_token = (lengths.cumsum(0) - 1).repeat_interleave(lengths)
    tokens = torch.arange(len(last_token), device=lengths.device)
    offsets = torch.arange(window_size, device=lengths.device)
    spans, splits = [], []
    for width in range(1, window_size + 1):
        start = (tokens + width <= last_token).nonzero()
        spans.append(torch.cat([start, start + width], dim=1))
        splits.append((start + offsets).masked_fill(offsets >= width, -1))
    return torch.cat(spans), torch.cat(splits)


def _large_cells(ranks: Tensor, lengths: Tensor, window_size: int, kernels: str) -> tuple[Tensor, Tensor]:
    """Cells of more inner split points: for each ``p``, ``a`` candidates left of it and ``window_size - a`` right."""
    left, right = _nearest_greater(ranks, lengths, window_size + 1, kernels)
    fenced = torch.nn.functional.pad(_is_inner(ranks), (1, 0))  # shifted by one, for position -1
    left_inner, right_inner = fenced[left[:-1] + 1], fenced[right[:-1] + 1]
    yes = torch.ones_like(_is_inner(ranks))[None]
    enough_left = torch.cat([yes, left_inner])  # (a, p): the a-th greater neighbour is a split point of the sentence
    enough_right = torch.cat([yes, right_inner]).flip(0)
    exists = enough_left & enough_right & _is_inner(ranks)
    spans = torch.stack([left + 1, right.flip(0)], dim=-1)
    ascending = torch.cat([left[:-1].flip(0), right[:-1]])  # (2 * window_size, p)
    splits = ascending.unfold(0, window_size, 1).flip(0)  # (a, p, window_size)
    return spans[exists], splits[exists]


def _assemble(lengths: Tensor, spans: Tensor, splits: Tensor) -> Chart:
    """Find the children of every candidate, then sort the cells by level."""
    offsets = lengths.cumsum(0) - lengths
    tokens = torch.arange(int(lengths.sum()), device=lengths.device)
    spans = torch.cat([tokens[:, None].expand(-1, 2), spans])
    num_tokens = len(tokens)
    keys, by_key = (spans[:, 0] * num_tokens + spans[:, 1]).sort()
    start, end, is_candidate = spans[num_tokens:, :1], spans[num_tokens:, 1:], splits >= 0

    def find(first: Tensor, last: Tensor) -> Tensor:
        place = torch.searchsorted(keys, (first * num_tokens + last)).clamp(max=len(keys) - 1)
        return by_key[place]

    left = find(start, splits).masked_fill(~is_candidate, -1)
    right = find(splits + 1, end).masked_fill(~is_candidate, -1)
    roots = find(offsets, offsets + lengths - 1)
    levels = _levels(left, right, is_candidate.sum(1), num_tokens)
    order = levels.sort(stable=True).indices  # of the cells
    nodes = torch.cat([tokens, order + num_tokens])
    new_id = torch.cat(
        [
            torch.empty_like(nodes).scatter_(0, nodes, torch.arange(len(nodes), device=nodes.device)),
            nodes.new_tensor([-1]),
        ]
    )  # the last one keeps -1 at -1
    sizes = torch.bincount(levels)[1:].tolist() if len(levels) else []
    return Chart(
        lengths,
        offsets,
        spans[nodes],
        splits[order],
        new_id[left[order]],
        new_id[right[order]],
        tuple(sizes),
        new_id[roots],
    )


def _levels(left: Tensor, right: Tensor, candidates: Tensor, num_tokens: int) -> Tensor:
    """One more than the highest level among a cell's children, which its two widest children attain.

    Each round settles one more level, and further rounds change nothing; asking after each whether that was the last
    would make a GPU wait every time.
    """
    widest = torch.stack([left.gather(1, candidates[:, None] - 1)[:, 0], right[:, 0]])
    level = left.new_zeros(num_tokens + len(left))
    while True:
        for _ in range(8):
            before = level[num_tokens:].clone()
            level[num_tokens:] = level[widest].amax(0) + 1
        if torch.equal(before, level[num_tokens:]):
            return before


def _drop_unreachable(chart: Chart) -> Chart:
    is_used = torch.zeros(chart.num_nodes + 1, dtype=torch.bool, device=chart.roots.device)  # last: the id -1
    is_used[: chart.num_tokens] = True
    is_used[chart.roots] = True
    for level in reversed(chart.levels):
        parents = is_used[chart.num_tokens : -1][level.cells, None]
        is_used[torch.where(parents, level.left, -1)] = True
        is_used[torch.where(parents, level.right, -1)] = True
    is_used[-1] = False
    new_id = is_used.cumsum(0) - 1
    new_id[-1] = -1
    kept = is_used[chart.num_tokens : -1]
    height = torch.arange(len(chart.level_sizes), device=kept.device)
    height = height.repeat_interleave(torch.tensor(chart.level_sizes, dtype=torch.long, device=kept.device))
    sizes = torch.bincount(height[kept], minlength=len(chart.level_sizes)).tolist()
    return Chart(
        chart.lengths,
        chart.offsets,
        chart.spans[is_used[:-1]],
        chart.splits[kept],
        new_id[chart.left[kept]],
        new_id[chart.right[kept]],
        tuple(sizes),
        new_id[chart.roots],
    )
