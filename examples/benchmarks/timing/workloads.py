"""Sentences of given lengths from a corpus, and their batches."""

import random
from collections.abc import Iterable, Iterator, Sequence

from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.words import batches_by_length
from tokenization_fast_r2d2 import tokenize_sentences

RANGES = ((2, 50), (50, 100), (100, 200), (200, 500))  # tokens; the upper end is not in the range


def sentences_by_range(
    lines: Iterable[str], tokenizer: PreTrainedTokenizerBase, count: int, ranges=RANGES, seed: int = 0
) -> dict[tuple[int, int], list[list[int]]]:
    """Choose ``count`` sentences of each range, as token ids; long ones are neighbouring lines that are joined.

    Raises:
        ValueError: if the corpus is too small.
    """
    texts = [line for line in lines if line]
    ids = tokenize_sentences(tokenizer, texts)["input_ids"]
    found = {bounds: _of_lengths(ids, *bounds) for bounds in ranges}
    for bounds, sentences in found.items():
        if len(sentences) < count:
            raise ValueError(
                f"the corpus has {len(sentences)} sentences of {bounds[0]} to {bounds[1] - 1} tokens, with neighbours "
                f"joined, but {count} are needed; give a larger corpus or a smaller --sentences"
            )
    generator = random.Random(seed)
    return {bounds: generator.sample(sentences, count) for bounds, sentences in found.items()}


def _of_lengths(ids: Sequence[list[int]], low: int, high: int) -> list[list[int]]:
    """Join lines until they are long enough; leave them out if they are then too long."""
    sentences, joined = [], []
    for line in ids:
        joined = joined + line
        if len(joined) >= low:
            if len(joined) < high:
                sentences.append(joined)
            joined = []
    return sentences


def batches_of(sentences: Sequence[list[int]], size: int) -> Iterator[list[list[int]]]:
    """Batches of ``size`` sentences in their order, as in the paper's Table 5."""
    for start in range(0, len(sentences), size):
        yield list(sentences[start : start + size])


def batches_by_tokens(sentences: Sequence[list[int]], tokens: int) -> Iterator[list[list[int]]]:
    """Batches of sentences of similar length, with at most ``tokens`` tokens including padding."""
    for rows in batches_by_length(list(map(len, sentences)), batch_tokens=tokens):
        yield [sentences[row] for row in rows]
