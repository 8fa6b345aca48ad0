"""The top-down parser: one score for every split point, and how likely these make trees (paper, Sections 3.1, 3.2)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from .chart import to_device
from .configuration_fast_r2d2 import FastR2D2Config
from .torch_internals import has_hooks

PLACES = "first", "last", "before", "after"  # of tokens: a constituent's first, its last, and those beside it


class TopDownParser(nn.Module):
    """Scores the split points of a sentence; splitting every span at its highest score gives the tree.

    The score of split point ``k`` is an MLP over what lies left of it, ending with token ``k``, and what lies right
    of it, beginning with token ``k + 1``: the forward and the backward state of an LSTM, or the two halves of a
    Transformer's output.

    Weights and scores are float32 or wider, also in a model of half precision and under autocast. In half precision
    many scores would be equal, and trees would change. On a GPU, torch's settings decide about TF32 in the LSTM.
    """

    confidence_weight: Tensor  # only with ``config.confidence_words``

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        size, dropout = config.parser_hidden_size, config.parser_dropout_prob
        self.normalize_split_scores = config.normalize_split_scores
        self.embeddings: Any = nn.Embedding(config.vocab_size, config.parser_embedding_size, config.pad_token_id)
        self.backbone = (LSTMBackbone if config.parser_type == "lstm" else TransformerBackbone)(config)
        self.dense = nn.Linear(2 * size, size)
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(size, 1)
        if config.confidence_words:  # no parameter, since no loss reaches it
            self.register_buffer("confidence_weight", torch.zeros(len(PLACES), config.parser_embedding_size))
        self._apply(lambda tensor: tensor)  # widens what was made in half precision

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """
        Args:
            input_ids: ``(batch, seq_len)`` long, padded on the right, with anything.
            lengths: ``(batch,)`` long, on the host, tokens per sentence, at least 1.

        Returns:
            ``(batch, seq_len - 1)`` scores, float32 or wider, 0 past a sentence's last split point.
        """
        device = input_ids.device.type
        if not torch.is_autocast_enabled(device):  # an exported program with a context for autocast cannot be saved
            return self._score(input_ids, lengths)
        with torch.autocast(device, enabled=False):
            return self._score(input_ids, lengths)

    def _score(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        position = torch.arange(input_ids.shape[1], device=input_ids.device)
        [lengths_here] = to_device([lengths], input_ids.device)
        input_ids = input_ids.masked_fill(position >= lengths_here[:, None], 0)
        hidden = self.backbone(self.embeddings(input_ids), lengths)
        left, right = hidden.chunk(2, dim=-1)
        between = torch.cat([left[:, :-1], right[:, 1:]], dim=-1)  # (batch, seq_len - 1, 2 * size)
        scores = self.score(self.dropout(F.gelu(self.dense(between))))[..., 0]
        is_split = position[:-1] < lengths_here[:, None] - 1
        if self.normalize_split_scores:
            scores = _standardize(scores, is_split)
        return scores.masked_fill(~is_split, 0)

    @torch.no_grad()
    def word_odds(self, input_ids: Tensor) -> Tensor:
        """What tokens add to the log-odds of a constituent, by where they stand to it (`PLACES`).

        Args:
            input_ids: ``(...)`` long.

        Returns:
            ``(..., 4)``, float32 or wider; 0 without ``config.confidence_words``.
        """
        if not hasattr(self, "confidence_weight"):
            return torch.zeros(*input_ids.shape, len(PLACES), device=input_ids.device)
        return F.linear(self.embeddings(input_ids), self.confidence_weight)

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> "TopDownParser":
        """Called by ``model.half()``, ``model.to(torch.bfloat16)`` and the like: weights move, but stay float32."""

        def move(tensor: Tensor) -> Tensor:
            moved = function(tensor)
            if moved.is_floating_point() and moved.dtype.itemsize < torch.float32.itemsize:
                return tensor.to(moved.device, torch.float32)
            return moved

        return super()._apply(move, recurse)


class LSTMBackbone(nn.Module):
    """Bidirectional LSTM, each direction from its own end of every sentence (paper, Section 3.1)."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        layers = config.parser_num_layers
        self.lstm = nn.LSTM(
            config.parser_embedding_size, config.parser_hidden_size, layers, batch_first=True, bidirectional=True,
            dropout=config.parser_dropout_prob if layers > 1 else 0.0,
        )  # fmt: skip
        self.dropout = nn.Dropout(config.parser_dropout_prob)  # between layers, where they are computed one by one

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """
        Args:
            embedded: ``(batch, seq_len, parser_embedding_size)``, padded on the right.
            lengths: ``(batch,)`` long, on the host, at least 1.

        Returns:
            ``(batch, seq_len, 2 * parser_hidden_size)``; values past a sentence's end mean nothing.
        """
        if embedded.device.type == "cpu" and type(self.lstm) is nn.LSTM and not has_hooks(self.lstm):
            return self._by_segments(embedded, plan_segments(lengths, embedded.shape[1]))
        steps, cells, back = plan_packing(lengths, embedded.shape[1])
        cells, back = to_device([cells, back], embedded.device)
        packed = PackedSequence(embedded.flatten(0, 1).index_select(0, cells), steps)
        return self.lstm(packed)[0].data.index_select(0, back).unflatten(0, embedded.shape[:2])

    def _by_segments(self, embedded: Tensor, segments: "Segments") -> Tensor:
        """The packed LSTM's results in half of its time on a CPU.

        This reads the weights of ``self.lstm`` and does not call it, so it must not be used where that has hooks.
        """
        hidden = embedded.flatten(0, 1).index_select(0, segments.cells)
        for forward, backward in zip(self.lstm.all_weights[::2], self.lstm.all_weights[1::2], strict=True):
            from_left = self._one_direction(hidden, segments, forward)
            from_right = self._one_direction(hidden.index_select(0, segments.mirror), segments, backward)
            outputs = torch.cat([from_left, from_right.index_select(0, segments.mirror)], dim=-1)
            hidden = self.dropout(outputs)  # for the next layer, not after the last
        return outputs.index_select(0, segments.back).unflatten(0, embedded.shape[:2])

    def _one_direction(self, inputs: Tensor, segments: "Segments", weights: Sequence[Tensor]) -> Tensor:
        """One layer from left to right, ``(cells, parser_hidden_size)``. States go from segment to segment."""
        outputs, hidden = [], inputs.new_zeros(1, segments.shapes[0][1], self.lstm.hidden_size)
        cell = hidden
        for shape, part in zip(segments.shapes, inputs.split([a * b for a, b in segments.shapes]), strict=True):
            output, hidden, cell = torch.lstm(
                part.unflatten(0, shape), (hidden[:, : shape[1]], cell[:, : shape[1]]), [*weights], has_biases=True,
                num_layers=1, dropout=0.0, train=self.training, bidirectional=False, batch_first=False,
            )  # fmt: skip
            outputs.append(output.flatten(0, 1))
        return torch.cat(outputs)


