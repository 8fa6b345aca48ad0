"""The objectives of learning from raw text: language model and tree KL (paper, Sections 2.1 and 3.2)."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart, candidate_places, widest_neighbours
from .encoder import EncodedChart
from .fused import fused_kernels


def language_model_contexts(chart: Chart, nodes: Tensor, ends: Tensor) -> Tensor:
    """The contexts from which every token is predicted: the widest nodes beside it (paper, Equation 6).

    Args:
        nodes: ``(num_nodes, hidden_size)``.
        ends: ``(2, hidden_size)``, embeddings of ``[BOS]`` and ``[EOS]``, the contexts at a sentence's ends.

    Returns:
        ``(2, num_tokens, hidden_size)``, left and right, sentences end to end.
    """
    ids = torch.stack(widest_neighbours(chart))
    rows = nodes.index_select(0, ids.clamp(min=0).flatten()).view(*ids.shape, -1)
    return torch.where(ids[..., None] < 0, ends[:, None].to(nodes.dtype), rows)


def split_probabilities(encoded: EncodedChart) -> Tensor:
    """``(num_cells, window)``: the chart's probability of every candidate, given its cell. Detached."""
    return encoded.choices().detach().softmax(-1)


def expected_counts(chart: Chart, encoded: EncodedChart) -> Tensor:
    """How often a tree drawn from the chart uses each ``(cell, candidate)``: one sweep from the roots down.

    Returns:
        ``(num_cells, window)``, in 0 ... 1.
    """
    return _shared_out(chart, split_probabilities(encoded), 1, lambda visits, shares: visits[:, None] * shares)


def sampled_counts(
    chart: Chart, encoded: EncodedChart, num_samples: int, generator: torch.Generator | None = None
) -> Tensor:
    """The paper's Monte Carlo estimate of `expected_counts`, from drawn trees (Algorithm 2).

    The trees are drawn together: of those that come to a cell, a multinomial number takes each candidate. So no tree
    is walked down by itself, and no device is asked how deep it is.

    Returns:
        ``(num_cells, window)``, means over the trees, in 0 ... 1.
    """
    draw = functools.partial(_multinomial, generator=generator)
    return _shared_out(chart, split_probabilities(encoded), num_samples, draw) / num_samples


def _shared_out(
    chart: Chart, probabilities: Tensor, num_trees: int, share_out: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """``(num_cells, window)``: how many trees take each candidate, where ``num_trees`` come to each root and
    ``share_out`` takes the trees that come to cells, ``(cells,)``, and the candidates' probabilities."""
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


def tree_loss(chart: Chart, counts: Tensor, scores: Tensor, composition_kernels: str = "torch") -> Tensor:
    """Cross entropy of the parser's trees under the chart's, the KL up to the chart's entropy (Section 3.2).

    Args:
        counts: ``(num_cells, window)``. From `expected_counts` the expectation over all trees of the chart is exact,
            the paper's loss for infinitely many samples; from `sampled_counts` it is the paper's estimate.
        scores: ``(num_tokens,)`` split scores without span constraints, sentences end to end; those at sentence ends
            are not read.
        composition_kernels: as ``config.composition_kernels``, for the sums over spans.

    Returns:
        Mean over sentences of ``-log p(tree) / n`` in nats. Gradient reaches the scores only.
    """
    candidates = candidate_places(chart)
    spans, used = chart.spans[chart.num_tokens :][candidates[0]], counts[candidates]
    log_prob = split_log_prob(scores, spans, chart.splits[candidates], composition_kernels)
    length = chart.lengths.repeat_interleave(chart.lengths, output_size=chart.num_tokens)[spans[:, 0]]
    return (-used * log_prob.masked_fill(used == 0, 0) / length).sum() / len(chart.lengths)


def tree_label_loss(scores: Tensor, labels: Tensor, lengths: Tensor, composition_kernels: str = "torch") -> Tensor:
    """Minus the parser's log-probability of given trees, divided by ``n``: a scalar in nats, the mean over sentences.

    Args:
        scores: ``(num_tokens,)`` split scores, sentences end to end.
        labels: ``(num_tokens, 2)`` long, for each split point the first and last token, in its sentence, of the
            constituent that splits there; -1 for split points without a label.
        lengths: ``(batch,)`` long.
    """
    length = lengths.repeat_interleave(lengths, output_size=len(scores))
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths, output_size=len(scores))
    is_end = torch.arange(len(scores), device=scores.device) == starts + length - 1
    [splits] = ((labels[:, 0] >= 0) & ~is_end).nonzero(as_tuple=True)
    spans = labels[splits] + starts[splits, None]
    per_token = -split_log_prob(scores, spans, splits, composition_kernels) / length[splits]
    return per_token.sum() / len(lengths)


def split_log_prob(scores: Tensor, spans: Tensor, splits: Tensor, composition_kernels: str = "torch") -> Tensor:
    """The parser's log-probability, in nats, of splitting spans where they are split.

    Args:
        scores: ``(num_tokens,)``, flat.
        spans: ``(nodes, 2)`` long, first and last token.
        splits: ``(nodes,)`` long.
        composition_kernels: as ``config.composition_kernels``.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # The kernel adds up its gradient in no fixed order.
    fused = None if torch.are_deterministic_algorithms_enabled() else fused_kernels(composition_kernels, scores)
    sums = range_logsumexp if fused is None else fused.range_logsumexp
    return scores[splits] - sums(scores, spans[:, 0], spans[:, 1] - 1)


def range_logsumexp(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """``logsumexp(values[first ... last])`` of many ranges, from a table of ``log(len(values))`` rows.

    Row ``h`` cuts the values into blocks of ``2 ** (h + 1)`` and holds the sum from each position to the middle of its
    block. In the row of the highest bit in which its ends differ, a range is two parts that meet in the middle of a
    block. So nothing outside a range enters its sum.
    """
    heights = max(len(values) - 1, 1).bit_length()
    padded = F.pad(values, (0, (1 << heights) - len(values)))
    rows = []
    for height in range(heights):
        before, after = padded.view(-1, 2, 1 << height).unbind(1)  # halves of the blocks
        halves = before.flip(-1).logcumsumexp(-1).flip(-1), after.logcumsumexp(-1)
        rows.append(torch.stack(halves, dim=1).flatten())
    differing = first ^ last
    row = sum((differing >> height > 1).long() for height in range(heights - 1)) if heights > 1 else differing * 0
    table = torch.stack(rows).flatten()
    part = table[row * len(padded) + torch.stack([first, last])]
    return torch.where(first == last, values[first], torch.logaddexp(part[0], part[1]))
