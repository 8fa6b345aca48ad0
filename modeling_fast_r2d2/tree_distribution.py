"""The distribution over trees that a chart's candidates define (paper, Sections 2.1 and 3.2).

A tree is drawn from the root down: every cell that it comes to takes one candidate, by the softmax over their log p̃. So
a tree's probability is the product of those of its candidates, and whatever is asked of all trees is one sweep over
the levels of the chart.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from .chart import Chart, candidate_places
from .node_rows import rows_of_nodes
from .parser import split_log_prob


class TreeDistribution:
    """The trees of a chart, one distribution for each sentence.

    Choices are ``(num_cells,)`` long, the candidate that each cell takes; `chart.chosen_tree` follows them down.

    Args:
        chart: of ``num_cells`` cells with up to ``window`` candidates.
        candidate_log_prob: ``(num_cells, window)``, nats, log p̃ of every candidate, as `EncodedChart` has it: -inf past
            the last one, and for any that no tree is to take.
    """

    def __init__(self, chart: Chart, candidate_log_prob: Tensor):
        self.chart, self.candidate_log_prob = chart, candidate_log_prob

    @classmethod
    def of_parser(cls, chart: Chart, scores: Tensor) -> "TreeDistribution":
        """The parser's trees, as far as the chart has them: a cell takes a candidate by the softmax of their scores.

        Args:
            scores: ``(num_tokens,)``, split scores, sentences end to end; those at sentence ends are not read.
        """
        of_candidates = scores.to(torch.promote_types(scores.dtype, torch.float32))[chart.splits.clamp(min=0)]
        return cls(chart, of_candidates.masked_fill(chart.splits < 0, float("-inf")))

    @functools.cached_property
    def probabilities(self) -> Tensor:
        """``(num_cells, window)``: the probability of every candidate, given its cell. Without a gradient."""
        return self.candidate_log_prob.detach().softmax(-1)

    def add_bonus(self, bonus: Tensor) -> "TreeDistribution":
        """The distribution with a bonus for the candidates that split at some points, such as where punctuation stood.

        Args:
            bonus: ``(num_tokens,)``, nats by split point, sentences end to end.
        """
        splits, choices = self.chart.splits, self.candidate_log_prob
        raised = choices + bonus[splits.clamp(min=0)].to(choices)
        return TreeDistribution(self.chart, torch.where(splits < 0, choices, raised))

    def best(self) -> Tensor:
        """The choices of the tree with the highest log p̃: each cell takes its likeliest candidate, the first of equal
        ones."""
        return self.candidate_log_prob.argmax(-1)

    def expected_counts(self) -> Tensor:
        """``(num_cells, window)``, in 0 ... 1: how often a drawn tree takes each candidate. Without a gradient."""
        return self._counts(1, lambda visits, shares: visits[:, None] * shares)

    def marginals(self) -> Tensor:
        """``(num_cells,)``: the probability that a drawn tree has each cell as a constituent. Without a gradient."""
        return self.expected_counts().sum(1)

    def sample(self, num_trees: int, generator: torch.Generator | None = None) -> Tensor:
        """``(num_cells, window)``, whole numbers: how many of ``num_trees`` trees drawn for each sentence take each
        candidate (Algorithm 2).

        The trees are drawn together: of those that come to a cell, a multinomial number takes each candidate. So no
        tree is walked down by itself, and no device is asked how deep it is.
        """
        return self._counts(num_trees, functools.partial(_multinomial, generator=generator))

    def minimum_risk(self, *others: "TreeDistribution") -> Tensor:
        """The choices of the tree of minimum risk, which shares most constituents with drawn trees.

        The worth of a cell is its marginal. The worth of a tree is the sum of its cells' (Goodman, 1996, does this with
        a grammar's chart; for several systems: Shayegh et al., 2024, 2310.01717). Ties go to the left.

        Args:
            others: of the same chart. A tree is drawn from each of them, too, and each counts as much as this one.
        """
        chart, marginals = self.chart, self.marginals()
        for other in others:
            marginals = marginals + other.marginals()
        worth = marginals.new_zeros(chart.num_nodes)  # of the best tree below each node
        chosen = torch.zeros_like(chart.splits[:, 0])
        for level in chart.levels:
            possible = self.candidate_log_prob[level.cells, : level.left.shape[1]] > float("-inf")
            below = (worth[level.left] + worth[level.right]).masked_fill(~possible, float("-inf"))
            best, chosen[level.cells] = below.max(1)
            worth[chart.num_tokens :][level.cells] = best + marginals[level.cells]
        return chosen

    def entropy(self) -> Tensor:
        """``(batch,)``, nats: the entropy of each sentence's distribution, with a gradient."""
        chart, log_prob = self.chart, self.candidate_log_prob.log_softmax(-1)
        surprise = -log_prob.masked_fill(log_prob == float("-inf"), 0)
        below = rows_of_nodes(log_prob.new_zeros(chart.num_tokens), chart.num_nodes)
        for level in chart.levels:
            candidates = level.cells, slice(level.left.shape[1])
            of_candidates = surprise[candidates] + below.read(level.left) + below.read(level.right)
            rows = slice(chart.num_tokens + level.cells.start, chart.num_tokens + level.cells.stop)
            below.write(rows, (log_prob[candidates].exp() * of_candidates).sum(1))
        return below.all()[chart.roots]

    def tree_loss(self, scores: Tensor, counts: Tensor | None = None) -> Tensor:
        """Cross entropy of the parser's trees under these, the KL up to the `entropy` (Section 3.2).

        Args:
            scores: ``(num_tokens,)`` split scores without span constraints, sentences end to end; those at sentence
                ends are not read.
            counts: ``(num_cells, window)``, how often a tree takes each candidate, on average. From `expected_counts`,
                the default, the expectation over all trees is exact, the paper's loss for infinitely many samples; from
                `sample`, divided by the number of trees, it is the paper's estimate.

        Returns:
            Mean over sentences of ``-log p(tree) / n`` in nats. Gradient reaches the scores only.
        """
        chart, places = self.chart, candidate_places(self.chart)
        used = (self.expected_counts() if counts is None else counts)[places]
        spans = chart.spans[chart.num_tokens :][places[0]]
        log_prob = split_log_prob(scores, spans, chart.splits[places])
        length = chart.lengths.repeat_interleave(chart.lengths, output_size=chart.num_tokens)[spans[:, 0]]
        return (-used * log_prob.masked_fill(used == 0, 0) / length).sum() / len(chart.lengths)

    def choice_loss(self, ranks: Tensor) -> Tensor:
        """Cross entropy of the choices against a teacher's (first copy, then refine: Li et al., 2019, P19-1338).

        Not in the paper. Recipes of pretraining use it: without such guidance, the language model draws a new encoder
        into chains, in which the nearest word always lies beside the root.

        Args:
            ranks: ``(num_tokens,)`` long, the teacher's merge order; it chooses the candidate that merges last.

        Returns:
            Scalar in nats: the mean over cells with two or more candidates; 0 if there are none.
        """
        splits = self.chart.splits
        is_candidate = splits >= 0
        taught = ranks[splits.clamp(min=0)].masked_fill(~is_candidate, -1).argmax(1, keepdim=True)
        has_choice = is_candidate.sum(1) > 1
        log_prob = self.candidate_log_prob.log_softmax(-1).gather(1, taught)[:, 0]
        return -(log_prob * has_choice).sum() / has_choice.sum().clamp(min=1)

    def _counts(self, num_trees: int, share_out: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """``(num_cells, window)``: how many trees take each candidate, where ``num_trees`` come to each root and
        ``share_out`` takes the trees that come to cells, ``(cells,)``, and the candidates' probabilities."""
        chart, probabilities = self.chart, self.probabilities
        visits = probabilities.new_zeros(chart.num_nodes).index_fill_(0, chart.roots, num_trees)
        counts = torch.zeros_like(probabilities)
        for level in reversed(chart.levels):
            candidates = level.left.shape[1]
            cells = visits[chart.num_tokens :][level.cells]
            counts[level.cells, :candidates] = used = share_out(cells, probabilities[level.cells, :candidates])
            visits.index_add_(0, level.left.flatten(), used.flatten())
            visits.index_add_(0, level.right.flatten(), used.flatten())
        return counts


def _multinomial(trials: Tensor, probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """How often each outcome is drawn in ``(cells,)`` trials, ``(cells, outcomes)``: a binomial number for the first
    outcome, then for the next one among the trials that are left."""
    still_possible = probabilities.flip(-1).cumsum(-1).flip(-1)
    shares = (probabilities / still_possible.clamp(min=torch.finfo(probabilities.dtype).tiny)).clamp(max=1)
    drawn = []
    for share in shares.unbind(-1):
        drawn.append(torch.binomial(trials, share, generator=generator))
        trials = trials - drawn[-1]
    return torch.stack(drawn, -1)