class Segments(NamedTuple):
    """A padded batch, cut into blocks of steps. A block leaves out the sentences that have ended before it.

    Its cells lie step by step; within a step the longest sentence comes first.
    """

    shapes: list[tuple[int, int]]  # of each block: steps, sentences
    cells: Tensor  # (cells,), the place in the padded batch that each cell holds
    mirror: Tensor  # (cells,), the cell that is as far from its sentence's end as this one is from the beginning
    back: Tensor  # (batch * seq_len,), the cell of each place; 0 for padding that no cell holds


def plan_packing(lengths: Tensor, seq_len: int) -> tuple[Tensor, Tensor, Tensor]:
    """The order in which torch's LSTM reads a padded batch: step by step, within a step the longest sentence first.

    torch's own functions for it would make the host wait for a GPU.

    Returns:
        ``(seq_len,)`` long, the sentences of each step, without steps of none; ``(cells,)``, the place in the padded
        batch of each cell in this order; ``(batch * seq_len,)``, the cell of each place, 0 for padding.
    """
    descending, order = lengths.sort(descending=True, stable=True)
    step = torch.arange(int(descending[0]), device=lengths.device)[:, None]
    is_token = step < descending
    cells = (order * seq_len + step)[is_token]
    back = cells.new_zeros(len(lengths) * seq_len).index_copy_(0, cells, torch.arange(len(cells), device=cells.device))
    return is_token.sum(1), cells, back


