"""Counts of units against their definition, and the scores made of them."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from pretraining.corpus import tokenize_corpus
from pretraining.counts import CountTeacher, UnitCounts, count_units
from pretraining.data import read_beginning
from pretraining.options import DataOptions
from tokenization_fast_r2d2 import train_tokenizer

WORDS = st.sampled_from(["the", "cat", "sleeps", "underold", "and"])
MARKS = st.sampled_from([",", ".", "(", ")"])
SENTENCES = st.lists(st.lists(WORDS | MARKS, min_size=1, max_size=8), max_size=5)


def slow_counts(sentences, tokenizer, keep_punctuation):
    """The definition: cut at marks, then count the tokens of each unit, its first and its last."""
    counts = Counter(), Counter(), Counter()
    for words in sentences:
        units = [[]]
        for word in words:
            is_mark = word in ",.()"
            units += [[word], []] if is_mark and keep_punctuation else [[]] if is_mark else []
            if not is_mark:
                units[-1].append(word)
        for unit in filter(None, units):
            tokens = tokenizer(" ".join(unit), add_special_tokens=False)["input_ids"]
            for counter, counted in zip(counts, (tokens, tokens[:1], tokens[-1:]), strict=True):
                counter.update(counted)
    return [[counter[token] for token in range(len(tokenizer))] for counter in counts]


def counts_of(lines, tokenizer, keep_punctuation=False, max_length=200, num_proc=None):
    data = DataOptions(["lines"], keep_punctuation=keep_punctuation, max_length=max_length, num_proc=num_proc)
    return count_units(tokenize_corpus(Dataset.from_dict({"text": lines}), tokenizer, data), len(tokenizer))


@given(SENTENCES, st.booleans())
def test_counts_are_those_of_the_units_between_marks(tokenizer, sentences, keep_punctuation):
    lines = ["the cat", *(" ".join(words) for words in sentences)]  # a corpus has a sentence with words
    sentences = [["the", "cat"], *sentences]
    counts = counts_of(lines, tokenizer, keep_punctuation)
    assert [part.tolist() for part in vars(counts).values()] == slow_counts(sentences, tokenizer, keep_punctuation)


@pytest.mark.parametrize(("text", "kind", "begins", "ends"), [
    ("a well-known man , in 3.5 hours , said the cat's tail , 's like (mine)", "wordpiece", "a in said ' mine",
     "man hours tail like mine"),
    ("他說，我們去。", "character", "他 我", "說 去"),
])  # fmt: skip
def test_marks_between_words_bound_units(text, kind, begins, ends):
    tokenizer = train_tokenizer([text] * 2, 300, kind, show_progress=False)
    counts = counts_of([text], tokenizer)
    found = [set(tokenizer.convert_ids_to_tokens(np.flatnonzero(part))) for part in (counts.begins, counts.ends)]
    assert found == [set(begins.split()), set(ends.split())]


@given(st.integers(0, 9), st.integers(1, 6), st.floats(-2, 2))
def test_scores_are_log_shares_less_the_skew(seed, seq_len, skew):
    random = np.random.default_rng(seed)
    occurrences = random.integers(0, 9, 12)
    counts = UnitCounts(occurrences, *(random.integers(0, occurrences + 1) for _ in range(2)))
    ids = torch.from_numpy(random.integers(0, 12, (3, seq_len)))
    scores = CountTeacher(counts, skew)(ids)
    assert scores.shape == (3, seq_len - 1) and scores.dtype == torch.float32

    def log_share(part, token):
        share = (part.sum() + 1) / (occurrences.sum() + 1)
        return math.log((part[token] + 1) / (occurrences[token] + 1 / share))

    for row, scored in zip(ids.tolist(), scores.tolist(), strict=True):
        for k, (left, right) in enumerate(zip(row, row[1:], strict=False)):
            expected = log_share(counts.ends, left) + log_share(counts.begins, right) - skew * k
            assert scored[k] == pytest.approx(expected, abs=1e-5)


def test_two_processes_count_what_one_does(tokenizer):
    lines = ["the cat , and the man sleeps .", "the house"] * 3
    one, two = (counts_of(lines, tokenizer, num_proc=number) for number in (None, 2))
    assert one.ends[tokenizer.convert_tokens_to_ids("cat")] == 3
    assert all(map(np.array_equal, vars(one).values(), vars(two).values()))


def test_of_a_stream_the_beginning_is_counted(tokenizer):
    lines = ["the cat , and the man sleeps .", "the house", "a dog"]
    data = DataOptions(["lines"], keep_punctuation=False, streaming=True, shuffle_buffer=2)
    stream = Dataset.from_dict({"text": lines}).to_iterable_dataset()
    found = count_units(read_beginning(stream, tokenizer, data), len(tokenizer))
    assert all(map(np.array_equal, vars(found).values(), vars(counts_of(lines[:2], tokenizer)).values()))
