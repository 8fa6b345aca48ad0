"""Lists of encoded sentences to padded tensors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.words import pad_spans


@dataclass
class DataCollatorForFastR2D2:
    """Pad sentences on the right and their spans with -1.

    Features are dicts with ``input_ids`` (list of ints), optionally ``atom_spans`` (list of inclusive spans) and
    ``label`` or ``labels`` (a number, or a list of them). Other keys are left out. The result has ``input_ids`` and
    ``attention_mask`` ``(batch, seq_len)`` long, ``atom_spans`` ``(batch, max_spans, 2)`` long if any feature has
    them, and ``labels`` ``(batch,)`` or ``(batch, num_labels)``.
    """

    tokenizer: PreTrainedTokenizerBase
    pad_to_multiple_of: int | None = None

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Tensor]:
        return self._pad(features) | _labels(features)

    def _pad(self, features: list[dict[str, Any]]) -> dict[str, Tensor]:
        _check_not_empty(features)
        batch = dict(self.tokenizer.pad(
            {"input_ids": [feature["input_ids"] for feature in features]}, padding_side="right",
            pad_to_multiple_of=self.pad_to_multiple_of, return_attention_mask=True, return_tensors="pt", verbose=False,
        ))  # fmt: skip
        spans = [feature.get("atom_spans") for feature in features]
        if any(row_spans is not None for row_spans in spans):
            batch["atom_spans"] = pad_spans([[] if row_spans is None else row_spans for row_spans in spans])
        return batch


@dataclass
class DataCollatorForFastR2D2Pairs(DataCollatorForFastR2D2):
    """The same for pairs: ``input_ids`` and ``atom_spans`` of a feature hold two sentences each, and the tensors get
    an axis of size 2 after the batch's, as `FastR2D2ForPairClassification` wants them."""

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Tensor]:
        for row, feature in enumerate(features):
            if len(feature["input_ids"]) != 2:
                raise ValueError(f"row {row} of the batch has {len(feature['input_ids'])} sentences; a pair has 2")
        sentences = [_side(feature, side) for feature in features for side in (0, 1)]
        return {key: value.unflatten(0, (-1, 2)) for key, value in self._pad(sentences).items()} | _labels(features)


def _side(pair: dict[str, Any], side: int) -> dict[str, Any]:
    """One sentence of a pair; pairs without spans may stand beside pairs that have them."""
    return {key: pair[key][side] for key in ("input_ids", "atom_spans") if pair.get(key) is not None}


def _check_not_empty(features: list[dict[str, Any]]) -> None:
    for row, feature in enumerate(features):
        if not len(feature["input_ids"]):
            raise ValueError(
                f"row {row} of the batch has no token; make features with tokenize_sentences, which turns "
                "empty text into [UNK]"
            )


def _labels(features: list[dict[str, Any]]) -> dict[str, Tensor]:
    for key in ("labels", "label"):
        labels = [feature.get(key) for feature in features]
        missing = [row for row, label in enumerate(labels) if label is None]
        if missing and len(missing) < len(labels):
            raise ValueError(f"row {missing[0]} of the batch has no {key!r} and others have; label all rows or none")
        if not missing:
            return {"labels": torch.tensor(labels)}
    return {}
