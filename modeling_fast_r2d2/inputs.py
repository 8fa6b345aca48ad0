"""Checks of what enters a model, before any work, and the flat layout of `chart`."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .configuration_fast_r2d2 import ENCODINGS
from .transfer import to_device, to_host


@dataclass(frozen=True)
class Sentences:
    """A checked batch. What is planned from it is planned on the host, which therefore has the lengths.

    Attributes:
        lengths: ``(batch,)`` long, on the host.
        is_token: ``(batch, seq_len)`` bool, on the host.
        places: ``(num_tokens,)`` long, on the model's device: where each token lies in the padded batch, rows end to
            end. Tokens in this order are *flat*, sentences end to end.
        first: ``(num_tokens,)`` long, on the model's device: the flat position of the first token of its sentence.
    """

    lengths: Tensor
    is_token: Tensor
    places: Tensor
    first: Tensor

    @classmethod
    def of(cls, is_token: Tensor, device: torch.device) -> "Sentences":
        """From ``is_token`` on the host."""
        lengths = is_token.sum(1)
        first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return cls(lengths, is_token, *to_device([is_token.flatten().nonzero()[:, 0], first], device))

    def flatten(self, padded: Tensor) -> Tensor:
        """``(batch, seq_len, ...)``, or ``(batch, seq_len - 1, ...)`` by split point, to ``(num_tokens, ...)``."""
        if padded.shape[1] < self.is_token.shape[1]:
            padded = F.pad(padded, (0, 0) * (padded.dim() - 2) + (0, 1))
        return padded.flatten(0, 1).index_select(0, self.places)

    def pad(self, flat: Tensor, value: int | float = 0) -> Tensor:
        """``(num_tokens, ...)`` to ``(batch, seq_len, ...)``."""
        padded = flat.new_full((self.is_token.numel(), *flat.shape[1:]), value)
        return padded.index_copy(0, self.places, flat).unflatten(0, self.is_token.shape)

    def unflatten_spans(self, spans: Tensor) -> Tensor:
        """``(num_tokens, 2)`` flat spans by split point, -1 at sentence ends, to ``(batch, seq_len - 1, 2)``, counted
        from each sentence's first token."""
        return self.pad((spans - self.first[:, None]).masked_fill(spans < 0, -1), -1)[:, :-1]


@dataclass(frozen=True)
class EmbeddedBatch:
    """Checked sentences, ready for a chart.

    Attributes:
        leaves: ``(num_tokens, hidden_size)``.
        special: vectors of the special tokens by name, each ``(1, hidden_size)``.
        split_scores: ``(batch, seq_len - 1)``.
        host_scores: ``split_scores`` on the host, checked; None if they are the parser's in training.
        nesting: ``(batch, seq_len - 1)`` long, on the host, see `parser.span_nesting`; None without span constraints.
        padded_leaves: ``(batch, seq_len, hidden_size)``, of which ``leaves`` were taken, if hidden states are wanted.
    """

    sentences: Sentences
    leaves: Tensor
    special: dict[str, Tensor]
    split_scores: Tensor
    host_scores: Tensor | None
    nesting: Tensor | None
    padded_leaves: Tensor | None = None


