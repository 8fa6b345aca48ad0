"""What the benchmarks measure with: turns, memory, operations, the BERT to compare with, and batches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import BertModel

import measuring
from modeling_fast_r2d2 import FastR2D2ForPreTraining, cpu_operations

LINES = ["the old man bought a new car last year and drove it to the river", "a cat sat", "it rained all day"] * 40
LONG = measuring.LONG_RUN_SECONDS


@pytest.mark.parametrize(
    ("seconds", "expected", "calls"),
    [({"a": [9.0, 1.0, 4.0, 2.0], "b": [3.0] * 4}, {"a": (2.0, 1.0, 4.0), "b": (3.0, 3.0, 3.0)}, "abababab"),
     ({"a": [LONG / 2] * 4, "b": [2 * LONG] * 3}, {"a": (LONG / 2,) * 3, "b": (2 * LONG,) * 3}, "abababa")],
    ids=["short", "long"],
)  # fmt: skip
def test_systems_take_turns_and_the_first_round_of_short_runs_does_not_count(monkeypatch, seconds, expected, calls):
    now, made = [0.0], []
    monkeypatch.setattr(measuring, "timer", lambda: now[0])

    def run(name: str) -> None:
        made.append(name)
        now[0] += seconds[name].pop(0)

    found = measuring.take_turns({name: lambda name=name: run(name) for name in "ab"}, 3)
    assert {name: tuple(time.values()) for name, time in found.items()} == expected
    assert made == list(calls)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("least", [1, 1e12])
def test_operations_of_linear_layers_and_lstms_are_counted_whatever_library_computes_them(least, monkeypatch):
    monkeypatch.setattr(cpu_operations, "MIN_MULTIPLICATIONS", least)
    monkeypatch.setattr(cpu_operations, "HAS_WIDE_INSTRUCTIONS", True)
    inputs, weight = (torch.randn(*shape, requires_grad=True) for shape in ((15, 8), (16, 8)))
    linear = measuring.operations_of(lambda: cpu_operations.linear(inputs, weight).sum().backward())
    assert linear == 3 * 2 * 15 * 8 * 16
    lstm, steps = nn.LSTM(8, 16, bidirectional=True), torch.randn(7, 3, 8)
    assert measuring.operations_of(lambda: lstm(steps)) == 2 * 2 * (7 * 3) * (8 + 16) * 4 * 16


@pytest.mark.slow
def test_operations_of_a_training_step_are_those_of_an_older_torch(tiny_config, a_batch, monkeypatch):
    """Which has no loss in one operation."""
    for name in ("hidden_dropout_prob", "parser_dropout_prob", "split_noise", "choice_noise"):
        setattr(tiny_config, name, 0.0)
    model = FastR2D2ForPreTraining(tiny_config)
    model(**a_batch).loss.backward()
    counted = measuring.operations_of(lambda: model(**a_batch).loss.backward())
    monkeypatch.delattr(nn, "LinearCrossEntropyOptions", raising=False)
    assert counted == measuring.operations_of(lambda: model(**a_batch).loss.backward()) > 0


@pytest.mark.skipif(measuring.sys.platform != "linux", reason="read from /proc")
def test_peak_memory_is_the_most_beyond_what_was_there_before():
    kept = torch.ones(40 * 2**20)  # 160 MiB of float32

    def run() -> None:
        torch.ones(50 * 2**20)
        torch.ones(10 * 2**20)

    assert 190 * 2**20 < measuring.peak_memory(run, "cpu") < 230 * 2**20
    assert measuring.peak_memory(lambda: None, "cpu") < 10 * 2**20 and len(kept)
    assert measuring.as_memory(3 * 2**29) == "1.50 GiB" and measuring.as_memory(2**20) == "1 MiB"


@pytest.mark.parametrize("least", [1, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_fair_bert_gives_what_the_plain_one_gives(tiny_config, dtype, least, monkeypatch):
    """Whether its products are large enough for oneDNN or not."""
    monkeypatch.setattr(cpu_operations, "MIN_MULTIPLICATIONS", least)
    monkeypatch.setattr(cpu_operations, "HAS_WIDE_INSTRUCTIONS", True)
    config = measuring.bert_config(tiny_config)
    assert config.num_hidden_layers == 3 * tiny_config.num_hidden_layers
    plain = BertModel(config, add_pooling_layer=False).eval().to(dtype)
    fair = measuring.on_our_products(plain)
    inputs = measuring.pad([list(range(20, 29)), [30, 31]], "cpu")
    with torch.inference_mode():
        expected, ours = (bert(**inputs).last_hidden_state for bert in (plain, fair))
    is_real = inputs["attention_mask"].bool()
    bound = 1e-4 if dtype == torch.float32 else 5e-2
    assert (ours - expected)[is_real].norm() < bound * expected[is_real].norm()
    assert {id(weight) for weight in fair.parameters()} == {id(weight) for weight in plain.parameters()}
    calls = []
    monkeypatch.setattr(measuring, "linear", lambda *given: calls.append(given) or cpu_operations.linear(*given))
    fair(**inputs)
    assert len(calls) == 6 * config.num_hidden_layers


def test_sentences_have_the_asked_lengths(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(LINES), encoding="utf-8")
    corpus = [tmp_path / "corpus.txt"]
    for low, high in ((2, 10), (20, 40), (60, 90)):
        for files in (corpus, None):
            found = measuring.read_corpus(files, 5, low, high)
            assert len(found) == 5 and all(low <= len(ids) < high for ids in found)
            assert found == measuring.read_corpus(files, 5, low, high)
    with pytest.raises(ValueError, match="sentences of 500 to 599 tokens, with neighbours joined, but 5 are needed"):
        measuring.read_corpus(corpus, 5, 500, 600)


@given(lengths=st.lists(st.integers(1, 30), max_size=30), size=st.integers(1, 9), tokens=st.integers(1, 60))
def test_batches_hold_every_sentence_once(lengths, size, tokens):
    sentences = [[number] * length for number, length in enumerate(lengths)]
    by_size, by_tokens = (list(measuring.batches_of(sentences, size, budget)) for budget in (None, tokens))
    for batches in (by_size, by_tokens):
        assert sorted(ids for batch in batches for ids in batch) == sorted(sentences)
    assert all(len(batch) <= size for batch in by_size)
    assert all(len(batch) == 1 or len(batch) * max(map(len, batch)) <= tokens for batch in by_tokens)
