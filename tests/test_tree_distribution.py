"""What is asked of all trees of a chart, against enumeration of every tree."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_fast_r2d2.chart import chosen_tree
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart
from modeling_fast_r2d2.tree_distribution import TreeDistribution
from walking import counts_of, follow

CHARTS = {
    "lengths": st.lists(st.integers(1, 7), min_size=1, max_size=3), "window": st.integers(1, 4),
    "seed": st.integers(0, 99),
}  # fmt: skip


def draw(lengths: list[int], window: int, seed: int, forbid: bool = False):
    """A distribution by drawn log p̃ with a gradient, these, and drawn split scores of a parser."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    random = torch.randn(len(lengths), int(lengths.max()) - 1, generator=generator)
    chart = plan_chart(merge_ranks(random, lengths), lengths, window)
    drawn = torch.randn(chart.splits.shape, generator=generator, dtype=torch.float64, requires_grad=True)
    is_forbidden = (torch.rand(drawn.shape, generator=generator) < 0.3) & (torch.arange(window) > 0) & forbid
    scores = torch.randn(chart.num_tokens, generator=generator, dtype=torch.float64, requires_grad=True)
    logits = (2 * drawn).masked_fill((chart.splits < 0) | is_forbidden, float("-inf"))
    return TreeDistribution(chart, logits), drawn, scores


def all_trees(trees, root, probabilities=None):
    """Every tree below a node: (probability, {cell: candidate})."""
    chart, probabilities = trees.chart, trees.probabilities if probabilities is None else probabilities
    if root < chart.num_tokens:
        return [(1.0, {})]
    row, found = root - chart.num_tokens, []
    for c, split in enumerate(chart.splits[row].tolist()):
        if split >= 0 and probabilities[row, c] > 0:
            for p, left in all_trees(trees, int(chart.left[row, c]), probabilities):
                for q, right in all_trees(trees, int(chart.right[row, c]), probabilities):
                    found.append((p * q * probabilities[row, c], {row: c} | left | right))
    return found


def trees_by_sentence(trees, probabilities=None):
    return [all_trees(trees, root, probabilities) for root in trees.chart.roots.tolist()]


def parser_log_prob(chart, scores, tree):
    total = 0.0
    for row, candidate in tree.items():
        i, j = chart.spans[chart.num_tokens + row].tolist()
        total = total + scores[chart.splits[row, candidate]] - scores[i:j].logsumexp(0)
    return total


def assert_same_gradient(ours, twin, leaf):
    torch.testing.assert_close(ours, twin)
    sums = (value.sum() + 0 * leaf.sum() for value in (ours, twin))
    torch.testing.assert_close(*(torch.autograd.grad(value, leaf, retain_graph=True) for value in sums))


@settings(max_examples=40)
@given(**CHARTS, forbid=st.booleans())
def test_counts_marginals_and_the_exact_loss_are_those_of_all_trees(lengths, window, seed, forbid):
    trees, _, scores = draw(lengths, window, seed, forbid)
    counts, loss = torch.zeros_like(trees.probabilities), scores.sum() * 0
    for length, sentence in zip(lengths, trees_by_sentence(trees), strict=True):
        for p, tree in sentence:
            loss = loss - p * parser_log_prob(trees.chart, scores, tree) / length / len(lengths)
            for row, candidate in tree.items():
                counts[row, candidate] += p
    torch.testing.assert_close(trees.expected_counts(), counts)
    torch.testing.assert_close(trees.marginals(), counts.sum(1))
    assert_same_gradient(trees.tree_loss(scores), loss, scores)


@settings(max_examples=40)
@given(**CHARTS, forbid=st.booleans())
def test_entropy_is_that_of_all_trees(lengths, window, seed, forbid):
    trees, drawn, _ = draw(lengths, window, seed, forbid)
    twin = []
    for sentence in trees_by_sentence(trees, trees.candidate_log_prob.softmax(-1)):
        twin.append(sum((-p * p.log() for p, tree in sentence if tree), torch.zeros((), dtype=torch.float64)))
    assert_same_gradient(trees.entropy(), torch.stack(twin), drawn)


@settings(max_examples=40)
@given(**CHARTS)
def test_the_best_tree_has_the_highest_log_prob_of_all(lengths, window, seed):
    """Candidates that add up: log p of a composition and the best log p̃ of both children."""
    trees, drawn, _ = draw(lengths, window, seed)
    chart, step, best = trees.chart, -drawn.detach().exp(), torch.zeros(trees.chart.num_nodes, dtype=torch.float64)
    candidates = torch.full(chart.splits.shape, float("-inf"), dtype=torch.float64)
    for level in chart.levels:
        columns = slice(level.left.shape[1])
        candidates[level.cells, columns] = step[level.cells, columns] + best[level.left] + best[level.right]
        best[chart.num_tokens :][level.cells] = candidates[level.cells].amax(1)
    tree = chosen_tree(chart, chosen := TreeDistribution(chart, candidates).best())
    for root, offset, n in zip(chart.roots.tolist(), chart.offsets.tolist(), lengths, strict=True):
        cells = tree[offset : offset + n - 1] - chart.num_tokens
        ours = float(step[cells, chosen[cells]].sum())
        everything = all_trees(trees, root)
        highest = max(sum(float(step[cell]) for cell in other.items()) for _, other in everything)
        assert ours == pytest.approx(highest) and {*cells.tolist()} in [other.keys() for _, other in everything]


