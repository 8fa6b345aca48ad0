"""Data collators: encoded sentences, or pairs of them, as padded tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .padding import pad_sentences, pad_signs, pad_spans

Feature = dict[str, Any]


@dataclass
class DataCollatorForFastR2D2:
    """Pads sentences on the right, and their spans with -1.

    A feature is a dict with ``input_ids`` (a list of ints), optionally ``attention_mask`` (what it hides is left out),
    ``atom_spans`` (a list of inclusive spans), ``split_signs`` (one for each split point) and ``label`` or ``labels``
    (a number, a list of numbers, or a tree, a list with a span for each split point). The collator leaves other keys
    out. It returns ``input_ids`` and ``attention_mask`` ``(batch, seq_len)`` long, ``atom_spans`` ``(batch, max_spans,
    2)`` long and ``split_signs`` ``(batch, seq_len - 1)`` int8 if any feature has them, and ``labels`` ``(batch,)``,
    ``(batch, num_labels)`` or, padded with -1, ``(batch, seq_len - 1, 2)`` if the features have labels. Spans, signs
    and trees count from the first token, as in models, on whichever side a feature is padded.

    Args:
        tokenizer: its ``pad_token_id`` fills the padded positions. A feature without a token is padding alone, which
            models read as one unknown token.
        pad_to_multiple_of: makes ``seq_len`` a multiple of this number.

    Raises:
        ValueError: when called, if only some of the features have labels.
    """

    tokenizer: PreTrainedTokenizerBase
    pad_to_multiple_of: int | None = None

    def __call__(self, features: list[Feature]) -> dict[str, Tensor]:
        batch = self._pad(features)
        return batch | _labels(features, batch["input_ids"].shape[1] - 1)

    def _pad(self, features: list[Feature]) -> dict[str, Tensor]:
        features = [_without_padding(feature) for feature in features]
        batch = pad_sentences(
            [feature["input_ids"] for feature in features],
            _of_all(features, "atom_spans"),
            pad_token_id=self.tokenizer.pad_token_id or 0,  # without a pad token any id will do: the mask hides it
            pad_to_multiple_of=self.pad_to_multiple_of,
        )
        signs = _of_all(features, "split_signs")
        return batch if signs is None else batch | {"split_signs": pad_signs(signs, batch["input_ids"].shape[1])}


@dataclass
class DataCollatorForFastR2D2Pairs(DataCollatorForFastR2D2):
    """Pads pairs of sentences for `FastR2D2ForPairClassification`.

    All but the labels of a feature are lists of two, one entry per sentence. All tensors but ``labels`` have an axis of
    size 2 after the batch axis: ``input_ids`` is ``(batch, 2, seq_len)``.

    Raises:
        ValueError: when called, also if a feature does not have two sentences.
    """

    def __call__(self, features: list[Feature]) -> dict[str, Tensor]:
        for row, feature in enumerate(features):
            if len(feature["input_ids"]) != 2:
                raise ValueError(f"row {row} of the batch has {len(feature['input_ids'])} sentences; a pair has 2")
        sentences = [_sentence_of_pair(feature, side) for feature in features for side in (0, 1)]
        return {key: value.unflatten(0, (-1, 2)) for key, value in self._pad(sentences).items()} | _labels(features)


def _sentence_of_pair(pair: Feature, side: int) -> Feature:
    """The first or the second sentence. A batch may mix pairs with spans and pairs without."""
    keys = ("input_ids", "attention_mask", "atom_spans", "split_signs")
    return {key: pair[key][side] for key in keys if pair.get(key) is not None}


def _without_padding(feature: Feature) -> Feature:
    """The sentence alone, where a tokenizer or a processor has padded it, on either side."""
    mask = feature.get("attention_mask")
    if mask is None or np.asarray(mask).all():
        return feature
    is_token = np.asarray(mask, bool)
    found = {**feature, "input_ids": np.asarray(feature["input_ids"])[is_token]}
    if feature.get("split_signs") is not None:
        found["split_signs"] = np.asarray(feature["split_signs"])[: max(int(is_token.sum()) - 1, 0)]
    return found


def _tree_without_padding(label: Any) -> list[tuple[int, int]]:
    """Up to the last span: -1 before it is a split point of which nothing is known."""
    tree = np.asarray(label).reshape(-1, 2)
    return tree[: 1 + max((tree != -1).any(1).nonzero()[0], default=-1)].tolist()


def _of_all(features: list[Feature], key: str) -> list[Any] | None:
    """What each feature has, or nothing; None if none has any."""
    found = [feature.get(key) for feature in features]
    return None if all(own is None for own in found) else [[] if own is None else own for own in found]


def _labels(features: list[Feature], num_splits: int = 0) -> dict[str, Tensor]:
    for key in ("labels", "label"):
        labels: list[Any] = [feature.get(key) for feature in features]
        missing = [row for row, label in enumerate(labels) if label is None]
        if missing and len(missing) < len(labels):
            raise ValueError(
                f"row {missing[0]} of the batch has no {key!r} but other rows have one; label all rows or none"
            )
        if not missing and any(np.ndim(label) == 2 or not np.size(label) for label in labels):  # one token: no split
            return {"labels": pad_spans([_tree_without_padding(label) for label in labels], num_splits)}
        if not missing:
            return {"labels": torch.stack([torch.as_tensor(label) for label in labels])}
    return {}
