"""The objectives of learning from raw text: language model and tree KL (paper, Sections 2.1 and 3.2)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .chart import Chart, candidate_places, follow, widest_neighbours
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
    probabilities = split_probabilities(encoded)
    visits = probabilities.new_zeros(chart.num_nodes).index_fill_(0, chart.roots, 1)
    counts = torch.zeros_like(probabilities)
    for level in reversed(chart.levels):
        candidates = level.left.shape[1]
        cells = visits[chart.num_tokens :][level.cells, None]
        counts[level.cells, :candidates] = used = cells * probabilities[level.cells, :candidates]
        visits.index_add_(0, level.left.flatten(), used.flatten())
        visits.index_add_(0, level.right.flatten(), used.flatten())
    return counts


def exact_tree_loss(chart: Chart, encoded: EncodedChart, scores: Tensor, composition_kernels: str = "torch") -> Tensor:
    """Cross entropy of the parser's trees under the chart's, the KL up to the chart's entropy (Section 3.2).

    The expectation over all trees of the chart is exact: the paper's loss for infinitely many samples.

    Args:
        scores: ``(num_tokens,)`` split scores without span constraints, sentences end to end; those at sentence ends
            are not read.
        composition_kernels: as ``config.composition_kernels``, for the sums over spans.

    Returns:
        Mean over sentences of ``-log p(tree) / n`` in nats. Gradient reaches the scores only.
    """
    counts = expected_counts(chart, encoded)
    candidates = candidate_places(chart)
    spans, used = chart.spans[chart.num_tokens :][candidates[0]], counts[candidates]
    log_prob = split_log_prob(scores, spans, chart.splits[candidates], composition_kernels)
    return _mean_per_token(chart, spans[:, 0], -used * log_prob.masked_fill(used == 0, 0))


def sample_trees(
    chart: Chart, encoded: EncodedChart, num_samples: int, generator: torch.Generator | None = None
) -> Tensor:
    """Trees drawn from the chart, all samples of all sentences at once (paper, Algorithm 2).

    Returns:
        ``(num_samples, num_tokens)`` long, as `follow` returns them.
    """
    probabilities = split_probabilities(encoded)

    def draw(cells: Tensor) -> Tensor:
        return torch.multinomial(probabilities[cells], 1, generator=generator)[:, 0]

    return follow(chart, draw, num_samples)


def sampled_tree_loss(chart: Chart, trees: Tensor, scores: Tensor, composition_kernels: str = "torch") -> Tensor:
    """The paper's Monte Carlo estimate of `exact_tree_loss`, from the ``trees`` of `sample_trees`."""
    sample, split = (trees >= 0).nonzero(as_tuple=True)
    spans = chart.spans[trees[sample, split]]
    return _mean_per_token(chart, spans[:, 0], -split_log_prob(scores, spans, split, composition_kernels)) / len(trees)


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


def _mean_per_token(chart: Chart, tokens: Tensor, values: Tensor) -> Tensor:
    """Each value divided by its sentence's length; the sum over values, divided by the number of sentences."""
    length = chart.lengths.repeat_interleave(chart.lengths, output_size=chart.num_tokens)[tokens]
    return (values / length).sum() / len(chart.lengths)