def check_tokens(
    tokens: Tensor,
    attention_mask: Tensor | None,
    atom_spans: Tensor | None,
    pad_token_id: int,
    vocab_size: int,
) -> tuple[Sentences, Tensor | None]:
    """Check token ids ``(batch, seq_len)`` or vectors ``(batch, seq_len, hidden_size)``, mask and span constraints.

    Without a mask, ``pad_token_id`` marks the padding of ids, and vectors have none. Everything is read from the device
    at once, and checked on the host.

    Returns:
        The sentences, and ``atom_spans`` on the host.

    Raises:
        ValueError: for wrong shapes or types, and naming the row for rows without tokens, left padding, holes in the
            mask, ids outside the vocabulary, and spans that are reversed or outside their sentence.
    """
    is_ids = not tokens.is_floating_point()
    if tokens.dim() != (2 if is_ids else 3) or 0 in tokens.shape[:2]:
        expected = "input_ids must be (batch, seq_len)" if is_ids else "inputs_embeds (batch, seq_len, hidden_size)"
        raise ValueError(f"{expected} with at least one sentence of one token, got {tuple(tokens.shape)}")
    if attention_mask is not None and attention_mask.shape != tokens.shape[:2]:
        raise ValueError(f"attention_mask must be {tuple(tokens.shape[:2])}, got {tuple(attention_mask.shape)}")
    if atom_spans is not None:
        _check_span_shape(atom_spans, len(tokens))
    mask = None if attention_mask is None else attention_mask.bool()
    ids, mask, spans = to_host(tokens if is_ids else None, mask, atom_spans)
    if mask is None:
        is_token = ids != pad_token_id if is_ids else torch.ones(tokens.shape[:2], dtype=torch.bool)
    else:
        is_token = mask.bool()
    lengths = is_token.sum(1)
    is_prefix = torch.arange(tokens.shape[1]) < lengths[:, None]
    refuse_rows(lengths == 0, "no token", "drop the sentence or give it the [UNK] token")
    refuse_rows((is_token != is_prefix).any(1), "padding before or between its tokens", "pad on the right")
    if is_ids:
        outside = ((ids < 0) | (ids >= vocab_size)) & is_token
        remedy = f"use ids in 0 ... {vocab_size - 1}, or model.resize_token_embeddings"
        refuse_rows(outside.any(1), "a token id outside the vocabulary", remedy)
    if spans is not None:
        _check_spans(spans, lengths)
    return Sentences.of(is_token, tokens.device), spans


def split_pairs(
    input_ids: Tensor, token_type_ids: Tensor, pad_token_id: int, attention_mask: Tensor | None = None
) -> dict[str, Tensor]:
    """Pairs as tokenizers write them, one row per pair, to one row per sentence.

    Args:
        input_ids, attention_mask: ``(batch, seq_len)``, as for `check_tokens`, but padding may be on either side.
        token_type_ids: ``(batch, seq_len)``, 0 on tokens of the first sentence and 1 on those of the second.

    Returns:
        ``input_ids`` and ``attention_mask``, ``(batch, 2, longest sentence)``.

    Raises:
        ValueError: for other shapes, and naming the row for pairs in which one sentence has no token.
    """
    if attention_mask is None:
        attention_mask = input_ids != pad_token_id
    shapes = [tuple(tensor.shape) for tensor in (input_ids, token_type_ids, attention_mask)]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2:
        listed = ", ".join(map(str, shapes))
        raise ValueError(f"input_ids, token_type_ids and attention_mask must be (batch, seq_len), got {listed}")
    device = input_ids.device
    input_ids, token_type_ids, attention_mask = to_host(input_ids, token_type_ids, attention_mask.bool())
    sides = torch.stack([token_type_ids == 0, token_type_ids == 1], dim=1) & attention_mask.bool()[:, None]
    lengths = sides.sum(-1)  # (batch, 2)
    remedy = "give both texts to the tokenizer, whose token_type_ids tell them apart"
    refuse_rows((lengths == 0).any(1), "a pair with a sentence of no token", remedy)
    is_token = torch.arange(int(lengths.max())) < lengths[..., None]
    pairs = input_ids.new_full(is_token.shape, pad_token_id)
    pairs[is_token] = input_ids[:, None].expand(-1, 2, -1)[sides]
    pairs, mask = to_device([pairs, is_token.long()], device)
    return {"input_ids": pairs, "attention_mask": mask}


