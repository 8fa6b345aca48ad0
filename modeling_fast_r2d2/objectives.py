"""What parser and encoder learn from raw text: language-model loss and tree KL (paper, Sections 2.1 and 3.2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from .chart import Chart, follow, widest_neighbours
from .cpu_linear import apply_linear, is_plain
from .encoder import EncodedChart
from .fused import fused_kernels

ROWS_AT_ONCE = 256  # of logits: so few stay in a processor's cache


class LanguageModelHead(nn.Module):
    """Predicts every token from the widest nodes beside it; the output matrix is the token embedding's."""

    def __init__(self, config):
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden: Tensor) -> Tensor:  # (tokens, hidden_size) -> (tokens, vocab_size)
        return apply_linear(self.decoder, self._transformed(hidden))

    def loss(self, hidden: Tensor, token_ids: Tensor) -> Tensor:
        """Mean cross entropy in nats, float32 or wider; where torch can, without all logits in memory at once.

        Args:
            hidden: ``(tokens, hidden_size)``.
            token_ids: ``(tokens,)`` long.
        """
        transformed = self._transformed(hidden)
        if _has_chunked_loss(transformed) and is_plain(self.decoder):
            return F.linear_cross_entropy(
                transformed, self.decoder.weight, token_ids, linear_bias=self.decoder.bias,
                options=nn.LinearCrossEntropyOptions(batch_chunk_size=ROWS_AT_ONCE, allow_retain_graph=True),
            )  # fmt: skip
        return language_model_loss(apply_linear(self.decoder, transformed), token_ids)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.activation(apply_linear(self.transform, hidden))


def _has_chunked_loss(hidden: Tensor) -> bool:
    """Measured on a CPU alone; in half precision its sums would be as narrow, and under autocast it knows no narrower
    products."""
    return (
        hasattr(nn, "LinearCrossEntropyOptions")
        and hidden.device.type == "cpu"
        and hidden.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def language_model_contexts(chart: Chart, nodes: Tensor, ends: Tensor) -> Tensor:
    """What the language model sees of every token: the widest nodes beside it (paper, Equation 6).

    Args:
        nodes: ``(num_nodes, hidden_size)``.
        ends: ``(2, hidden_size)``, embeddings of ``[BOS]`` and ``[EOS]``, the contexts at a sentence's ends.

    Returns:
        ``(2, num_tokens, hidden_size)``, left and right, sentences end to end.
    """
    ids = torch.stack(widest_neighbours(chart))
    rows = nodes.index_select(0, ids.clamp(min=0).flatten()).view(*ids.shape, -1)
    return torch.where(ids[..., None] < 0, ends[:, None].to(nodes.dtype), rows)


def language_model_loss(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Mean cross entropy in nats over ``(num_tokens, vocab_size)`` logits, in float32 or wider."""
    return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), token_ids)


def split_probabilities(encoded: EncodedChart) -> Tensor:
    """``(num_cells, window)``: the chart's probability of every candidate, given its cell. Detached."""
    return encoded.candidate_log_prob.detach().softmax(-1)


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
    used = (counts > 0).nonzero(as_tuple=True)
    spans = chart.spans[chart.num_tokens :][used[0]]
    log_prob = split_log_prob(scores, spans, chart.splits[used], composition_kernels)
    return _mean_per_token(chart, spans[:, 0], -counts[used] * log_prob)


def sample_trees(chart: Chart, encoded: EncodedChart, num_samples: int, generator=None) -> Tensor:
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
    """How unlikely the parser makes given trees, as `exact_tree_loss` does those of a chart.

    Args:
        scores: ``(num_tokens,)`` split scores, sentences end to end.
        labels: ``(num_tokens, 2)`` long, for each split point the first and last token, in its sentence, of the
            constituent that splits there; -1 where none is given.
        lengths: ``(batch,)`` long.
    """
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    is_end = torch.arange(len(scores), device=scores.device) == starts + lengths.repeat_interleave(lengths) - 1
    [splits] = ((labels[:, 0] >= 0) & ~is_end).nonzero(as_tuple=True)
    spans = labels[splits] + starts[splits, None]
    per_token = -split_log_prob(scores, spans, splits, composition_kernels) / lengths.repeat_interleave(lengths)[splits]
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
    # The kernel's gradient is added up in whatever order programs end.
    fused = None if torch.are_deterministic_algorithms_enabled() else fused_kernels(composition_kernels, scores)
    sums = range_logsumexp if fused is None else fused.range_logsumexp
    return scores[splits] - sums(scores, spans[:, 0], spans[:, 1] - 1)


def range_logsumexp(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """``logsumexp(values[first ... last])`` of many ranges, from a table of ``log(len(values))`` rows.

    Row ``h`` holds, for blocks of ``2 ** (h + 1)`` values, the sums from each position to the middle of its block. A
    range is a part that ends in the middle and one that begins there, in the row of the highest bit in which its ends
    differ; so nothing outside a range enters its sum.
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
    """Divide each value by the length of the sentence that holds its token; sum; mean over sentences."""
    length = chart.lengths.repeat_interleave(chart.lengths)[tokens]
    return (values / length).sum() / len(chart.lengths)
