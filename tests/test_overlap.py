"""Two batches at once; a device that is said to be a GPU stands in for one, without streams."""

import threading

import numpy as np
import pytest
import torch

from modeling_fast_r2d2 import FastR2D2Model, TreeParser, bundled_checkpoint, embedding, overlap
from modeling_fast_r2d2.overlap import overlapped
from modeling_fast_r2d2.parsing import tree_parser

GPU = torch.device("cuda", 0)
TEXTS = [f"It rained {'and rained ' * count}all day" for count in range(8)]


@pytest.fixture
def no_streams(monkeypatch):
    monkeypatch.setattr(overlap, "_stream_of", lambda device: None)
    monkeypatch.setattr(overlap, "_use_own_stream", lambda device, callers: None)


def test_a_gpu_has_two_batches_at_once_and_results_keep_their_order(no_streams):
    other = threading.Barrier(2, timeout=20)

    def work(number: int) -> int:
        other.wait()  # would break if this batch were alone
        return 10 * number

    assert list(overlapped(work, range(6), GPU)) == [0, 10, 20, 30, 40, 50]


def test_under_autocast_batches_run_in_the_thread_that_asks(no_streams, monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    threads = list(overlapped(lambda _: threading.current_thread(), range(3), GPU))
    assert threads == [threading.current_thread()] * 3


def test_a_cpu_has_one_batch_at_a_time_in_the_thread_that_asks():
    threads = list(overlapped(lambda _: threading.current_thread(), range(3), torch.device("cpu")))
    assert threads == [threading.current_thread()] * 3


def test_an_error_reaches_the_caller_and_ends_the_work(no_streams):
    begun = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise ValueError("sentence 1 is too long")
        return number

    results = overlapped(work, range(1000), GPU)
    with pytest.raises(ValueError, match="sentence 1"):
        list(results)
    assert len(begun) < 1000


def on_two_threads(function, batches, device):
    return overlapped(function, batches, GPU)


@pytest.mark.parametrize("training", [False, True])
def test_vectors_are_the_same_and_the_model_keeps_its_mode(no_streams, monkeypatch, training):
    model = FastR2D2Model.from_pretrained(bundled_checkpoint()).train(training)
    expected = model.encode(TEXTS, batch_size=2)
    monkeypatch.setattr(embedding, "overlapped", on_two_threads)
    np.testing.assert_array_equal(model.encode(TEXTS, batch_size=2), expected)
    assert model.training is training and all(module.training is training for module in model.modules())


def test_trees_are_the_same(no_streams, monkeypatch):
    parser = TreeParser.from_pretrained(bundled_checkpoint(), "chart", batch_tokens=16)
    expected = [parsed.tree for parsed in parser(TEXTS)]
    monkeypatch.setattr(tree_parser, "overlapped", on_two_threads)
    assert [parsed.tree for parsed in parser(TEXTS)] == expected
