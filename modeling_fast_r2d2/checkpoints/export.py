"""The parser as a `torch.export` program and as an ONNX file: token ids and lengths to split scores.

The parser alone can be exported. Encoding cannot: the numbers of levels and of compositions on each level depend on the
split scores, so that its shapes are known only once the parser has run.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..parser import LSTMBackbone, TopDownParser
from ..pretrained_model import FastR2D2PreTrainedModel


def exportable_parser(model: FastR2D2PreTrainedModel) -> TopDownParser:
    """A copy of the model's parser, in evaluation mode, by operations that can be exported for any batch and length.

    Its arguments and results are those of `TopDownParser`, but ``lengths`` are on the device of the ids. Scores agree
    to rounding; in torch itself it is slower.
    """
    base: Any = model.base_model
    parser = copy.deepcopy(base.parser).eval().requires_grad_(False)
    if isinstance(parser.backbone, LSTMBackbone):
        parser.backbone = ScannedLSTM(parser.backbone.lstm)
    return parser


def export_parser(model: FastR2D2PreTrainedModel) -> torch.export.ExportedProgram:
    """The parser as a program of `torch.export`.

    Args:
        model: any of the models, on the device where the program will run.

    Returns:
        A program of ``input_ids`` ``(batch, seq_len)`` long, padded on the right, and ``lengths`` ``(batch,)`` long,
        for any batch size and a ``seq_len`` of at least 3. It returns split scores ``(batch, seq_len - 1)`` float32, 0
        past a sentence's last split point.
    """
    parser, example, shapes = _example(model)
    return torch.export.export(parser, example, dynamic_shapes=shapes)


def export_parser_to_onnx(model: FastR2D2PreTrainedModel, path: str | Path) -> None:
    """Write the parser as an ONNX file, with inputs ``input_ids`` and ``lengths`` and the output ``split_scores``.

    This needs onnx and onnxscript, as `torch.onnx` does. Inputs and output are those of `export_parser`.
    """
    parser, example, shapes = _example(model)
    program: Any = torch.onnx.export(
        parser, example, dynamo=True, dynamic_shapes=shapes, verbose=False, external_data=False,
        input_names=["input_ids", "lengths"], output_names=["split_scores"],
    )  # fmt: skip
    program.save(str(path))


def _example(model: FastR2D2PreTrainedModel) -> tuple[TopDownParser, tuple[Tensor, Tensor], dict[str, dict[int, Any]]]:
    """The parser, inputs to trace it with, and their axes of any size."""
    device = model.device
    example = torch.zeros(2, 5, dtype=torch.long, device=device), torch.tensor([5, 3], device=device)
    batch, seq_len = torch.export.Dim("batch"), torch.export.Dim("seq_len", min=3)
    return exportable_parser(model), example, {"input_ids": {0: batch, 1: seq_len}, "lengths": {0: batch}}


class ScannedLSTM(nn.Module):
    """The bidirectional LSTM of `LSTMBackbone`, as a loop over tokens.

    torch's own LSTM, when exported, is unrolled for one length.
    """

    def __init__(self, lstm: nn.LSTM):
        super().__init__()
        self.lstm = lstm  # for its weights

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """The arguments and the result of `LSTMBackbone`."""
        position = torch.arange(embedded.shape[1], device=embedded.device)
        mirror = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
        hidden = embedded
        for forward, backward in zip(self.lstm.all_weights[::2], self.lstm.all_weights[1::2], strict=True):
            from_right = _run(_mirrored(hidden, mirror), backward)
            hidden = torch.cat([_run(hidden, forward), _mirrored(from_right, mirror)], dim=-1)
        return hidden


def _mirrored(hidden: Tensor, mirror: Tensor) -> Tensor:
    """Every sentence from right to left, ``(batch, seq_len, size)``; the padding stays where it is."""
    return hidden.gather(1, mirror[..., None].expand(-1, -1, hidden.shape[-1]))


def _run(inputs: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """One direction of one layer from left to right, ``(batch, seq_len, parser_hidden_size)``."""
    from torch._higher_order_ops.scan import scan  # the loop that ONNX has, too; torch gives it no public name yet

    to_input, to_hidden, input_bias, hidden_bias = weights
    projected = F.linear(inputs, to_input, input_bias + hidden_bias).transpose(0, 1)  # (seq_len, batch, 4 * size)

    def step(state: tuple[Tensor, Tensor], gates: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        hidden, cell = state
        enter, forget, new, leave = (gates + F.linear(hidden, to_hidden)).chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        return (hidden, cell), hidden.clone()  # a result must not share memory with the state

    nothing = inputs.new_zeros(inputs.shape[0], to_hidden.shape[1])  # `len` would fix the batch size
    return scan(step, (nothing, nothing.clone()), projected)[1].transpose(0, 1)


__all__ = ["export_parser", "export_parser_to_onnx", "exportable_parser"]
