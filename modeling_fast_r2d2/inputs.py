"""Checks of what enters a model, before any work, and the flat layout of `chart`."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .chart import to_device, to_host
from .configuration_fast_r2d2 import ENCODINGS

logger = logging.get_logger(__name__)


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
        token_ids: ``(num_tokens,)`` long or int; None of a batch of vectors.
        leaves: ``(num_tokens, hidden_size)``.
        special: vectors of the special tokens by name, each ``(1, hidden_size)``.
        split_scores: ``(batch, seq_len - 1)``.
        checked_scores: ``split_scores`` on the host; None if they are the parser's in training, which nobody checks.
        nesting: ``(batch, seq_len - 1)`` long, on the host, see `parser.span_nesting`; None without span constraints.
        split_bonus: ``(batch, seq_len - 1)``, which ``split_scores`` have in them; None if nothing was added.
        padded_leaves: ``(batch, seq_len, hidden_size)``, of which ``leaves`` were taken, if hidden states are wanted.
    """

    sentences: Sentences
    token_ids: Tensor | None
    leaves: Tensor
    special: dict[str, Tensor]
    split_scores: Tensor
    checked_scores: Tensor | None
    nesting: Tensor | None
    split_bonus: Tensor | None = None
    padded_leaves: Tensor | None = None

    @cached_property
    def host_scores(self) -> Tensor:
        """``split_scores`` on the host, detached; the host waits for them once."""
        return self.split_scores.detach().cpu() if self.checked_scores is None else self.checked_scores


def check_ids(
    input_ids: Tensor, attention_mask: Tensor | None, atom_spans: Tensor | None, config: Any
) -> tuple[Tensor, Sentences, Tensor | None]:
    """Check token ids ``(batch, seq_len)``, their mask and span constraints.

    Without a mask, ``pad_token_id`` marks the padding. Everything is read from the device at once, and checked on the
    host.

    Returns:
        The ids, padded on the right, with one ``unk_token_id`` in a row without a token; the sentences; and
        ``atom_spans`` on the host.

    Raises:
        ValueError: for wrong shapes or types, and naming the row for masks of other values than 0 and 1, padding
            between tokens, ids outside the vocabulary, and spans that are reversed or outside their sentence.
    """
    _check_integers("input_ids", input_ids)
    if input_ids.dim() == 2 and not input_ids.shape[1]:
        _check_mask_shape(attention_mask, input_ids.shape)
        input_ids, attention_mask = input_ids.new_full((len(input_ids), 1), config.pad_token_id, dtype=torch.long), None
    _check_shape("input_ids", "(batch, seq_len)", input_ids)
    _check_mask_shape(attention_mask, input_ids.shape)
    _check_span_shape(atom_spans, len(input_ids))
    ids, mask, spans = to_host(input_ids, _mask_codes(attention_mask), atom_spans)
    is_token = _check_mask(ids != config.pad_token_id if mask is None else mask)
    outside = ((ids < 0) | (ids >= config.vocab_size)) & is_token
    remedy = f"use ids in 0 ... {config.vocab_size - 1}, or model.resize_token_embeddings"
    refuse_rows(outside.any(1), "a token id outside the vocabulary", remedy)
    is_empty = ~is_token.any(1)
    if is_empty.any():
        is_unknown = is_empty[:, None] & (torch.arange(ids.shape[1], device=ids.device) == 0)
        is_token = is_token | is_unknown
        input_ids = input_ids.masked_fill(is_unknown.to(input_ids.device), config.unk_token_id)
    return *_pad_on_the_right(input_ids, is_token), _check_spans(spans, is_token.sum(1))


def check_embeddings(
    inputs_embeds: Tensor, attention_mask: Tensor | None, atom_spans: Tensor | None, hidden_size: int
) -> tuple[Tensor, Sentences, Tensor | None]:
    """Check vectors ``(batch, seq_len, hidden_size)`` as `check_ids` checks ids. Without a mask there is no padding. A
    ValueError names a row without a token, and one with NaN or infinity, except in its padding."""
    if not isinstance(inputs_embeds, Tensor) or not inputs_embeds.is_floating_point():
        raise ValueError(f"inputs_embeds must be a floating-point tensor, got {kind_of(inputs_embeds)}")
    _check_shape("inputs_embeds", "(batch, seq_len, hidden_size)", inputs_embeds)
    if inputs_embeds.shape[-1] != hidden_size:
        raise ValueError(f"inputs_embeds must end in {hidden_size}, got {tuple(inputs_embeds.shape)}")
    _check_mask_shape(attention_mask, inputs_embeds.shape[:2])
    _check_span_shape(atom_spans, len(inputs_embeds))
    is_finite = inputs_embeds.isfinite().all(-1)
    finite, mask, spans = to_host(is_finite, _mask_codes(attention_mask), atom_spans)
    is_token = _check_mask(torch.ones_like(finite) if mask is None else mask)
    is_bad = (finite == 0) & is_token
    refuse_rows(is_bad.any(1), "NaN or infinity in inputs_embeds", "give finite vectors")
    refuse_rows(~is_token.any(1), "no token", "give it the vector of the unknown token")
    return *_pad_on_the_right(inputs_embeds, is_token), _check_spans(spans, is_token.sum(1))


