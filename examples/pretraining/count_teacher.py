"""Trees before any training: split scores from where units of the training text end and begin.

Words at the edges of sentences and of punctuation behave like those at the edges of constituents (Spitkovsky et al.,
2012, D12-1063). A *unit* is what stands between such edges, and split point ``k`` has the score

    v_k = log P(a unit ends | token k) + log P(a unit begins | token k + 1) - skew * k

Everything is counted on raw text, once, when it is read.
"""

import inspect
import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from datasets.fingerprint import Hasher
from safetensors.numpy import load_file, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2 import punctuation
from modeling_fast_r2d2.punctuation import is_mark
from modeling_fast_r2d2.text_files import write_aside
from pretraining.corpus import CHARACTERS_PER_TOKEN, sentences_of
from pretraining.options import DataOptions

COUNTS_FILE = "unit_counts.safetensors"
LINES_PER_BATCH = 50_000  # counted together: a row of the cache is three vocabularies long


@dataclass(frozen=True)
class UnitCounts:
    """How often each token occurs, begins a unit and ends one; each ``(vocab_size,)`` int64."""

    occurrences: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def save(self, folder: Path) -> None:
        """Write the file whole or not at all."""
        write_aside(folder / COUNTS_FILE, lambda path: save_file(vars(self), path))

    @classmethod
    def load(cls, folder: Path) -> "UnitCounts | None":
        """What `save` left; None if nothing."""
        return cls(**load_file(folder / COUNTS_FILE)) if (folder / COUNTS_FILE).exists() else None


class CountTeacher:
    """Split scores of token ids.

    Args:
        counts: of the training text.
        skew: nats by which every split point is below the one before it. Above 0 it is a prior for branching to the
            right, which suits English; 0 is none.
    """

    def __init__(self, counts: UnitCounts, skew: float = 0.0, device: torch.device | str = "cpu"):
        self.skew = skew
        self.ends = torch.from_numpy(log_share(counts.ends, counts.occurrences)).to(device)
        self.begins = torch.from_numpy(log_share(counts.begins, counts.occurrences)).to(device)

    def __call__(self, input_ids: Tensor) -> Tensor:
        """``(batch, seq_len)`` long, to ``(batch, seq_len - 1)`` float32 scores in nats.

        A piece that continues a word hardly ever begins a unit, so that words tend to stay whole; the model's span
        constraints make sure of it.
        """
        position = torch.arange(input_ids.shape[1] - 1, device=input_ids.device)
        return self.ends[input_ids[:, :-1]] + self.begins[input_ids[:, 1:]] - self.skew * position


def log_share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``log(part / whole)`` by token, float32, with one added to each part and to the wholes as many as one comes in:
    a token that was never seen has the share of all tokens together."""
    share = (part.sum() + 1) / (whole.sum() + 1)
    return np.log((part + 1) / (whole + 1 / share)).astype(np.float32)


def count_units(sentences: list[str], tokenizer: PreTrainedTokenizerBase, keep_punctuation: bool) -> UnitCounts:
    """Count a text's units.

    Args:
        sentences: with their punctuation.
        keep_punctuation: whether the model sees punctuation. Then marks between units are counted as units of their
            own; otherwise they only bound others.
    """
    tokens, is_first, is_mark = _tokens(sentences, tokenizer)
    begins = is_first | is_mark | np.roll(is_mark, 1)  # `roll` brings the last to the front, which is a first anyway
    ends = np.roll(begins, -1)
    counted = np.ones_like(is_mark) if keep_punctuation else ~is_mark
    return UnitCounts(*(
        np.bincount(tokens[chosen], minlength=len(tokenizer)) for chosen in (counted, counted & begins, counted & ends)
    ))  # fmt: skip


def _tokens(sentences: list[str], tokenizer: PreTrainedTokenizerBase) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens end to end, which of them begin a sentence, and which are marks between units."""
    encoded = tokenizer(sentences, add_special_tokens=False, return_attention_mask=False, return_offsets_mapping=True,
                        verbose=False) if sentences else {"input_ids": [], "offset_mapping": []}  # fmt: skip
    marks = ((is_mark(text, *place) for place in places)
             for text, places in zip(sentences, encoded["offset_mapping"], strict=True))  # fmt: skip
    firsts = ([place == 0 for place in range(len(ids))] for ids in encoded["input_ids"])
    flat = itertools.chain.from_iterable
    return (
        np.fromiter(flat(encoded["input_ids"]), np.int64),
        np.fromiter(flat(firsts), np.bool_),
        np.fromiter(flat(marks), np.bool_),
    )


def count_corpus(texts: Dataset | IterableDataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> UnitCounts:
    """Counts of the lines of `read_texts`, cached by `datasets`; of a stream, those of its beginning."""
    count = partial(_count_lines, tokenizer=tokenizer, data=data)
    if data.streaming:
        rows = count({"text": [line["text"] for line in itertools.islice(texts, data.shuffle_buffer)]})
    else:
        cache_key = [texts._fingerprint, tokenizer.backend_tokenizer.to_str(), data.sentence_rule, data.clean_wikitext,
                data.keep_punctuation, data.max_length, "units", inspect.getsource(punctuation)]  # fmt: skip
        rows = texts.map(
            count, batched=True, batch_size=LINES_PER_BATCH, num_proc=data.num_proc, remove_columns=texts.column_names,
            new_fingerprint=Hasher.hash(cache_key), desc="count units",
        )[:]  # fmt: skip
    return UnitCounts(*(np.sum(rows[name], axis=0, dtype=np.int64) for name in ("occurrences", "begins", "ends")))


def _count_lines(batch: dict[str, list[str]], tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> dict[str, list]:
    limit = CHARACTERS_PER_TOKEN * data.max_length
    sentences = [sentence for sentence in sentences_of(batch["text"], data) if len(sentence) <= limit]
    return {name: [counts] for name, counts in vars(count_units(sentences, tokenizer, data.keep_punctuation)).items()}
