"""Sentences as token ids, with the words that the tokens belong to."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import regex
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .trees import Span
from .word_rules import find_words

logger = logging.get_logger(__name__)

ACCENTS = regex.compile(r"\p{M}*")  # combining marks

Pieces = dict[str, tuple[list[int], list[Span]]]  # of words: the ids of their pieces, and where those are in the word


def checked_sentences(sentences: Iterable[Any], is_split_into_words: bool = False) -> Iterator[Any]:
    """Pass sentences on as they come, and stop at the first that is no text.

    Args:
        sentences: texts, or lists of words if ``is_split_into_words``.

    Raises:
        ValueError: naming the row, from 0, if it is no string (or no list of strings), or if it has a lone surrogate,
            which no UTF-8 text has; and if ``sentences`` is a single string, a table or no collection.
    """
    is_one = isinstance(sentences, str | bytes | Mapping) or getattr(sentences, "ndim", 1) == 0
    if is_one or not isinstance(sentences, Iterable):
        raise ValueError(f"sentences must be a list of sentences, got one {type(sentences).__name__}; put it in a list")
    if hasattr(sentences, "columns"):  # a table, such as a DataFrame, would give the names of its columns
        raise ValueError(f"sentences must be a list of sentences, got a {type(sentences).__name__}; give one column")
    for row, sentence in enumerate(sentences):
        if not is_split_into_words:
            check_text(sentence, f"row {row}")
        elif isinstance(sentence, str | bytes) or not isinstance(sentence, Sequence | np.ndarray):
            raise ValueError(f"row {row} must be a list of strings, its words, got {sentence!r:.80}")
        else:
            for number, word in enumerate(sentence):
                check_text(word, f"row {row}, word {number}")
        yield sentence


def check_text(text: object, place: str) -> None:
    """Raise a ValueError that names the place unless this is a string that UTF-8 can write."""
    if not isinstance(text, str):
        raise ValueError(f"{place}: a text must be a string, got {text!r:.80}")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{place}: a lone surrogate, {text[error.start]!r}, at character {error.start}; "
            "decode the bytes in their own encoding"
        ) from None


@contextmanager
def tokenizer_errors() -> Iterator[None]:
    """Turn a panic of the tokenizers library into a ValueError. A panic is no `Exception`, and nobody can import its
    class."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizer breaks off ({error}); check the expressions in its tokenizer.json") from error


