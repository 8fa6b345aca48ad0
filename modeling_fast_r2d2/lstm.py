"""The parser's bidirectional LSTM, each direction from its own end of every sentence (paper, Section 3.1)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .configuration_fast_r2d2 import FastR2D2Config
from .noise import Dropout
from .torch_internals import is_watched
from .transfer import to_device


class LSTMBackbone(nn.Module):
    """Bidirectional LSTM over each sentence's own length."""

    def __init__(self, config: FastR2D2Config):
        super().__init__()
        layers = config.parser_num_layers
        self.lstm = nn.LSTM(
            config.parser_embedding_size, config.parser_hidden_size, layers, batch_first=True, bidirectional=True,
            dropout=config.parser_dropout_prob if layers > 1 else 0.0,
        )  # fmt: skip
        self.dropout = Dropout(config.parser_dropout_prob)  # between layers, where they are computed one by one

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """
        Args:
            embedded: ``(batch, seq_len, parser_embedding_size)``, padded on the right.
            lengths: ``(batch,)`` long, on the host, at least 1.

        Returns:
            ``(batch, seq_len, 2 * parser_hidden_size)``; values past a sentence's end mean nothing.
        """
        if embedded.device.type == "cpu" and type(self.lstm) is nn.LSTM and not is_watched(self.lstm):
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
    step = torch.arange(int(descending[0]))[:, None]
    is_token = step < descending
    cells = (order * seq_len + step)[is_token]
    back = cells.new_zeros(len(lengths) * seq_len).index_copy_(0, cells, torch.arange(len(cells)))
    return is_token.sum(1), cells, back


def plan_segments(lengths: Tensor, seq_len: int) -> Segments:
    """Cut a batch so that at most a third of a block's sentences end before it does."""
    descending, order = lengths.sort(descending=True)
    blocks, mirrored, shapes, start = [], [], [], 0
    while start < descending[0]:
        count = int((descending > start).sum())
        end = int(descending[-(-2 * count // 3) - 1])
        step, length = torch.arange(start, end)[:, None], descending[:count]
        first = order[:count] * seq_len
        blocks.append((first + step).flatten())
        mirrored.append((first + torch.where(step < length, length - 1 - step, step)).flatten())
        shapes.append((end - start, count))
        start = end
    cells = torch.cat(blocks)
    back = cells.new_zeros(len(lengths) * seq_len).index_copy_(0, cells, torch.arange(len(cells)))
    return Segments(shapes, cells, back[torch.cat(mirrored)], back)


__all__ = ["LSTMBackbone", "Segments", "plan_segments"]