def plan_segments(lengths: Tensor, seq_len: int) -> Segments:
    """Cut a batch so that at most a third of a block's sentences end before it does."""
    descending, order = lengths.sort(descending=True)
    blocks, mirrored, shapes, start = [], [], [], 0
    while start < descending[0]:
        count = int((descending > start).sum())
        end = int(descending[-(-2 * count // 3) - 1])
        step, length = torch.arange(start, end, device=lengths.device)[:, None], descending[:count]
        first = order[:count] * seq_len
        blocks.append((first + step).flatten())
        mirrored.append((first + torch.where(step < length, length - 1 - step, step)).flatten())
        shapes.append((end - start, count))
        start = end
    cells = torch.cat(blocks)
    back = cells.new_zeros(len(lengths) * seq_len).index_copy_(0, cells, torch.arange(len(cells), device=cells.device))
    return Segments(shapes, cells, back[torch.cat(mirrored)], back)


class TransformerBackbone(nn.Module):
    """Pre-norm Transformer with sinusoidal positions, which know no longest sentence."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        size = 2 * config.parser_hidden_size
        self.dense = nn.Linear(config.parser_embedding_size, size)
        layer = nn.TransformerEncoderLayer(
            size, config.parser_num_attention_heads, 2 * size, config.parser_dropout_prob, "gelu",
            batch_first=True, norm_first=True,
        )  # fmt: skip
        norm = nn.LayerNorm(size)
        self.encoder = nn.TransformerEncoder(layer, config.parser_num_layers, norm, enable_nested_tensor=False)

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        hidden = self.dense(embedded)
        hidden = hidden + _sinusoidal_positions(hidden.shape[1], hidden.shape[2], hidden.device).to(hidden.dtype)
        [lengths] = to_device([lengths], hidden.device)
        is_padding = torch.arange(hidden.shape[1], device=hidden.device) >= lengths[:, None]
        return self.encoder(hidden, src_key_padding_mask=is_padding)


def span_nesting(atom_spans: Tensor, num_splits: int, nested: bool = False) -> Tensor:
    """How deep every split point lies in span constraints, the order in which constrained ones merge.

    Args:
        atom_spans: ``(batch, max_spans, 2)`` long, first and last token, inclusive, padded with -1.
        num_splits: ``seq_len - 1``.
        nested: count all spans around a split point, so that nested ones are honoured each; otherwise 1 for any.

    Returns:
        ``(batch, num_splits)`` long.
    """
    first, last = atom_spans.clamp(min=0).unbind(-1)  # a padded span becomes (0, 0), which holds no split point
    change = atom_spans.new_zeros(len(atom_spans), num_splits + 1)
    change = change.scatter_add(1, first, torch.ones_like(first)).scatter_add(1, last, -torch.ones_like(last))
    depth = change.cumsum(1)[:, :-1]
    return depth if nested else depth.clamp(max=1)


def tree_label_loss(scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """Minus the parser's log-probability of given trees, divided by ``n``: a scalar in nats, the mean over sentences.

    Args:
        scores: ``(num_tokens,)`` split scores, sentences end to end.
        labels: ``(num_tokens, 2)`` long, for each split point the first and last token, in its sentence, of the
            constituent that splits there; -1 for split points without a label.
        lengths: ``(batch,)`` long.
    """
    length = lengths.repeat_interleave(lengths, output_size=len(scores))
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths, output_size=len(scores))
    [splits] = (labels[:, 0] < labels[:, 1]).nonzero(as_tuple=True)  # neither -1 nor 0, which is at a sentence's end
    spans = labels[splits] + starts[splits, None]
    per_token = -split_log_prob(scores, spans, splits) / length[splits]
    return per_token.sum() / len(lengths)


def split_log_prob(scores: Tensor, spans: Tensor, splits: Tensor) -> Tensor:
    """The parser's log-probability, in nats, of splitting spans where they are split.

    Args:
        scores: ``(num_tokens,)``, flat.
        spans: ``(nodes, 2)`` long, first and last token.
        splits: ``(nodes,)`` long.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores[splits] - range_logsumexp(scores, spans[:, 0], spans[:, 1] - 1)


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


def _standardize(scores: Tensor, is_split: Tensor) -> Tensor:
    """Zero mean and unit variance over each sentence's split points."""
    count = is_split.sum(1, keepdim=True).clamp(min=1)
    centred = (scores - (scores * is_split).sum(1, keepdim=True) / count) * is_split
    return centred * torch.rsqrt(centred.square().sum(1, keepdim=True) / count + 1e-5)


def _sinusoidal_positions(length: int, size: int, device: torch.device) -> Tensor:
    frequency = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10_000.0) / size))
    angle = torch.arange(length, device=device)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size]
