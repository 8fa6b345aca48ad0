"""Levels that are replayed, with a stand-in for recordings on a CPU; test_model_on_gpu.py has CUDA's."""

import copy
import gc
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from stand_in_recorder import StandInRecorder, Tape, owned  # noqa: E402

from modeling_fast_r2d2 import FastR2D2Model, level_graphs, recorded_levels  # noqa: E402
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart, plan_tree  # noqa: E402
from modeling_fast_r2d2.encoder import EncodedChart, encode_chart, encode_forced  # noqa: E402
from modeling_fast_r2d2.level_graphs import LevelGraphs, padded_size  # noqa: E402

IDS = torch.tensor([[20, 21, 22, 23, 24, 25, 26], [30, 31, 32, 0, 0, 0, 0]])


@pytest.fixture
def model(tiny_config, monkeypatch) -> FastR2D2Model:
    """A model that replays."""
    monkeypatch.setattr(level_graphs, "Recorder", StandInRecorder)
    monkeypatch.setattr(level_graphs, "can_record", lambda leaves: True)
    monkeypatch.setattr(level_graphs, "MIN_NODES", 32)
    # On a CPU, torch's own reads its input.
    monkeypatch.setattr(torch.nn.functional, "one_hot", lambda ids, size: (ids[:, None] == torch.arange(size)).long())
    tiny_config.cuda_graphs = True
    return FastR2D2Model(tiny_config).eval()


def plain(model: FastR2D2Model) -> FastR2D2Model:
    model = copy.deepcopy(model)
    model.composition.graphs = None
    return model


def recorded(model: FastR2D2Model) -> int:
    return len(model.composition.graphs.recorder.tapes)


def assert_same(ours: EncodedChart, expected: EncodedChart) -> None:
    for name in ("nodes", "log_prob", "candidate_log_prob", "chosen"):
        torch.testing.assert_close(getattr(ours, name), getattr(expected, name))


@given(st.integers(1, 10_000))
def test_padded_sizes(count):
    size = padded_size(count)
    assert count <= size < 2 * count and padded_size(size) == size
    assert size & (size - 1) == 0 if count <= 64 else size % 64 == 0
    assert count <= 512 or size < 1.25 * count


@st.composite
def batches(draw) -> tuple:
    """Lengths, window (1 for trees), whether candidates are forbidden, whether it is inference mode, and a seed."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    return lengths, draw(st.integers(1, 4)), draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 10**6))


def encode(model: FastR2D2Model, batch: tuple) -> EncodedChart:
    """Drawn leaves and ranks; all levels have at most one forbidden candidate per cell."""
    lengths, window, forbids, is_inference, seed = batch
    generator, lengths = torch.Generator().manual_seed(seed), torch.tensor(lengths)
    size = model.config.hidden_size
    ranks = merge_ranks(torch.randn(len(lengths), int(lengths.max()) - 1, generator=generator), lengths)
    leaves, tasks = (
        torch.randn(int(lengths.sum()), size, generator=generator),
        torch.randn(2, size, generator=generator),
    )
    with torch.inference_mode(is_inference), torch.no_grad():
        if window == 1:
            return encode_forced(plan_tree(ranks, lengths), leaves, model.composition, tasks)
        chart = plan_chart(ranks, lengths, window)
        forbidden = torch.zeros(chart.splits.shape, dtype=torch.bool)
        forbidden[:, 1] = (chart.splits[:, 1] >= 0) & (torch.rand(chart.num_cells, generator=generator) < 0.5)
        return encode_chart(chart, leaves, model.composition, tasks, forbidden=forbidden if forbids else None)


@settings(max_examples=25)
@given(st.lists(batches(), min_size=1, max_size=6), st.sampled_from([1, 8, 2048]))
def test_replayed_encodings_are_the_launched_ones(model, drawn, most):
    """In a row, with other sizes and growing buffers; levels above ``most`` compositions are not recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_levels, "MAX_COMPOSITIONS", most)
        patch.setattr(level_graphs, "MIN_NODES", 1)
        replaying = copy.deepcopy(model)
        results = [encode(replaying, batch) for batch in drawn]
    for ours, batch in zip(results, drawn, strict=True):  # which later encodings have not changed
        assert_same(ours, encode(plain(model), batch))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("encoding", ["forced", "chart"])
def test_outputs_are_the_same(model, encoding, mode):
    for ids in (IDS, IDS + 5 * (IDS > 0), IDS[:1]):
        with mode():
            ours, expected = (each(ids, encoding=encoding) for each in (model, plain(model)))
        torch.testing.assert_close(ours.last_hidden_state, expected.last_hidden_state)
        torch.testing.assert_close(ours.log_prob, expected.log_prob)
    assert 0 < recorded(model) <= 5
    assert model.composition.graphs.recorder.replays > recorded(model)