@settings(max_examples=60)
@given(**CHARTS, with_parser=st.booleans())
def test_the_tree_of_minimum_risk_shares_most_with_all_trees(lengths, window, seed, with_parser):
    trees, _, scores = draw(lengths, window, seed, forbid=True)
    chart = trees.chart
    others = [TreeDistribution.of_parser(chart, scores)] if with_parser else []
    ours = chosen_tree(chart, trees.minimum_risk(*others))
    own, of_all = trees_by_sentence(trees), [trees_by_sentence(each) for each in (trees, *others)]
    for row, (offset, n) in enumerate(zip(chart.offsets.tolist(), lengths, strict=True)):
        drawn = [pair for sentences in of_all for pair in sentences[row]]
        shared = lambda these: float(sum(p * len(these & tree.keys()) for p, tree in drawn))  # noqa: E731, B023
        expected = {frozenset(tree): shared(tree.keys()) for _, tree in own[row]}
        tree = frozenset((ours[offset : offset + n - 1] - chart.num_tokens).tolist())
        assert expected[tree] == pytest.approx(max(expected.values()), rel=1e-9)  # and it is a tree of the chart


@given(**CHARTS)
def test_the_parsers_trees_of_a_chart_have_its_probabilities_among_them(lengths, window, seed):
    trees, _, scores = draw(lengths, window, seed)
    scores = scores.detach()
    for sentence in trees_by_sentence(TreeDistribution.of_parser(trees.chart, scores)):
        for p, tree in sentence:
            of_cells = [trees.chart.splits[row] for row in tree]
            shares = [scores[splits[splits >= 0]].softmax(0) for splits in of_cells]
            expected = torch.stack([torch.ones((), dtype=torch.float64)] + [
                share[candidate] for share, candidate in zip(shares, tree.values(), strict=True)
            ]).prod()  # fmt: skip
            assert float(p) == pytest.approx(float(expected))


@given(**CHARTS)
def test_a_bonus_raises_the_candidates_that_split_there(lengths, window, seed):
    trees, _, bonus = draw(lengths, window, seed)
    raised = trees.add_bonus(bonus).candidate_log_prob
    for row, splits in enumerate(trees.chart.splits.tolist()):
        for column, split in enumerate(splits):
            more = bonus[split] if split >= 0 else 0
            assert raised[row, column] == trees.candidate_log_prob[row, column] + more


def test_counts_of_samples_are_distributed_as_those_of_trees():
    """Means and covariances of the counts, against trees walked one by one; none of a forbidden candidate."""
    trees, _, _ = draw([5, 4], 4, seed=2, forbid=True)
    chart, generator = trees.chart, torch.Generator().manual_seed(0)
    choose = lambda cells: torch.multinomial(trees.probabilities[cells], 1, generator=generator)[:, 0]  # noqa: E731
    walked = torch.stack([3 * counts_of(chart, walk) for walk in follow(chart, choose, 3 * 3000).split(3)]).flatten(1)
    drawn = torch.stack([trees.sample(3, generator) for _ in range(3000)]).flatten(1)
    assert drawn.frac().eq(0).all() and drawn.sum(1).eq(3 * (4 + 3)).all()
    is_forbidden = trees.candidate_log_prob.flatten() == float("-inf")
    assert is_forbidden.sum() > (chart.splits < 0).sum() and drawn[:, is_forbidden].eq(0).all()
    torch.testing.assert_close(drawn.mean(0) / 3, trees.expected_counts().flatten(), atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.t().cov(), walked.t().cov(), atol=0.08, rtol=0)


@given(**CHARTS)
def test_choice_loss(lengths, window, seed):
    trees, drawn, scores = draw(lengths, window, seed)
    ranks, losses = scores.argsort().argsort(), []
    for row, splits in enumerate(trees.chart.splits.tolist()):
        splits = [split for split in splits if split >= 0]
        if len(splits) > 1:
            best = max(range(len(splits)), key=lambda c: int(ranks[splits[c]]))
            logits = trees.candidate_log_prob[row, : len(splits)]
            losses.append(logits.logsumexp(0) - logits[best])
    twin = torch.stack(losses).mean() if losses else torch.zeros((), dtype=torch.float64)
    assert_same_gradient(trees.choice_loss(ranks), twin, drawn)
