"""Lists of different lengths as padded tensors: token ids, spans and split points of the sentences of a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_sentences(
    input_ids: Sequence[Sequence[int]],
    atom_spans: Sequence[Sequence[tuple[int, int]]] | None = None,
    *,
    pad_token_id: int = 0,
    pad_to_multiple_of: int | None = None,
) -> dict[str, Tensor]:
    """The inputs of a model for a batch of sentences, padded on the right.

    Args:
        input_ids: the token ids of each sentence.
        atom_spans: the spans that stay whole in each sentence, inclusive; None gives a batch without ``atom_spans``.
        pad_token_id: the id at padded positions. The attention mask hides it, so any id of the vocabulary will do.
        pad_to_multiple_of: makes ``seq_len`` a multiple of this number.

    Returns:
        ``input_ids`` and ``attention_mask``, ``(batch, seq_len)`` long, and ``atom_spans`` as from `pad_spans`.
    """
    multiple = pad_to_multiple_of or 1
    lengths = [len(ids) for ids in input_ids]
    seq_len = -(-max([1, *lengths]) // multiple) * multiple
    padded = torch.full((len(input_ids), seq_len), pad_token_id)
    for row, ids in enumerate(input_ids):
        padded[row, : lengths[row]] = torch.as_tensor(ids)
    attention_mask = (torch.arange(seq_len) < torch.tensor(lengths)[:, None]).long()
    batch = {"input_ids": padded, "attention_mask": attention_mask}
    return batch if atom_spans is None else batch | {"atom_spans": pad_spans(atom_spans)}


def pad_spans(spans: Sequence[Sequence[tuple[int, int]]], least: int = 0) -> Tensor:
    """Lists of inclusive spans as ``(batch, max_spans, 2)`` long, padded with -1; at ``least`` so many spans."""
    padded = torch.full((len(spans), max([least, *map(len, spans)]), 2), -1)
    for row, row_spans in enumerate(spans):
        if len(row_spans):
            padded[row, : len(row_spans)] = torch.as_tensor(row_spans)
    return padded


def pad_signs(signs: Sequence[Sequence[int]], seq_len: int) -> Tensor:
    """The signs of each sentence's split points as ``(batch, seq_len - 1)`` int8, padded with 0."""
    padded = torch.zeros(len(signs), seq_len - 1, dtype=torch.int8)
    for row, row_signs in enumerate(signs):
        padded[row, : len(row_signs)] = torch.as_tensor(row_signs)
    return padded


def pad_split_signs(bounds: Sequence[Sequence[int]], names: Sequence[Sequence[int]], seq_len: int) -> Tensor:
    """Lists of split points as ``(batch, seq_len - 1)`` int8: 1 at ``bounds``, -1 at ``names``, 0 at all others."""
    padded = torch.zeros(len(bounds), seq_len - 1, dtype=torch.int8)
    for row, (raised, lowered) in enumerate(zip(bounds, names, strict=True)):
        padded[row, raised], padded[row, lowered] = 1, -1
    return padded
