"""Padding, keys and fixed inputs of recorded levels, with a recorder for CPUs; test_model_on_gpu.py has CUDA's."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import FastR2D2Model, level_graphs
from modeling_fast_r2d2.level_graphs import LevelGraphs, padded_size

IDS = torch.tensor([[20, 21, 22, 23, 24, 25, 26], [30, 31, 32, 0, 0, 0, 0]])


@pytest.fixture
def recorded(tiny_config, monkeypatch):
    """A model that replays, and a list of what was recorded."""
    made = []

    def record(function, device):
        made.append(function)
        results = function()  # at fixed addresses, as those of a graph

        def replay():
            for result, new in zip(results, function(), strict=True):
                if result is not None:
                    result.copy_(new)
            return results

        return replay

    monkeypatch.setattr(level_graphs, "record", record)
    monkeypatch.setattr(
        LevelGraphs,
        "serve",
        lambda self, children: 0 < children.shape[1] <= level_graphs.MAX_COMPOSITIONS and self._evaluates,
    )
    tiny_config.cuda_graphs = True
    torch.manual_seed(0)
    return FastR2D2Model(tiny_config).eval(), made


def plain(model: FastR2D2Model) -> FastR2D2Model:
    model = copy.deepcopy(model)
    model.composition.graphs = None
    return model


@given(st.integers(1, 10_000))
def test_padded_sizes(count):
    size = padded_size(count)
    assert size // 2 < count <= size and size & (size - 1) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("encoding", ["forced", "chart", "heuristic"])
def test_replayed_levels_are_the_composed_ones(recorded, encoding, mode):
    model, made = recorded
    for ids in (IDS, IDS + 5 * (IDS > 0), IDS[:1]):
        with mode():
            ours, expected = (each(ids, encoding=encoding) for each in (model, plain(model)))
        torch.testing.assert_close(ours.last_hidden_state, expected.last_hidden_state)
        torch.testing.assert_close(ours.log_prob, expected.log_prob)
    assert 0 < len(made) <= 5  # sizes 1 to 16, each once


@torch.no_grad()
def test_a_recording_serves_both_modes_and_new_weights(recorded):
    model, made = recorded
    model(IDS)
    with torch.inference_mode():
        model(IDS)
    count = len(made)
    for parameter in model.composition.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))  # in place: the address stays
    torch.testing.assert_close(model(IDS).pooler_output, plain(model)(IDS).pooler_output)
    assert len(made) == count
    weight = model.composition.stack.layers[0].output.weight
    weight.data = weight.data.clone()
    torch.testing.assert_close(model(IDS).pooler_output, plain(model)(IDS).pooler_output)
    assert len(made) == 2 * count


@torch.no_grad()
def test_large_levels_are_composed_at_once(recorded, monkeypatch):
    model, made = recorded
    monkeypatch.setattr(level_graphs, "MAX_COMPOSITIONS", 0)
    model(IDS)
    assert not made


def test_results_are_not_overwritten_by_the_next_level(recorded):
    model, _ = recorded
    with torch.no_grad():
        first = model(IDS)
        kept = first.last_hidden_state.clone()
        model(IDS.flip(1)[:, 4:])
    assert torch.equal(first.last_hidden_state, kept)


def test_copies_and_pickles_begin_without_recordings(recorded):
    model, _ = recorded
    with torch.no_grad():
        model(IDS)
    assert model.composition.graphs._recordings
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not copied.composition.graphs._recordings
        assert copied.composition.graphs is not model.composition.graphs


class OnGPU:
    """What `serve` asks of children."""

    is_cuda, device = True, torch.device("cuda")

    def __init__(self, compositions: int):
        self.shape = (2, compositions, 16)


def test_only_evaluation_without_gradients_and_autocast_is_served(tiny_config, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    tiny_config.cuda_graphs = True
    model = FastR2D2Model(tiny_config).eval()
    graphs, composition = model.composition.graphs, model.composition
    graphs.begin(composition)
    with torch.no_grad():
        assert graphs.serve(OnGPU(1)) and graphs.serve(OnGPU(level_graphs.MAX_COMPOSITIONS))
        assert not graphs.serve(OnGPU(level_graphs.MAX_COMPOSITIONS + 1)) and not graphs.serve(OnGPU(0))
        assert not graphs.serve(torch.ones(2, 1, 3))
        with monkeypatch.context() as context:
            context.setattr(torch, "is_autocast_enabled", lambda device: True)
            assert not graphs.serve(OnGPU(1))
        composition.stack.layers[0].dropout.train()  # as for dropout in evaluation
        graphs.begin(composition)
        assert not graphs.serve(OnGPU(1))
        composition.eval()._is_replica = True
        graphs.begin(composition)
        assert not graphs.serve(OnGPU(1))
        del composition._is_replica
        graphs.begin(composition)
    assert not graphs.serve(OnGPU(1))  # with gradients
    model(IDS).pooler_output.sum().backward()


def test_what_a_recording_reads_lives_as_long_as_it(recorded, monkeypatch):
    """A graph holds addresses, not tensors."""
    model, _ = recorded
    read = []

    def record(function, device):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        recording = cells["self"].cell_contents
        read.extend(weakref.ref(t) for t in (*recording.tensors, recording.children))
        results = function()
        return lambda: results

    monkeypatch.setattr(level_graphs, "record", record)
    with torch.no_grad():
        model(IDS)
    gc.collect()
    assert read and all(tensor() is not None for tensor in read)