def test_threads_take_turns(model):
    batches = [([9, 3], 1, False, False, seed) for seed in range(8)] + [([5, 7], 3, True, True, 9)] * 8
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda batch: encode(model, batch), batches))
    for ours, batch in zip(results, batches, strict=True):
        assert_same(ours, encode(plain(model), batch))


@torch.no_grad()
def test_a_recording_serves_both_modes_and_new_weights(model):
    model(IDS)
    count = recorded(model)
    with torch.inference_mode():
        model(IDS)
    for parameter in model.composition.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))  # in place: the address stays
    torch.testing.assert_close(model(IDS).pooler_output, plain(model)(IDS).pooler_output)
    assert recorded(model) == count
    before, weight = model.composition.graphs.recorder, model.composition.stack.layers[0].output.weight
    weight.data = weight.data.clone() + 1
    torch.testing.assert_close(model(IDS).pooler_output, plain(model)(IDS).pooler_output)
    assert model.composition.graphs.recorder is not before and recorded(model) == count


@torch.no_grad()
def test_large_levels_and_large_encodings_are_not_recorded(model, monkeypatch):
    monkeypatch.setattr(recorded_levels, "MAX_COMPOSITIONS", 0)
    model(IDS)
    assert not recorded(model)
    model = plain(model)
    model.composition.graphs = LevelGraphs()
    monkeypatch.setattr(level_graphs, "MAX_NODES", 15)  # 10 tokens, 8 cells
    model(IDS)
    assert model.composition.graphs.recorder is None


@torch.no_grad()
def test_an_error_ends_the_turn(model, monkeypatch):
    expected = plain(model)(IDS).pooler_output
    with monkeypatch.context() as patch:
        patch.setattr(StandInRecorder, "record", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(IDS)
    torch.testing.assert_close(model(IDS).pooler_output, expected)


@torch.no_grad()
def test_copies_and_pickles_begin_without_recordings(model):
    model(IDS)
    assert model.composition.graphs.kinds
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not copied.composition.graphs.kinds
        assert copied.composition.graphs is not model.composition.graphs


@torch.no_grad()
def test_recordings_do_not_keep_a_model_alive(tiny_config, model):
    model(IDS)
    buffer = weakref.ref(next(iter(model.composition.graphs.kinds.values())).chosen)
    gc.collect()
    gc.disable()
    try:
        model.composition = None
        assert buffer() is None
    finally:
        gc.enable()


class Leaves:
    """What is asked of leaves on a GPU."""

    is_cuda, device = True, torch.device("cuda")


def test_only_evaluation_without_gradients_and_autocast_is_served(tiny_config, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    composition, graphs = FastR2D2Model(tiny_config).eval().composition, LevelGraphs()
    with torch.no_grad():
        assert graphs.serve(composition, Leaves(), level_graphs.MAX_NODES)
        assert not graphs.serve(composition, Leaves(), level_graphs.MAX_NODES + 1)
        assert not graphs.serve(composition, torch.ones(1, 3), 1)
        for module, name, value in (
            (torch, "is_autocast_enabled", lambda device: True), (composition, "_is_replica", True),
            (composition, "_compiled_call_impl", len), (torch.cuda, "is_current_stream_capturing", lambda: True),
            (composition.stack.layers[0].dropout, "training", True),  # as for dropout in evaluation
        ):  # fmt: skip
            with monkeypatch.context() as context:
                context.setattr(module, name, value, raising=False)
                assert not graphs.serve(composition, Leaves(), 1)
    assert not graphs.serve(composition, Leaves(), 1)  # with gradients


def test_a_model_that_replays_learns(model):
    model(IDS).pooler_output[:, 0].sum().backward()
    assert model.composition.blend.weight.grad.norm() > 0
    assert model.composition.graphs.recorder is None


def test_the_stand_in_finds_stale_reads():
    nodes, rows = torch.zeros(3), [torch.tensor([[1]])]
    recorder = StandInRecorder(nodes.device)
    [row] = rows
    replay = recorder.record(lambda: nodes.index_copy_(0, rows[0][0], nodes.index_select(0, rows[0][0] - 1) + 1))
    replay()
    assert nodes.tolist() == [0, 1, 0] and owned(recorder.tapes)[0] is row
    with pytest.raises(IndexError):
        replay()  # with rows that are not new
    recorder.leave()
    nodes[1] = 1
    row.fill_(1)
    replay()
    assert nodes.isnan().all()  # row 0 was not written
    del row, rows[0]
    with pytest.raises(RuntimeError, match="given away"):
        replay()
    with pytest.raises(RuntimeError, match="cannot be recorded"), Tape():
        nodes.sum().item()