def _check_integers(name: str, tensor: object) -> None:
    """Texts without a token, ``(batch, 0)``, may be of any type: torch makes an empty list floating point."""
    has_no_token = isinstance(tensor, Tensor) and tensor.dim() == 2 and not tensor.shape[1]
    if not has_no_token and not (isinstance(tensor, Tensor) and tensor.dtype in (torch.int64, torch.int32)):
        raise ValueError(f"{name} must be a tensor of int64 or int32, got {kind_of(tensor)}")


def _pad_on_the_right(padded: Tensor, is_token: Tensor) -> tuple[Tensor, Sentences]:
    """``(batch, seq_len, ...)`` with each row's first token in the first column.

    Args:
        is_token: ``(batch, seq_len)`` bool, on the host.
    """
    first = is_token.int().argmax(1, keepdim=True)
    if first.any():
        columns = (first + torch.arange(is_token.shape[1], device=first.device)) % is_token.shape[1]
        is_token = is_token.gather(1, columns)
        [columns] = to_device([columns], padded.device)
        padded = padded.take_along_dim(columns.view(*columns.shape, *[1] * (padded.dim() - 2)), 1)
    return padded, Sentences.of(is_token, padded.device)


def _check_shape(name: str, shape: str, tensor: Tensor) -> None:
    if tensor.dim() != shape.count(",") + 1 or 0 in tensor.shape:
        raise ValueError(f"{name} must be {shape} with at least one sentence of one token, got {tuple(tensor.shape)}")


def _check_mask_shape(attention_mask: Tensor | None, shape: torch.Size) -> None:
    if attention_mask is None:
        return
    is_mask = isinstance(attention_mask, Tensor) and attention_mask.shape == shape and not attention_mask.is_complex()
    if not is_mask:
        raise ValueError(f"attention_mask must be {tuple(shape)} of 0 and 1, got {kind_of(attention_mask)}")


def _mask_codes(attention_mask: Tensor | None) -> Tensor | None:
    """0 for 0, 1 for 1, 2 for anything else, since fractions and NaN would not reach the host as such."""
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return attention_mask
    return torch.where(attention_mask == attention_mask.bool(), attention_mask, 2)


def _check_mask(mask: Tensor) -> Tensor:
    """``(batch, seq_len)`` bool from the codes of a mask, on the host. Padding may be on either side."""
    refuse_rows((mask > 1).any(1), "an attention_mask of other values than 0 and 1", "use 1 on tokens, 0 on padding")
    is_token = mask.bool()
    is_first = F.pad(is_token.long(), (1, 0)).diff(dim=1) == 1  # of a run of tokens
    refuse_rows(is_first.sum(1) > 1, "padding between its tokens", "pad on one side")
    return is_token


