"""Sentences to token ids and word spans, and spans to tensors.

Part of `tokenization_fast_r2d2`; it lies here because what travels with a checkpoint, pipelines and embeddings, needs
it where neither package is installed.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

logger = logging.get_logger(__name__)

Span = tuple[int, int]


def word_spans(word_ids: Sequence[int | None]) -> list[Span]:
    """Spans of the words of two or more pieces, which a tree should keep whole (the model's ``atom_spans``).

    Args:
        word_ids: for each piece the number of its word, None for pieces of no word, as
            ``BatchEncoding.word_ids()`` has them.

    Returns:
        First and last piece of each such word, inclusive, in order.
    """
    spans, start = [], 0
    for end in range(1, len(word_ids) + 1):
        if end == len(word_ids) or word_ids[end] != word_ids[start] or word_ids[start] is None:
            if end - start > 1:
                spans.append((start, end - 1))
            start = end
    return spans


def tokenize_sentences(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str] | Iterable[Sequence[str]],
    *,
    max_length: int | None = None,
    is_split_into_words: bool = False,
) -> dict[str, list]:
    """Token ids, words and word spans of sentences; as many rows as sentences, in their order.

    Args:
        tokenizer: a fast tokenizer.
        sentences: texts, or lists of words if ``is_split_into_words``.
        max_length: most pieces kept of a sentence; None keeps all.

    Returns:
        A list for each sentence: ``input_ids``, ``word_ids`` (the number of each piece's word), ``words`` (as they
        stand in the text), ``offsets`` (each piece's first character, of the text or of its word, and the one behind
        its last) and ``atom_spans`` (inclusive spans of pieces). A sentence without text is one ``[UNK]``;
        how many there were is logged once.

    Raises:
        ValueError: for a slow tokenizer, which does not know its words, a ``max_length`` below 1, or one string in
            place of sentences.
    """
    if not tokenizer.is_fast:
        raise ValueError("word spans need a fast tokenizer; load it with AutoTokenizer.from_pretrained")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length must be >= 1, got {max_length}")
    if isinstance(sentences, str):
        raise ValueError("sentences must be a list of sentences, got one string; put it in a list")
    sentences = list(sentences)
    if not sentences:
        return {"input_ids": [], "word_ids": [], "words": [], "offsets": [], "atom_spans": []}
    encoded = tokenizer(
        sentences, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True, verbose=False,
        is_split_into_words=is_split_into_words, truncation=max_length is not None, max_length=max_length,
    )  # fmt: skip
    rows = {"input_ids": encoded["input_ids"], "word_ids": [], "words": [], "offsets": encoded["offset_mapping"]}
    for row, sentence in enumerate(sentences):
        word_ids, offsets = encoded.word_ids(row), encoded["offset_mapping"][row]
        words = _words(sentence, word_ids, offsets, is_split_into_words)
        rows["word_ids"].append(word_ids)
        rows["words"].append(words)
    _fill_empty(rows, tokenizer.unk_token, tokenizer.unk_token_id)
    return rows | {"atom_spans": [word_spans(word_ids) for word_ids in rows["word_ids"]]}


def tokens_with_pieces(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[Sequence[str]]) -> set[str]:
    """Those of the sentences' tokens that the tokenizer does not drop and that are not blank."""
    tokens = list({token for sentence in sentences for token in sentence})
    if not tokens:
        return set()
    encoded = tokenizer(tokens, is_split_into_words=True, add_special_tokens=False, verbose=False)
    return {tokens[word] for word in encoded.word_ids() if tokens[word].strip()}


def show_all_words(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """Words as a model is shown them: what the tokenizer would drop is unknown, so that every word has a piece."""
    known, unknown = tokens_with_pieces(tokenizer, sentences), tokenizer.unk_token
    return [[word if word in known else unknown for word in sentence] or [unknown] for sentence in sentences]


def batches_by_length(
    lengths: Sequence[int], batch_size: int | None = None, batch_tokens: int | None = None
) -> Iterator[list[int]]:
    """Rows in batches of like length, short ones first.

    Args:
        batch_size: most rows of a batch.
        batch_tokens: most tokens of a batch, padding included; a row longer than that is a batch of its own.

    Raises:
        ValueError: for a limit below 1.
    """
    for name, limit in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
        if limit is not None and limit < 1:
            raise ValueError(f"{name} must be >= 1, got {limit}")
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        is_full = len(batch) == batch_size or (batch_tokens and (len(batch) + 1) * lengths[row] > batch_tokens)
        if batch and is_full:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def pad_spans(spans: list[list[tuple[int, int]]]) -> Tensor:
    """Lists of inclusive spans to ``(batch, max_spans, 2)`` long, padded with -1."""
    padded = torch.full((len(spans), max(map(len, spans)), 2), -1)
    for row, row_spans in enumerate(spans):
        if len(row_spans):
            padded[row, : len(row_spans)] = torch.as_tensor(row_spans)
    return padded


def _words(sentence: str | Sequence[str], word_ids: list[int | None], offsets: list[Span], is_split: bool) -> list[str]:
    """Each word that has pieces, in order; a word reaches from its first piece to its last."""
    reach: dict[int | None, Span] = {}
    for word, (start, end) in zip(word_ids, offsets, strict=True):
        reach[word] = (reach.get(word, (start, end))[0], end)
    # Special tokens reach over the blanks around them.
    return [sentence[word] if is_split else sentence[start:end].strip() for word, (start, end) in reach.items()]


def _fill_empty(rows: dict[str, list], unk_token: str, unk_token_id: int) -> None:
    empty = [row for row, words in enumerate(rows["words"]) if not any(word.strip() for word in words)]
    for row in empty:
        rows["input_ids"][row], rows["word_ids"][row], rows["words"][row] = [unk_token_id], [0], [unk_token]
        rows["offsets"][row] = [(0, 0)]
    if empty:
        logger.warning(
            f"{len(empty)} of {len(rows['input_ids'])} sentences have no text, the first is number "
            f"{empty[0] + 1}; each becomes one {unk_token}"
        )


__all__ = ["batches_by_length", "tokenize_sentences", "pad_spans", "word_spans"]
