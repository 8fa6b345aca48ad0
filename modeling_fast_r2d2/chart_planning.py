"""Split scores to charts: which cells are left, and the level of each (paper, Section 3.1).

Merging in ascending order of score with window ``m`` looks sequential, but leaves cells with a closed form:
``(i, j)`` is a cell iff it has at most ``m`` inner split points, or both its boundaries rank above its
``(m+1)``-th highest inner split point. Its candidates are its ``m`` highest inner split points. Hence the cells
whose ``(m+1)``-th highest inner split point is ``p`` are known from the ``m + 1`` nearest greater ranks on
either side of ``p``. A sentence's end ranks above everything, so that nothing ever reaches across sentences.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart


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
    order = F.pad(split_scores, pad)[is_token].sort(stable=True).indices
    if nesting is not None:
        flat_nesting = F.pad(nesting, pad)[is_token]
        order = order[flat_nesting[order].sort(stable=True, descending=True).indices]
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    return ranks.masked_fill(is_end, len(order))


def nearest_greater(ranks: Tensor, lengths: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` nearest split points of greater rank on either side, each ``(count, num_tokens)`` long.

    Position -1 is the end of a sentence that precedes the first. A search that has met a sentence end stays there.
    """
    fenced = F.pad(ranks, (1, 0), value=len(ranks))
    reach = int(lengths.max())
    left = _previous_greater(fenced, count, reach)[:, 1:] - 1
    right = len(ranks) - 1 - _previous_greater(fenced.flip(0), count, reach).flip(1)[:, 1:]
    return left, right


def plan_chart(ranks: Tensor, lengths: Tensor, window_size: int, reachable_only: bool = False) -> Chart:
    """The chart that is left when spans merge in the order of ``ranks`` (paper, Section 3.1).

    Args:
        ranks: ``(num_tokens,)`` long, from `merge_ranks`.
        lengths: ``(batch,)`` long, tokens per sentence.
        window_size: the paper's ``m``, at least 1: how many candidates a cell may have.
        reachable_only: drop the cells that no tree from the root uses, about a quarter of them. Language-model
            contexts need the others.

    Memory is linear in tokens times ``window_size``, but for a table of ranks of ``log(longest sentence)`` rows.
    """
    if window_size < 1:
        raise ValueError(f"window_size must be >= 1, got {window_size}")
    small_spans, small_splits = _small_cells(lengths, window_size)
    large_spans, large_splits = _large_cells(ranks, window_size, *nearest_greater(ranks, lengths, window_size + 1))
    chart = _assemble(lengths, torch.cat([small_spans, large_spans]), torch.cat([small_splits, large_splits]))
    return _drop_unreachable(chart) if reachable_only else chart


def plan_tree(ranks: Tensor, lengths: Tensor) -> Chart:
    """The parser's tree, which splits every span at its highest rank: the reachable chart of window 1.

    Arguments as for `plan_chart`. Every cell has the one candidate that names it.
    """
    splits = _is_inner(ranks).nonzero()
    return _assemble(lengths, tree_spans(ranks, lengths)[splits[:, 0]], splits)


def tree_spans(ranks: Tensor, lengths: Tensor) -> Tensor:
    """The constituent of the parser's tree that splits at each split point: it reaches to the next greater ranks.

    Returns:
        ``(num_tokens, 2)`` long, first and last flat token, -1 at sentence ends.
    """
    left, right = nearest_greater(ranks, lengths, 1)
    return torch.stack([left[0] + 1, right[0]], dim=-1).masked_fill(~_is_inner(ranks)[:, None], -1)


def _is_inner(ranks: Tensor) -> Tensor:
    return ranks < len(ranks)


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