def split_pairs(
    input_ids: Tensor, token_type_ids: Tensor, pad_token_id: int, attention_mask: Tensor | None = None
) -> dict[str, Tensor]:
    """Pairs as tokenizers write them, one row per pair, to one row per sentence.

    Args:
        input_ids, attention_mask: ``(batch, seq_len)``, as for `check_ids`, but padding may be on either side.
        token_type_ids: ``(batch, seq_len)``, 0 on tokens of the first sentence and 1 on those of the second.

    Returns:
        ``input_ids`` and ``attention_mask``, ``(batch, 2, longest sentence)``; a sentence without a token is padding
        alone.

    Raises:
        ValueError: for other shapes and types, and naming the row for masks of other values than 0 and 1, and for
            tokens of another type than 0 and 1.
    """
    for name, tensor in {"input_ids": input_ids, "token_type_ids": token_type_ids}.items():
        _check_integers(name, tensor)
    if input_ids.dim() != 2 or token_type_ids.shape != input_ids.shape:
        listed = f"{tuple(input_ids.shape)} and {tuple(token_type_ids.shape)}"
        raise ValueError(f"input_ids and token_type_ids must be (batch, seq_len), got {listed}")
    if not len(input_ids):
        raise ValueError(f"input_ids must have at least one pair, got {tuple(input_ids.shape)}")
    _check_mask_shape(attention_mask, input_ids.shape)
    device = input_ids.device
    input_ids, token_type_ids, mask = to_host(input_ids, token_type_ids, _mask_codes(attention_mask))
    mask = input_ids != pad_token_id if mask is None else mask
    refuse_rows((mask > 1).any(1), "an attention_mask of other values than 0 and 1", "use 1 on tokens, 0 on padding")
    sides = torch.stack([token_type_ids == 0, token_type_ids == 1], dim=1) & mask.bool()[:, None]
    lengths = sides.sum(-1)  # (batch, 2)
    remedy = "give both texts to the tokenizer, whose token_type_ids tell them apart"
    refuse_rows((sides.any(1) != mask.bool()).any(1), "token_type_ids other than 0 and 1", remedy)
    if not lengths.all():
        logger.warning_once(f"a pair has a sentence of no token, which is read as unknown; if it has a text, {remedy}")
    is_token = torch.arange(int(lengths.max()), device=lengths.device) < lengths[..., None]
    pairs = input_ids.new_full(is_token.shape, pad_token_id)
    pairs[is_token] = input_ids[:, None].expand(-1, 2, -1)[sides]
    pairs, mask = to_device([pairs, is_token.long()], device)
    return {"input_ids": pairs, "attention_mask": mask}


def _check_span_shape(atom_spans: Tensor | None, batch: int) -> None:
    if atom_spans is None:
        return
    are_long = isinstance(atom_spans, Tensor) and atom_spans.dtype == torch.long
    if not are_long or atom_spans.dim() != 3 or atom_spans.shape[::2] != (batch, 2):
        raise ValueError(f"atom_spans must be ({batch}, max_spans, 2) long, got {kind_of(atom_spans)}")


def _check_spans(atom_spans: Tensor | None, lengths: Tensor) -> Tensor | None:
    if atom_spans is None:
        return None
    first, last = atom_spans.unbind(-1)
    is_padding = (first == -1) & (last == -1)
    refuse_rows(((first > last) & ~is_padding).any(1), "a reversed span in atom_spans", "give (first, last) tokens")
    outside = ((first < 0) | (last >= lengths[:, None])) & ~is_padding
    remedy = "spans are inclusive, within the row's own tokens, and padded with -1"
    refuse_rows(outside.any(1), "a span in atom_spans outside the sentence", remedy)
    return atom_spans


def check_split_scores(split_scores: Tensor, sentences: Sentences, name: str = "split_scores") -> None:
    """Raise ValueError unless scores are ``(batch, seq_len - 1)`` floating point."""
    batch, seq_len = sentences.is_token.shape
    are_scores = isinstance(split_scores, Tensor) and split_scores.is_floating_point()
    if not are_scores or split_scores.shape != (batch, seq_len - 1):
        raise ValueError(f"{name} must be {(batch, seq_len - 1)} floating point, got {kind_of(split_scores)}")


def add_split_bonus(
    scores: Tensor, split_bonus: Tensor | None, split_signs: Tensor | None, sentences: Sentences, config: Any
) -> tuple[Tensor, Tensor | None]:
    """The scores with the given bonus and, where signs ask for them, the configuration's; and all that was added.

    Raises:
        ValueError: as `check_split_scores` for scores and bonus; for signs that are no whole numbers of that shape.
    """
    batch, seq_len = sentences.is_token.shape
    if split_signs is not None:
        is_whole = isinstance(split_signs, Tensor) and not (split_signs.is_floating_point() or split_signs.is_complex())
        if not is_whole or split_signs.shape != (batch, seq_len - 1):
            raise ValueError(f"split_signs must be {(batch, seq_len - 1)} of 1, -1 and 0, got {kind_of(split_signs)}")
    if split_bonus is not None:
        check_split_scores(split_bonus, sentences, "split_bonus")
    if split_signs is not None and (config.bounds_bonus or config.names_bonus):
        own = split_bonus_of(split_signs, config.bounds_bonus, config.names_bonus)
        split_bonus = own if split_bonus is None else own + split_bonus
    if split_bonus is None:
        return scores, None
    check_split_scores(scores, sentences)
    return scores + split_bonus.to(scores), split_bonus


def read_split_scores(split_scores: Tensor, sentences: Sentences) -> Tensor:
    """The scores on the host, detached; the host waits for them. Raises ValueError as `check_split_scores`, and naming
    the row for NaN at a split point."""
    check_split_scores(split_scores, sentences)
    scores = split_scores.detach().cpu()
    is_nan = scores.isnan() & sentences.is_token[:, 1:]
    refuse_rows(is_nan.any(1), "NaN in split_scores", "scores may be infinite, not NaN; check the weights and inputs")
    return scores