def word_spans(word_ids: Sequence[int | None]) -> list[Span]:
    """Spans of the words that have two or more pieces. A tree should keep these words whole (``atom_spans``).

    Args:
        word_ids: the word number of each piece, as ``BatchEncoding.word_ids()`` returns them; None for a piece that
            belongs to no word.

    Returns:
        The first and last piece of each such word, inclusive, from left to right.
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
) -> dict[str, list[Any]]:
    """Token ids, words and word spans of sentences.

    Args:
        tokenizer: a fast tokenizer.
        sentences: texts, or lists of words if ``is_split_into_words``.
        max_length: the number of pieces to keep of each sentence; None keeps all.

    Returns:
        Lists with one entry per sentence, in order: ``input_ids``, ``word_ids`` (the word number of each piece),
        ``words`` (those that have pieces, as the text spells them; numbers count given words without pieces, too),
        ``offsets`` (for each piece, its first character and the one after its last, in the text or in its word) and
        ``atom_spans`` (see `word_spans`). A sentence without text becomes one ``[UNK]``; one warning gives the number
        of such sentences.

    Raises:
        ValueError: as from `check_can_tokenize` and `checked_sentences`.
    """
    check_can_tokenize(tokenizer, max_length)
    checked = list(checked_sentences(sentences, is_split_into_words))
    if is_split_into_words:
        return tokenize_words(tokenizer, checked, pieces_of_words(tokenizer, checked), max_length)
    return _completed(tokenizer, _encode(tokenizer, checked, max_length))


def check_can_tokenize(tokenizer: PreTrainedTokenizerBase, max_length: int | None) -> None:
    """Raise a ValueError for a tokenizer that does not know its words or wants to cut off the beginnings of texts, and
    for a length below 1."""
    if not tokenizer.is_fast:
        raise ValueError("word spans need a fast tokenizer; load it with AutoTokenizer.from_pretrained")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length must be >= 1, got {max_length}")
    if max_length is not None and tokenizer.truncation_side != "right":
        raise ValueError(f"sentences lose their ends, but the tokenizer's truncation_side is "
                         f"{tokenizer.truncation_side!r}; set it to 'right', or shorten the texts")  # fmt: skip


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sequence[str]],
    pieces: Pieces,
    max_length: int | None = None,
) -> dict[str, list[Any]]:
    """What `tokenize_sentences` makes of lists of words, from the pieces of each word."""
    encoded: dict[str, list[Any]] = {"input_ids": [], "word_ids": [], "words": [], "offsets": []}
    for sentence in sentences:
        found = [pieces[word] for word in sentence]
        word_ids = [number for number, (ids, _) in enumerate(found) for _ in ids][:max_length]
        encoded["input_ids"].append([token_id for ids, _ in found for token_id in ids][:max_length])
        encoded["word_ids"].append(word_ids)
        encoded["words"].append([sentence[number] for number in dict.fromkeys(word_ids)])
        encoded["offsets"].append([offsets for _, of_word in found for offsets in of_word][:max_length])
    return _completed(tokenizer, encoded)


def words_of_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[Span]]:
    """Where the words and the marks of texts are, by the tokenizer's ``word_rule`` (see `word_rules`).

    Returns:
        For each text, the first character of each and the one after its last. Words that the tokenizer drops, such as a
        lone accent, are left out.

    Raises:
        ValueError: if the tokenizer names an unknown rule.
    """
    return words_with_pieces(tokenizer, texts)[0]


def words_with_pieces(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[list[list[Span]], Pieces]:
    """What `words_of_texts` returns, and the pieces of all these words."""
    rule = tokenizer.init_kwargs.get("word_rule", "plain")
    whole = _added_tokens(tokenizer, rule)
    found = [find_words(text, rule, whole) for text in texts]
    stretches = {text[start:end] for text, words in zip(texts, found, strict=True)
                 for (start, end), is_stretch in words if is_stretch}  # fmt: skip
    divided = dict(zip(stretches, _divide(tokenizer, list(stretches)), strict=True))
    spans = [
        [(start + first, start + last) for (start, end), is_stretch in words
         for first, last in (divided[text[start:end]] if is_stretch else [(0, end - start)])]
        for text, words in zip(texts, found, strict=True)
    ]  # fmt: skip
    pieces = pieces_of_words(tokenizer, [[text[i:j] for i, j in row] for text, row in zip(texts, spans, strict=True)])
    seen = _visible(pieces)
    return [[(i, j) for i, j in row if text[i:j] in seen] for text, row in zip(texts, spans, strict=True)], pieces


def _added_tokens(tokenizer: PreTrainedTokenizerBase, rule: str) -> tuple[str, ...]:
    """The tokens beside its vocabulary that would be cut, such as ``[UNK]``; longer ones first."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if not token.single_word}
    return tuple(sorted(filter(partial(_is_cut, rule=rule), added), key=lambda token: (-len(token), token)))


@cache
def _is_cut(token: str, rule: str) -> bool:
    return len(find_words(token, rule)) != 1


def _divide(tokenizer: PreTrainedTokenizerBase, stretches: list[str]) -> list[list[Span]]:
    """Where the tokenizer's own words are in stretches of a script without blanks: characters, as a rule."""
    encoded = _encode(tokenizer, stretches, None)
    rows = zip(stretches, encoded["word_ids"], encoded["offsets"], strict=True)
    return [_with_accents(stretch, _extents(*row)) for stretch, *row in rows]


def _with_accents(stretch: str, words: list[Span]) -> list[Span]:
    """Words with the combining marks behind them, which tokenizers join with their characters and leave out."""
    following = [start for start, _ in words[1:]] + [len(stretch)]
    pairs = zip(words, following, strict=True)
    return [(start, ACCENTS.match(stretch, end, max(end, to)).end()) for (start, end), to in pairs]


