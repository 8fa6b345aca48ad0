"""Counts of units against their definition, and the scores made of them."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretraining.corpus import read_texts
from pretraining.count_teacher import CountTeacher, UnitCounts, count_corpus, count_units
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


@given(SENTENCES, st.booleans())
def test_counts_are_those_of_the_units_between_marks(tokenizer, sentences, keep_punctuation):
    counts = count_units([" ".join(words) for words in sentences], tokenizer, keep_punctuation)
    assert [part.tolist() for part in vars(counts).values()] == slow_counts(sentences, tokenizer, keep_punctuation)


def parts_of(text, tokenizer):
    """Tokens that begin a unit and that end one."""
    counts = count_units([text], tokenizer, keep_punctuation=False)
    return [set(tokenizer.convert_ids_to_tokens(np.flatnonzero(part))) for part in (counts.begins, counts.ends)]


def test_marks_within_a_word_do_not_bound_units():
    english = ["a well-known man , in 3.5 hours , said the cat's tail , 's like (mine)"]
    tokenizer = train_tokenizer(english * 2, 300, show_progress=False)
    assert parts_of(english[0], tokenizer) == [
        {"a", "in", "said", "'", "mine"},
        {"man", "hours", "tail", "like", "mine"},
    ]


def test_scripts_without_blanks_have_their_marks_between_letters():
    chinese = ["他說，我們去。"]
    tokenizer = train_tokenizer(chinese * 2, 300, "character", show_progress=False)
    assert parts_of(chinese[0], tokenizer) == [{"他", "我"}, {"說", "去"}]


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


def test_a_corpus_is_counted_before_punctuation_is_taken_out(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    lines = ["the cat , and the man sleeps .", "the house"] * 3
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    expected = count_units(lines, tokenizer, keep_punctuation=False)
    assert expected.ends[tokenizer.convert_tokens_to_ids("cat")] == 3
    for more in ({}, {"num_proc": 2}, {"streaming": True}):
        data = DataOptions([str(tmp_path / "text.txt")], keep_punctuation=False, **more)
        found = count_corpus(read_texts(data), tokenizer, data)
        assert all(map(np.array_equal, vars(found).values(), vars(expected).values()))


def test_counts_are_read_as_they_were_saved(tmp_path):
    assert UnitCounts.load(tmp_path) is None
    counts = UnitCounts(np.arange(3), np.ones(3, np.int64), np.zeros(3, np.int64))
    counts.save(tmp_path)
    found = UnitCounts.load(tmp_path)
    assert all(map(np.array_equal, vars(found).values(), vars(counts).values()))
    assert [path.name for path in tmp_path.iterdir()] == ["unit_counts.safetensors"]


def test_damaged_counts_are_named(tmp_path):
    (tmp_path / "unit_counts.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="unit_counts.safetensors is damaged .* the text is counted again"):
        UnitCounts.load(tmp_path)
