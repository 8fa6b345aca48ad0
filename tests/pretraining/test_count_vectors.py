"""Vectors from counts of tokens, against slow counts."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from pretraining import counts as module
from pretraining.counts import CountVectors, count_pairs, count_vectors, mutual_information
from pretraining.data import read_count_vectors
from pretraining.options import DataOptions, ModelOptions, Options, OutputOptions, TrainingOptions

SIZE = 6
SENTENCES = st.lists(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=9), min_size=1, max_size=8)


def flat(sentences):
    return np.array(sum(sentences, [])), np.array([len(sentence) for sentence in sentences])


def slow_pairs(sentences):
    pairs = torch.zeros(SIZE, SIZE)
    for sentence in sentences:
        for i, left in enumerate(sentence):
            for right in sentence[i + 1 : i + 1 + module.WINDOW]:
                pairs[left, right] += 1
                pairs[right, left] += 1
    return pairs


@given(SENTENCES, st.integers(1, 4))
def test_pairs_are_counted_within_sentences_and_the_window(sentences, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TOKENS_AT_ONCE", at_once)
        found = count_pairs(*flat(sentences), np.zeros(SIZE))  # shares of 0: no token is left out
    assert torch.equal(found.to_dense(), slow_pairs(sentences))


def test_frequent_tokens_are_left_out_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(module, "RARE", 0.1)
    tokens = np.zeros(100_000, np.int64)
    pairs = count_pairs(tokens, np.full(50_000, 2), np.array([0.4]))
    assert pairs.to_dense().item() / 2 == pytest.approx(50_000 * 0.25, rel=0.05)  # both of a pair stay: (0.1 / 0.4)


@given(SENTENCES)
def test_mutual_information_is_its_definition(sentences):
    pairs = slow_pairs(sentences)
    found = mutual_information(pairs.to_sparse_coo().coalesce()).to_dense()
    rows = pairs.sum(1).tolist()
    contexts = sum(row**0.75 for row in rows)
    for i in range(SIZE):
        for j in range(SIZE):
            chance = rows[i] * rows[j] ** 0.75 / contexts if contexts else 0
            expected = max(0.0, math.log(pairs[i, j] / chance)) if pairs[i, j] else 0.0
            assert found[i, j].item() == pytest.approx(expected, abs=1e-5)


def drawn_vectors(size=SIZE, features=4):
    chance = torch.Generator().manual_seed(0)
    components = torch.linalg.qr(torch.randn(features, 2, generator=chance))[0].T
    draw = (torch.randn(size, features, generator=chance), torch.rand(size, generator=chance))
    return CountVectors(*draw, torch.randn(features, generator=chance), components)


@settings(max_examples=25)
@given(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=12), st.data())
def test_a_span_is_the_weighted_mean_of_its_tokens_without_what_all_have(tokens, data):
    vectors, places = drawn_vectors(), st.integers(0, len(tokens) - 1)
    spans = [sorted(span) for span in data.draw(st.lists(st.tuples(places, places), min_size=1, max_size=5))]
    found = vectors.of_spans(torch.tensor(tokens), torch.tensor(spans))
    for (first, last), row in zip(spans, found, strict=True):
        mean = sum(vectors.weights[t] * vectors.tokens[t] for t in tokens[first : last + 1]) / (last + 1 - first)
        mean = mean - vectors.mean
        for component in vectors.components:
            mean = mean - (mean @ component) * component
        torch.testing.assert_close(row, F.normalize(mean, dim=0), atol=1e-5, rtol=1e-4)


def corpus(num_sentences=400):
    """Tokens 0 to 3 stand beside 8, tokens 4 to 7 beside 9."""
    chance = np.random.default_rng(0)
    halves = chance.integers(0, 2, num_sentences)
    sentences = [[4 * half + chance.integers(4), 8 + half, 4 * half + chance.integers(4)] for half in halves]
    return flat([[int(token) for token in sentence] for sentence in sentences])


def test_tokens_with_the_same_neighbours_are_alike(monkeypatch):
    monkeypatch.setattr(module, "RARE", 1.0)
    vectors = count_vectors(*corpus(), vocab_size=11, features=4)
    torch.testing.assert_close(vectors.tokens[:10].norm(dim=1), torch.ones(10))
    assert not vectors.tokens[10].abs().max() > 1e-5  # a token that never occurs
    alike = vectors.tokens @ vectors.tokens.T
    assert alike[:4, :4].min() > 0.8 > 0.2 > alike[:4, 4:8].abs().max()


def test_the_vectors_of_a_run_are_kept_and_damaged_ones_are_named(tmp_path, tokenizer):
    ids, lengths = corpus()
    model = ModelOptions(size="tiny", initial_embeddings="counts")
    options = Options(DataOptions(["text"]), model, TrainingOptions(), OutputOptions("out"))
    made, kept = (
        read_count_vectors(tmp_path, SimpleNamespace(token_ids=read, lengths=lengths), tokenizer, options, True)
        for read in (lambda: ids, pytest.fail)  # the second time nothing is counted
    )
    torch.testing.assert_close(vars(kept), vars(made), rtol=0, atol=0)
    (tmp_path / "count_vectors.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="count_vectors.safetensors is damaged .* the text is counted again"):
        read_count_vectors(tmp_path, SimpleNamespace(), tokenizer, options, True)


def test_chance_elsewhere_neither_changes_the_vectors_nor_is_changed():
    torch.manual_seed(1)
    one, after = count_vectors(*corpus(), vocab_size=11, features=4), torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    torch.testing.assert_close(count_vectors(*corpus(), vocab_size=11, features=4).tokens, one.tokens)