def tokens_with_pieces(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[Sequence[str]]) -> set[str]:
    """The tokens of checked sentences that a model can see: not blank, and not dropped by the tokenizer."""
    return _visible(pieces_of_words(tokenizer, sentences))


def _visible(pieces: Pieces) -> set[str]:
    return {word for word, (ids, _) in pieces.items() if ids and word.strip()}


def tokenize_all_words(
    tokenizer: PreTrainedTokenizerBase, sentences: Iterable[Sequence[str]], max_length: int | None = None
) -> dict[str, list[Any]]:
    """What `tokenize_sentences` makes of lists of words, with ``[UNK]`` for every word that the tokenizer would drop.

    So every word has a piece. An empty sentence becomes one ``[UNK]``.
    """
    checked, unknown = list(checked_sentences(sentences, True)), tokenizer.unk_token
    pieces = pieces_of_words(tokenizer, [*checked, [unknown]])
    known = _visible(pieces)
    shown = [[word if word in known else unknown for word in sentence] or [unknown] for sentence in checked]
    return tokenize_words(tokenizer, shown, pieces, max_length)


def _encode(tokenizer: PreTrainedTokenizerBase, texts: list[str], max_length: int | None) -> dict[str, list[Any]]:
    if not texts:  # tokenizers do not take an empty list
        return {"input_ids": [], "word_ids": [], "words": [], "offsets": []}
    with tokenizer_errors():
        encoded = tokenizer(
            texts, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True, verbose=False,
            truncation=max_length is not None, max_length=max_length,
        )  # fmt: skip
    word_ids, offsets = [encoded.word_ids(row) for row in range(len(texts))], encoded["offset_mapping"]
    rows = zip(texts, word_ids, offsets, strict=True)
    # Special tokens include blanks around them.
    words = [[text[start:end].strip() for start, end in _extents(*row)] for text, *row in rows]
    return {"input_ids": encoded["input_ids"], "word_ids": word_ids, "words": words, "offsets": offsets}


def pieces_of_words(tokenizer: PreTrainedTokenizerBase, sentences: Iterable[Sequence[str]]) -> Pieces:
    """For each word of the sentences the ids of its pieces, and where they are in it; none if it is dropped.

    A tokenizer divides each word by itself, so once is enough for equal ones.
    """
    words = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    pieces: Pieces = {word: ([], []) for word in words}
    if not words:
        return pieces
    with tokenizer_errors():
        encoded = tokenizer(
            words, is_split_into_words=True, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
    of_pieces = encoded["input_ids"], encoded.word_ids(), encoded["offset_mapping"]
    for token_id, number, offsets in zip(*of_pieces, strict=True):
        if number is not None:
            ids, places = pieces[words[number]]
            ids.append(token_id)
            places.append(offsets)
    return pieces


def _extents(word_ids: Sequence[int], offsets: Sequence[Span]) -> list[Span]:
    """The first character of each word that has pieces, and the one after its last, from the offsets of its pieces."""
    extents: dict[int, Span] = {}
    for word, (start, end) in zip(word_ids, offsets, strict=True):
        extents[word] = (extents.get(word, (start, end))[0], end)
    return list(extents.values())


def _completed(tokenizer: PreTrainedTokenizerBase, encoded: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """With each sentence without text as one unknown token, and with ``atom_spans``."""
    empty = [row for row, words in enumerate(encoded["words"]) if not any(word.strip() for word in words)]
    for row in empty:
        encoded["input_ids"][row], encoded["word_ids"][row] = [tokenizer.unk_token_id], [0]
        encoded["words"][row], encoded["offsets"][row] = [tokenizer.unk_token], [(0, 0)]
    if empty:
        logger.warning(
            f"sentences without text: {len(empty)} of {len(encoded['input_ids'])} (the first is number "
            f"{empty[0] + 1}); each becomes one {tokenizer.unk_token}"
        )
    return encoded | {"atom_spans": [word_spans(word_ids) for word_ids in encoded["word_ids"]]}