def _large_cells(ranks: Tensor, window_size: int, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Cells of more inner split points: for each ``p``, ``a`` candidates left of it and ``window_size - a`` right.

    Args:
        left, right: ``(window_size + 1, num_tokens)`` long, of `nearest_greater`.
    """
    fenced = F.pad(_is_inner(ranks), (1, 0))  # shifted by one, for position -1
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
    """Cells ``(num_cells, 2)`` and their candidates ``(num_cells, window)`` to a chart: children, then levels."""
    offsets = lengths.cumsum(0) - lengths
    tokens = torch.arange(int(lengths.sum()), device=lengths.device)
    spans = torch.cat([tokens[:, None].expand(-1, 2), spans])
    left, right, roots = _find_children(spans, splits, torch.stack([offsets, offsets + lengths - 1], dim=-1))
    levels = _levels(left, right, spans, (splits >= 0).sum(1))
    sizes = torch.bincount(levels)[1:].tolist() if len(levels) else []
    chart = Chart(lengths, offsets, spans, splits, left, right, (), roots)
    return _take_cells(chart, levels.sort(stable=True).indices, sizes)


def _find_children(spans: Tensor, splits: Tensor, root_spans: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Node ids, by their spans, of the candidates' children, -1 past the last candidate, and of the roots."""
    num_tokens = len(spans) - len(splits)
    keys, by_key = (spans[:, 0] * num_tokens + spans[:, 1]).sort()
    start, end, is_candidate = spans[num_tokens:, :1], spans[num_tokens:, 1:], splits >= 0

    def find(first: Tensor, last: Tensor) -> Tensor:
        place = torch.searchsorted(keys, first * num_tokens + last).clamp(max=len(keys) - 1)
        return by_key[place]

    left = find(start, splits).masked_fill(~is_candidate, -1)
    right = find(splits + 1, end).masked_fill(~is_candidate, -1)
    return left, right, find(*root_spans.unbind(-1))


def _levels(left: Tensor, right: Tensor, spans: Tensor, candidates: Tensor) -> Tensor:
    """One more than the highest level among a cell's children, which its two widest children attain.

    Children are narrower than their parents, so one pass over the cells by width finds all levels. Rounds over all
    cells, one per level, would take quadratic time in a sentence whose chart is deep.

    Args:
        spans: ``(num_nodes, 2)`` long, of `Chart`.
        candidates: ``(num_cells,)`` long, the number of candidates of each cell.
    """
    num_tokens = len(spans) - len(left)
    by_width = (spans[num_tokens:, 1] - spans[num_tokens:, 0]).argsort()
    widest_left = left.gather(1, candidates[:, None] - 1)[:, 0]
    level = [0] * len(spans)
    cells = (by_width + num_tokens).tolist(), widest_left[by_width].tolist(), right[by_width, 0].tolist()
    for cell, first, second in zip(*cells, strict=True):
        level[cell] = 1 + max(level[first], level[second])
    return left.new_tensor(level[num_tokens:])


def _drop_unreachable(chart: Chart) -> Chart:
    is_used = torch.zeros(chart.num_nodes + 1, dtype=torch.bool, device=chart.roots.device)  # last: the id -1
    is_used[chart.roots] = True
    for level in reversed(chart.levels):
        parents = is_used[chart.num_tokens : -1][level.cells, None]
        is_used[torch.where(parents, level.left, -1)] = True
        is_used[torch.where(parents, level.right, -1)] = True
    kept = is_used[chart.num_tokens : -1]
    sizes = [int(of_level.sum()) for of_level in kept.split(chart.level_sizes)]
    return _take_cells(chart, kept.nonzero()[:, 0], sizes)


def _take_cells(chart: Chart, order: Tensor, level_sizes: Sequence[int]) -> Chart:
    """The chart with the cells ``order``, ``(cells,)`` long, in this order."""
    nodes = torch.cat([torch.arange(chart.num_tokens, device=order.device), order + chart.num_tokens])
    new_id = torch.full((chart.num_nodes + 1,), -1, device=nodes.device)  # the last one keeps -1 at -1
    new_id[nodes] = torch.arange(len(nodes), device=nodes.device)
    return replace(
        chart, spans=chart.spans[nodes], splits=chart.splits[order], level_sizes=tuple(level_sizes),
        left=new_id[chart.left[order]], right=new_id[chart.right[order]], roots=new_id[chart.roots],
    )  # fmt: skip
