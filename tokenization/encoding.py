"""Sentences to token ids and word spans."""

from collections.abc import Iterable, Sequence

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


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[str] | Iterable[Sequence[str]],
    *,
    max_length: int | None = None,
    is_split_into_words: bool = False,
) -> dict[str, list]:
    """Token ids, word numbers and word spans of sentences; as many rows as sentences, in their order.

    Args:
        tokenizer: a fast tokenizer.
        sentences: texts, or lists of words if ``is_split_into_words``.
        max_length: most pieces kept of a sentence; None keeps all.

    Returns:
        ``input_ids`` and ``word_ids``, a list of ints per sentence, and ``atom_spans``, a list of inclusive spans per
        sentence. A sentence without text is one ``[UNK]``; how many there were is logged once.

    Raises:
        ValueError: for a slow tokenizer, which does not know its words, or a ``max_length`` below 1.
    """
    if not tokenizer.is_fast:
        raise ValueError("word spans need a fast tokenizer; load it with AutoTokenizer.from_pretrained")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length must be >= 1, got {max_length}")
    sentences = list(sentences)
    if not sentences:
        return {"input_ids": [], "word_ids": [], "atom_spans": []}
    encoded = tokenizer(
        sentences, add_special_tokens=False, return_attention_mask=False, verbose=False,
        is_split_into_words=is_split_into_words, truncation=max_length is not None, max_length=max_length,
    )  # fmt: skip
    input_ids = encoded["input_ids"]
    word_ids = [encoded.word_ids(row) for row in range(len(sentences))]
    _fill_empty(input_ids, word_ids, tokenizer.unk_token_id)
    return {"input_ids": input_ids, "word_ids": word_ids, "atom_spans": [word_spans(row) for row in word_ids]}


def _fill_empty(input_ids: list[list[int]], word_ids: list[list[int | None]], unknown: int) -> None:
    empty = [row for row, ids in enumerate(input_ids) if not ids]
    for row in empty:
        input_ids[row], word_ids[row] = [unknown], [0]
    if empty:
        logger.warning(f"{len(empty)} of {len(input_ids)} sentences have no text, the first is number {empty[0] + 1}; "
                       "each becomes one [UNK]")