def _check_span_shape(atom_spans: Tensor, batch: int) -> None:
    if atom_spans.dim() != 3 or atom_spans.shape[0] != batch or atom_spans.shape[2] != 2:
        raise ValueError(f"atom_spans must be ({batch}, max_spans, 2), got {tuple(atom_spans.shape)}")
    if atom_spans.dtype != torch.long:
        raise ValueError(f"atom_spans must be long (torch.int64), got {atom_spans.dtype}")


def _check_spans(atom_spans: Tensor, lengths: Tensor) -> None:
    first, last = atom_spans.unbind(-1)
    is_padding = (first == -1) & (last == -1)
    refuse_rows(((first > last) & ~is_padding).any(1), "a reversed span in atom_spans", "give (first, last) tokens")
    outside = ((first < 0) | (last >= lengths[:, None])) & ~is_padding
    remedy = "spans are inclusive, within the row's own tokens, and padded with -1"
    refuse_rows(outside.any(1), "a span in atom_spans outside the sentence", remedy)


def check_split_scores(split_scores: Tensor, sentences: Sentences) -> None:
    """Raise ValueError unless scores are ``(batch, seq_len - 1)`` floating point."""
    batch, seq_len = sentences.is_token.shape
    if split_scores.shape != (batch, seq_len - 1):
        raise ValueError(f"split_scores must be {(batch, seq_len - 1)}, got {tuple(split_scores.shape)}")
    if not split_scores.is_floating_point():
        raise ValueError(f"split_scores must be floating point, got {split_scores.dtype}")


def read_split_scores(split_scores: Tensor, sentences: Sentences) -> Tensor:
    """The scores on the host, detached; the host waits for them. Raises ValueError as `check_split_scores`, and naming
    the row for NaN at a split point."""
    check_split_scores(split_scores, sentences)
    scores = split_scores.detach().cpu()
    is_nan = scores.isnan() & sentences.is_token[:, 1:]
    refuse_rows(is_nan.any(1), "NaN in split_scores", "scores may be infinite, not NaN; check the weights and inputs")
    return scores


def check_finite_scores(split_scores: Tensor, sentences: Sentences) -> None:
    """Raise ValueError naming the row for infinite scores at split points: under them trees have no likelihood."""
    is_infinite = split_scores.detach().cpu().isinf() & sentences.is_token[:, 1:]
    refuse_rows(
        is_infinite.any(1), "infinite split_scores", "the tree loss needs finite ones, such as 1e4 for infinity"
    )


def check_tree_labels(labels: Tensor, sentences: Sentences) -> None:
    """Raise ValueError unless labels are ``(batch, seq_len - 1, 2)`` long, each a span of the sentence around its split
    point, or -1."""
    batch, seq_len = sentences.is_token.shape
    if labels.shape != (batch, seq_len - 1, 2) or labels.dtype != torch.long:
        raise ValueError(f"labels must be {(batch, seq_len - 1, 2)} long, got {tuple(labels.shape)} {labels.dtype}")
    first, last = labels.cpu().unbind(-1)
    split = torch.arange(seq_len - 1)
    is_good = (first >= 0) & (first <= split) & (last > split) & (last < sentences.lengths[:, None])
    is_bad = ~is_good & ~((first == -1) & (last == -1))
    refuse_rows(
        is_bad.any(1), "labels that are no spans around their split points", "give spans as a model's output has"
    )


def check_encoding(encoding: str) -> str:
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {encoding!r}")
    return encoding


def check_decoding(decoding: str, encoding: str) -> None:
    if decoding not in ("best", "minimum_risk"):
        raise ValueError(f"decoding must be best or minimum_risk, got {decoding!r}")
    if decoding == "minimum_risk" and encoding == "forced":
        raise ValueError("forced encoding has one tree, nothing to decode; use encoding='chart' for minimum_risk")


def refuse_rows(is_bad: Tensor, what: str, remedy: str) -> None:
    if is_bad.any():
        rows = is_bad.nonzero()[:, 0].tolist()
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        raise ValueError(f"row {', '.join(map(str, rows[:3]))}{more} of the batch has {what}; {remedy}")
