"""Split scores before any training, from where units of the training text begin and end.

Words beside punctuation and at the ends of sentences behave like words at the edges of constituents (Spitkovsky et al.,
2012, D12-1063). A *unit* is the text between two such places. Split point ``k`` has the score

    v_k = log P(a unit ends | token k) + log P(a unit begins | token k + 1) - skew * k

Raw text is enough. It is counted once, when it is read.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from datasets.fingerprint import Hasher
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.text_files import write_aside
from pretraining.corpus import CHARACTERS_PER_TOKEN, rules_of_reading, sentences_of
from pretraining.options import DataOptions
from tokenization_fast_r2d2.language import are_marks
from tokenization_fast_r2d2.reading import sentences_to_parse

Kind = TypeVar("Kind")
COUNTS_FILE = "unit_counts.safetensors"
LINES_PER_BATCH = 50_000  # many, because every batch is a row of the cache that is three vocabularies long


@dataclass(frozen=True)
class UnitCounts:
    """How often each token occurs, begins a unit and ends a unit; ``(vocab_size,)`` int64 each."""

    occurrences: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def save(self, folder: Path) -> None:
        """Write the file whole or not at all."""
        write_aside(folder / COUNTS_FILE, lambda path: save_file(vars(self), path))

    @classmethod
    def load(cls, folder: Path) -> "UnitCounts | None":
        """Read the file of `save`; None if there is none. Raises ValueError if it is damaged."""
        return load_counts(cls, folder / COUNTS_FILE, load_file)


def load_counts(kind: Callable[..., Kind], path: Path, load_file: Callable[[Path], dict]) -> Kind | None:
    """What a run's folder keeps of its text; None if the file is not there. Raises ValueError if it is damaged."""
    try:
        return kind(**load_file(path)) if path.exists() else None
    except (SafetensorError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it, and the text is counted again") from error


class CountTeacher:
    """Split scores of token ids.

    Args:
        counts: of the training text.
        skew: nats by which a split point scores lower than the one before it. Values above 0 are a prior for branching
            to the right, which suits English; 0 is no prior.
    """

    def __init__(self, counts: UnitCounts, skew: float = 0.0, device: torch.device | str = "cpu"):
        self.skew = skew
        self.ends = torch.from_numpy(log_share(counts.ends, counts.occurrences)).to(device)
        self.begins = torch.from_numpy(log_share(counts.begins, counts.occurrences)).to(device)

    def __call__(self, input_ids: Tensor) -> Tensor:
        """From ``(batch, seq_len)`` int64 token ids to ``(batch, seq_len - 1)`` float32 scores in nats.

        A piece that continues a word hardly ever begins a unit, so that words tend to stay whole. The model's span
        constraints make sure that they do.
        """
        position = torch.arange(input_ids.shape[1] - 1, device=input_ids.device)
        return self.ends[input_ids[:, :-1]] + self.begins[input_ids[:, 1:]] - self.skew * position


def log_share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Smoothed ``log(part / whole)`` by token, float32.

    One is added to each part. The number added to each whole gives a token that was never seen the share of all tokens
    together.
    """
    share = (part.sum() + 1) / (whole.sum() + 1)
    return np.log((part + 1) / (whole + 1 / share)).astype(np.float32)


def count_units(sentences: list[str], tokenizer: PreTrainedTokenizerBase, keep_punctuation: bool) -> UnitCounts:
    """Count the units of a text.

    Args:
        sentences: with their punctuation.
        keep_punctuation: whether the model sees punctuation. If it does, marks between units count as units of their
            own. If not, they only bound other units.
    """
    tokens, is_first, is_mark = _tokens(sentences, tokenizer)
    # `roll` moves the last mark to the first token, which begins a unit anyway.
    begins = is_first | is_mark | np.roll(is_mark, 1)
    ends = np.roll(begins, -1)
    counted = np.ones_like(is_mark) if keep_punctuation else ~is_mark
    return UnitCounts(*(
        np.bincount(tokens[chosen], minlength=len(tokenizer)) for chosen in (counted, counted & begins, counted & ends)
    ))  # fmt: skip


def _tokens(sentences: list[str], tokenizer: PreTrainedTokenizerBase) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens in one array, and whether each begins a sentence, and whether it is a mark between units."""
    read = sentences_to_parse(tokenizer, sentences)
    ids = [sentence.input_ids for sentence in read]
    marks = (np.array(are_marks(sentence.words))[sentence.word_ids] for sentence in read)
    firsts = ([place == 0 for place in range(len(row))] for row in ids)
    flat = itertools.chain.from_iterable
    return (
        np.fromiter(flat(ids), np.int64),
        np.fromiter(flat(firsts), np.bool_),
        np.fromiter(flat(marks), np.bool_),
    )


def count_corpus(texts: Dataset | IterableDataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> UnitCounts:
    """Count the lines of `read_texts`, with a cache of `datasets`; of a stream, only its beginning."""
    count = partial(_count_lines, tokenizer=tokenizer, data=data)
    if data.streaming:
        rows = count({"text": [line["text"] for line in itertools.islice(texts, data.shuffle_buffer)]})
    else:
        cache_key = [*rules_of_reading(texts, tokenizer, data), "units"]
        rows = texts.map(
            count, batched=True, batch_size=LINES_PER_BATCH, num_proc=data.num_proc, remove_columns=texts.column_names,
            new_fingerprint=Hasher.hash(cache_key), desc="count units",
        )[:]  # fmt: skip
    return UnitCounts(*(np.sum(rows[name], axis=0, dtype=np.int64) for name in ("occurrences", "begins", "ends")))


def _count_lines(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> dict[str, list]:
    limit = CHARACTERS_PER_TOKEN * data.max_length
    sentences = [sentence for sentence in sentences_of(batch["text"], data) if len(sentence) <= limit]
    return {name: [counts] for name, counts in vars(count_units(sentences, tokenizer, data.keep_punctuation)).items()}
