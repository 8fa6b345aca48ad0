"""Lines to encoded sentences: cut, cleaned, tokenized with word spans, in parallel, cached by `datasets`."""

import itertools
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from datasets import Dataset
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

from pretraining.options import DataOptions
from tokenization_fast_r2d2 import SENTENCE_RULES, clean_wikitext, encode_sentences

# A text of more characters for each token of the limit is no sentence; it is left out unseen, for tokenizing a giant
# line takes many times its size. Rarely can such a text have few tokens: a word of over 100 letters is one [UNK].
CHARACTERS_PER_TOKEN = 100


@dataclass(frozen=True)
class Corpus:
    """Encoded sentences of 1 ... ``max_length`` tokens.

    Attributes:
        rows: columns ``input_ids``, ``atom_spans`` and ``length``; too long sentences are rows without tokens.
        kept: ``(num_sentences,)`` long, the rows to use.
        lengths: ``(num_sentences,)`` long, their tokens.
        num_too_long: sentences left out.
    """

    rows: Dataset
    kept: np.ndarray
    lengths: np.ndarray
    num_too_long: int

    def count_tokens(self, vocab_size: int) -> np.ndarray:
        """``(vocab_size,)``, how often each token occurs."""
        chunks = self.rows.data.column("input_ids").chunks  # rows that are not kept have no tokens
        return sum(
            (np.bincount(chunk.flatten().to_numpy(), minlength=vocab_size) for chunk in chunks),
            np.zeros(vocab_size, np.int64),
        )

    def __getitem__(self, sentences: np.ndarray) -> list[dict]:
        """Features for the collator; ``sentences`` count the kept ones."""
        columns = self.rows[self.kept[sentences]]
        return [
            {"input_ids": ids, "atom_spans": spans}
            for ids, spans in zip(columns["input_ids"], columns["atom_spans"], strict=True)
        ]


def encode_corpus(texts: Dataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> Corpus:
    """Encode the lines of ``read_texts``; a second call with the same text, tokenizer and options reads a cache.

    Raises:
        ValueError: if no sentence is left.
    """
    # A tokenizer's own hash changes when it is used, so that caches would be missed; its vocabulary and rules do not.
    what = [texts._fingerprint, tokenizer.backend_tokenizer.to_str(), data.sentence_rule, data.clean_wikitext,
            data.keep_punctuation, data.max_length]  # fmt: skip
    rows = texts.map(
        partial(encode_column, encode=line_encoder(tokenizer, data)), batched=True, num_proc=data.num_proc,
        remove_columns=texts.column_names, new_fingerprint=Hasher.hash(what), desc="tokenize",
    )  # fmt: skip
    lengths = rows.data.column("length").to_numpy().astype(np.int64) if len(rows) else np.zeros(0, np.int64)
    is_too_long = lengths > data.max_length
    [kept] = np.nonzero((lengths > 0) & ~is_too_long)
    if not len(kept):
        raise ValueError(
            f"no sentence of 1 to {data.max_length} tokens in the corpus: {len(texts)} lines, {len(rows)} sentences, "
            f"{is_too_long.sum()} of them too long; --sentence_rule cuts lines into sentences"
        )
    return Corpus(rows, kept, lengths[kept], int(is_too_long.sum()))


def encode_column(batch: dict[str, list[str]], encode: Callable) -> dict[str, list]:
    sentences = encode(batch["text"])
    return {name: [sentence[name] for sentence in sentences] for name in ("input_ids", "atom_spans", "length")}


def line_encoder(tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> Callable[[Iterable[str]], list[dict]]:
    """Lines to sentences with ``input_ids``, ``atom_spans`` and ``length``; too long ones keep their length only."""
    punctuation = set() if data.keep_punctuation else punctuation_ids(tokenizer)

    def encode(lines: Iterable[str]) -> list[dict]:
        sentences = sentences_of(lines, data)
        fits = [len(sentence) <= CHARACTERS_PER_TOKEN * data.max_length for sentence in sentences]
        encoded = encode_sentences(tokenizer, list(itertools.compress(sentences, fits)))
        rows = zip(encoded["input_ids"], encoded["atom_spans"], strict=True)
        return [
            _within(*without_tokens(*next(rows), punctuation), data.max_length) if fit else _too_long(len(sentence))
            for sentence, fit in zip(sentences, fits, strict=True)
        ]

    return encode


def sentences_of(lines: Iterable[str], data: DataOptions) -> list[str]:
    clean = clean_wikitext if data.clean_wikitext else str
    return [clean(sentence) for line in lines for sentence in SENTENCE_RULES[data.sentence_rule](line or "")]


def punctuation_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Pieces of nothing but punctuation and symbols."""
    vocabulary = tokenizer.get_vocab().items()
    return {number for piece, number in vocabulary if is_punctuation(piece.removeprefix("##"))}


def is_punctuation(piece: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in piece)


def without_tokens(
    input_ids: list[int], spans: list[tuple[int, int]], left_out: set[int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """A sentence without some tokens; spans move along, and end where one of their ends is left out."""
    if not left_out:
        return input_ids, spans
    kept = [token not in left_out for token in input_ids]
    place = list(itertools.accumulate(kept, initial=0))
    moved = [(place[first], place[last]) for first, last in spans if kept[first] and kept[last]]
    return list(itertools.compress(input_ids, kept)), [span for span in moved if span[0] < span[1]]


def _within(input_ids: list[int], spans: list[tuple[int, int]], max_length: int) -> dict:
    if len(input_ids) > max_length:
        return _too_long(len(input_ids))
    return {"input_ids": input_ids, "atom_spans": spans, "length": len(input_ids)}


def _too_long(length: int) -> dict:
    return {"input_ids": [], "atom_spans": [], "length": length}