def check_finite_scores(batch: EmbeddedBatch, remedy: str = "the tree loss needs finite scores") -> None:
    """Raise ValueError, naming the row, for infinite split scores, which make the tree loss NaN. The parser's own are
    not checked in training: there NaN reaches the loss, where loops look for it."""
    if batch.checked_scores is not None:
        is_infinite = batch.checked_scores.isinf() & batch.sentences.is_token[:, 1:]
        refuse_rows(is_infinite.any(1), "infinity in split_scores", remedy)


def check_tree_labels(labels: Tensor, sentences: Sentences) -> None:
    """Raise ValueError unless labels are ``(batch, seq_len - 1, 2)`` long, each a span of the sentence around its split
    point, or -1."""
    batch, seq_len = sentences.is_token.shape
    if not isinstance(labels, Tensor) or labels.shape != (batch, seq_len - 1, 2) or labels.dtype != torch.long:
        raise ValueError(f"labels must be {(batch, seq_len - 1, 2)} long, got {kind_of(labels)}")
    first, last = labels.cpu().unbind(-1)
    split = torch.arange(seq_len - 1, device=first.device)
    is_good = (first >= 0) & (first <= split) & (last > split) & (last < sentences.lengths[:, None])
    is_bad = ~is_good & ~((first == -1) & (last == -1))
    refuse_rows(
        is_bad.any(1), "labels that are no spans around their split points", "give spans as a model's output has"
    )


def check_labels(labels: Tensor, num_rows: int, num_labels: int, problem_type: str | None) -> None:
    """Raise ValueError unless labels fit a classifier's task.

    Args:
        labels: ``(num_rows,)`` long, classes; or floating point: ``(num_rows,)`` for the regression of one
            number, ``(num_rows, num_labels)`` otherwise. A last axis of size 1 may be added to ``(num_rows,)``.
        problem_type: as in the configuration. None finds it out from the labels as transformers does.
    """
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels must be a tensor, got {kind_of(labels)}")
    are_classes = num_labels > 1 and not (labels.is_floating_point() or labels.dtype == torch.bool)
    if problem_type is not None:
        are_classes = problem_type == "single_label_classification"
    of_one_number = are_classes or (num_labels == 1 and problem_type != "multi_label_classification")
    shapes = [(num_rows,), (num_rows, 1)] if of_one_number else [(num_rows, num_labels)]
    is_right_type = labels.dtype == torch.long if are_classes else labels.is_floating_point()
    if tuple(labels.shape) not in shapes or not is_right_type:
        expected = f"{shapes[0]} {'long' if are_classes else 'floating point'}"
        raise ValueError(f"labels must be {expected}, one row per sentence or pair, got {kind_of(labels)}")
    if are_classes:
        rows, remedy = labels.flatten(), f"labels must be in 0 ... {num_labels - 1}; set num_labels"
        refuse_rows((rows < 0) | (rows >= num_labels), "a label outside the classes", remedy)


def check_ids_to_predict(batch: EmbeddedBatch) -> Tensor:
    """The token ids of a batch. Raises ValueError if it was given as vectors, which no language model predicts."""
    if batch.token_ids is None:
        raise ValueError("the language-model loss needs input_ids; evaluate with inputs_embeds, train with ids")
    return batch.token_ids


def check_encoding(encoding: str, choices: tuple[str, ...] = ENCODINGS) -> str:
    if encoding not in choices:
        raise ValueError(f"encoding must be one of {', '.join(choices)}, got {encoding!r}")
    return encoding


def split_bonus_of(split_signs: Tensor, bounds_bonus: float, names_bonus: float) -> Tensor:
    """What is added to split scores, float32: ``bounds_bonus`` at bounds (1), less ``names_bonus`` within names (-1).

    Args:
        split_signs: ``(batch, seq_len - 1)``, as `FastR2D2Processor.pad` makes it.
        bounds_bonus, names_bonus: nats.
    """
    return bounds_bonus * (split_signs > 0).float() - names_bonus * (split_signs < 0).float()


def refuse_rows(is_bad: Tensor, what: str, remedy: str) -> None:
    if is_bad.any():
        rows = is_bad.nonzero()[:, 0].tolist()
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        raise ValueError(f"row {', '.join(map(str, rows[:3]))}{more} of the batch has {what}; {remedy}")


def kind_of(value: object) -> str:
    """The shape and dtype of a tensor, or the type of anything else, for messages."""
    return f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
