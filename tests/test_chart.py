"""The closed form of the chart against a step-by-step simulation of merging."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from modeling_fast_r2d2.chart import chosen_tree, planned_tree, sorted_children, to_device, widest_neighbours
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart, plan_tree
from walking import follow

# Few distinct values, so that ties are the rule; infinities must do no harm.
score = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0, float("inf"), float("-inf")])
a_batch = st.lists(st.lists(score, max_size=14), min_size=1, max_size=4)


def simulate(scores: list[float], window: int) -> dict[tuple[int, int], tuple[list[int], int]]:
    """Merge one span after the other and encode what becomes free to: {(i, j): (candidates, level)}.

    A row of units shrinks by one at each merge. All cells of up to ``window + 1`` units are in the chart, with the
    boundaries between their units as candidates, as they were when the cell came to be.
    """
    units = [(t, t) for t in range(len(scores) + 1)]
    order = sorted(range(len(scores)), key=lambda k: (scores[k], k))
    cells, level = {}, {unit: 0 for unit in units}

    def encode_new_cells():
        for width in range(2, window + 2):
            for first in range(len(units) - width + 1):
                run = units[first : first + width]
                cell = (run[0][0], run[-1][1])
                if cell in level:
                    continue
                splits = [unit[1] for unit in run[:-1]]
                children = [side for k in splits for side in ((cell[0], k), (k + 1, cell[1]))]
                level[cell] = 1 + max(level[child] for child in children)
                cells[cell] = (splits, level[cell])

    encode_new_cells()
    for split in order:
        at = next(index for index, unit in enumerate(units) if unit[1] == split)
        units[at : at + 2] = [(units[at][0], units[at + 1][1])]
        encode_new_cells()
    return cells


def planned_cells(chart, sentence):
    """The same dictionary, read off a chart; also checks every child pointer."""
    offset, length = int(chart.offsets[sentence]), int(chart.lengths[sentence])
    spans, cells, row = chart.spans.tolist(), {}, 0
    for height, level in enumerate(chart.levels, start=1):
        for left, right in zip(level.left.tolist(), level.right.tolist(), strict=True):
            i, j = spans[chart.num_tokens + row]
            splits = [k for k in chart.splits[row].tolist() if k >= 0]
            assert len(splits) == min(height, chart.splits.shape[1])
            for k, a, b in zip(splits, left, right, strict=True):
                assert spans[a] == [i, k] and spans[b] == [k + 1, j]
                assert max(a, b) < chart.num_tokens + level.cells.start
            if offset <= i < offset + length:
                cells[i - offset, j - offset] = ([k - offset for k in splits], height)
            row += 1
    return cells


def padded(sentences: list[list[float]], fill: float = 9.0):
    lengths = torch.tensor([len(scores) + 1 for scores in sentences])
    width = int(lengths.max()) - 1
    rows = [scores + [fill] * (width - len(scores)) for scores in sentences]
    return torch.tensor(rows).reshape(len(sentences), width), lengths


@settings(max_examples=200)
@given(sentences=a_batch, window=st.integers(1, 6), fill=st.sampled_from([9.0, float("-inf"), float("nan")]))
def test_cells_candidates_and_levels_are_those_of_merging_step_by_step(sentences, window, fill):
    """Whatever scores the padding has."""
    scores, lengths = padded(sentences, fill)
    chart = plan_chart(merge_ranks(scores, lengths), lengths, window)
    for sentence, sentence_scores in enumerate(sentences):
        assert planned_cells(chart, sentence) == simulate(sentence_scores, window)


@given(sentences=a_batch, window=st.integers(1, 6))
def test_reachable_chart_holds_exactly_what_the_roots_use(sentences, window):
    scores, lengths = padded(sentences)
    ranks = merge_ranks(scores, lengths)
    chart = plan_chart(ranks, lengths, window, reachable_only=True)
    for sentence, sentence_scores in enumerate(sentences):
        cells = simulate(sentence_scores, window)
        queue, used = [(0, len(sentence_scores))], {}
        while queue:
            i, j = queue.pop()
            if i < j and (i, j) not in used:
                used[i, j] = cells[i, j]
                queue += [side for k in cells[i, j][0] for side in ((i, k), (k + 1, j))]
        assert planned_cells(chart, sentence) == used


@given(sentences=a_batch)
def test_tree_is_the_reachable_chart_of_window_one(sentences):
    scores, lengths = padded(sentences)
    ranks = merge_ranks(scores, lengths)
    tree, chart = plan_tree(ranks, lengths), plan_chart(ranks, lengths, 1, reachable_only=True)
    assert planned_tree(tree).equal(chosen_tree(tree, torch.zeros_like(tree.splits[:, 0])))
    assert tree.level_sizes == chart.level_sizes
    for sentence in range(len(sentences)):
        assert planned_cells(tree, sentence) == planned_cells(chart, sentence)


@given(sentences=a_batch, window=st.integers(1, 5))
def test_contexts_are_the_widest_nodes_beside_a_token(sentences, window):
    scores, lengths = padded(sentences)
    chart = plan_chart(merge_ranks(scores, lengths), lengths, window)
    before, after = widest_neighbours(chart)
    spans = chart.spans.tolist() + [None]
    for sentence, sentence_scores in enumerate(sentences):
        n, offset = len(sentence_scores) + 1, int(chart.offsets[sentence])
        nodes = [(t, t) for t in range(n)] + list(simulate(sentence_scores, window))
        for t in range(n):
            left = min((i for i, j in nodes if j == t - 1), default=None)
            right = max((j for i, j in nodes if i == t + 1), default=None)
            expected_left = None if left is None else [offset + left, offset + t - 1]
            expected_right = None if right is None else [offset + t + 1, offset + right]
            assert spans[before[offset + t]] == expected_left
            assert spans[after[offset + t]] == expected_right


def test_nesting_puts_constrained_splits_first_and_keeps_their_order():
    scores = torch.tensor([[3.0, float("inf"), -1.0, 2.0]])
    ranks = merge_ranks(scores, torch.tensor([5]), nesting=torch.tensor([[0, 1, 0, 2]]))
    assert ranks.argsort().tolist() == [3, 1, 2, 0, 4]


def test_window_below_one_is_refused():
    with pytest.raises(ValueError, match="window_size must be >= 1, got 0"):
        plan_chart(torch.tensor([0, 2]), torch.tensor([2]), 0)


class OperationCounter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


def test_planning_a_deep_chart_takes_no_more_operations_than_a_flat_one():
    """Otherwise a long line whose chart is deep takes quadratic time: every operation is on all cells."""
    lengths, depths, counts = torch.tensor([2000]), [], []
    for scores in (torch.randn(1, 1999, generator=torch.Generator().manual_seed(0)), -torch.arange(1999.0)[None]):
        ranks = merge_ranks(scores, lengths)
        with OperationCounter() as operations:
            chart = plan_chart(ranks, lengths, 4)
        depths.append(len(chart.level_sizes))
        counts.append(operations.count)
    assert depths[0] < 100 and depths[1] == 1999 and counts[0] == counts[1]


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), window=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_chosen_tree_is_what_following_the_choices_finds(lengths, window, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    ranks = merge_ranks(torch.randn(len(lengths), int(lengths.max()) - 1, generator=generator), lengths)
    for chart in (plan_chart(ranks, lengths, window), plan_chart(ranks, lengths, window, True)):
        chosen = (torch.rand(chart.num_cells, generator=generator) * (chart.splits >= 0).sum(1)).long()
        assert chosen_tree(chart, chosen).equal(follow(chart, lambda cells, chosen=chosen: chosen[cells])[0])


@given(st.lists(st.integers(2, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 99))
def test_one_sort_of_all_children_is_a_stable_sort_of_each_level(lengths, window, seed):
    lengths = torch.tensor(lengths)
    scores = torch.rand(len(lengths), int(lengths.max()) - 1, generator=torch.Generator().manual_seed(seed))
    chart = plan_chart(merge_ranks(scores, lengths), lengths, window)
    for level, nodes, order in zip(chart.levels, *sorted_children(chart), strict=True):
        expected = torch.stack([level.left, level.right]).flatten().sort(stable=True)
        assert nodes.equal(expected.values) and order.equal(expected.indices)


@pytest.mark.parametrize(("device", "may_go_on"), [("cuda", True), ("mps", False), ("xpu", False)])
def test_the_host_goes_on_only_where_the_copied_memory_is_pinned(device, may_go_on, monkeypatch):
    """Of other memory, which is freed at once, a GPU would read whatever comes after it (pytorch/pytorch#189690)."""
    seen, empty = {}, torch.empty

    def made(*size, pin_memory, **options):
        seen["pin"] = pin_memory
        return empty(*size, **options)

    def copied(tensor, device, non_blocking):
        seen["goes_on"] = non_blocking
        return tensor

    monkeypatch.setattr(torch, "empty", made)
    monkeypatch.setattr(torch.Tensor, "to", copied)
    to_device([torch.arange(3)], torch.device(device))
    assert seen == {"pin": may_go_on, "goes_on": may_go_on}
