"""How often the host waits for a GPU, counted on a stand-in, whose results are a CPU's."""

import copy
import sys

import pytest
import torch
from stand_in_gpu import OnGPU, move_to_gpu, stand_in_gpu, to_gpu
from torch.nn.utils.rnn import PackedSequence

import fast_r2d2_kernels  # noqa: F401, what is not imported cannot be patched
from modeling_fast_r2d2 import encoder, fused
from modeling_fast_r2d2.choice import Nodes
from modeling_fast_r2d2.modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForSequenceClassification,
)
from pretraining.losses import LOSSES, Guidance, Objective

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
SPANS = torch.tensor([[[1, 3], [5, 6]], [[-1, -1]] * 2, [[0, 1], [-1, -1]], [[2, 5], [-1, -1]], [[0, 7], [2, 4]]])


@pytest.fixture(params=["torch", "auto"], autouse=True)
def kernels(request, monkeypatch, tiny_config) -> None:
    """By torch's operations, and by the fused ops, whose definitions stand in for their kernels."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fast_r2d2_kernels.") and hasattr(module, "runs_fused"):
            monkeypatch.setattr(module, "runs_fused", lambda tensor: False)
    monkeypatch.setattr(fused, "_find_fault", lambda *_: None)  # the check of kernels waits, once in a process
    tiny_config.composition_kernels = request.param
    if request.param == "auto":  # the definition of dropout draws on the host
        tiny_config.hidden_dropout_prob = tiny_config.attention_probs_dropout_prob = 0.0


def check(model, inputs: dict, number: int, **options) -> list[str]:
    """The host waits so often on the stand-in; what it waits for. In evaluation the output is that on a CPU."""
    expected = model(**inputs, **options)
    with stand_in_gpu() as gpu:
        moved = move_to_gpu(copy.deepcopy(model))
        inputs = {name: to_gpu(tensor) for name, tensor in inputs.items()}
        gpu.waits.clear()
        output = moved(**inputs, **options)
    assert len(gpu.waits) == number, gpu.waits
    assert expected.keys() == output.keys()
    for name, value in expected.items():
        if not model.training:
            torch.testing.assert_close(output[name].held, value, rtol=1e-5, atol=1e-6)
    return gpu.waits


@pytest.mark.parametrize("with_spans", [False, True])
@pytest.mark.parametrize("encoding", ["forced", "chart"])
@torch.no_grad()
def test_an_encoding_waits_for_its_inputs_scores_and_check_alone(tiny_model, a_batch, encoding, with_spans):
    inputs = a_batch | ({"atom_spans": SPANS} if with_spans else {})
    waits = check(tiny_model.model, inputs, 3, encoding=encoding)
    places = [wait.split(" at ")[1].split(":")[0] for wait in waits]
    assert places == ["chart.py", "inputs.py", "modeling_fast_r2d2.py"]


@pytest.mark.parametrize("encoding", ["forced", "chart"])
@torch.no_grad()
def test_large_levels_are_encoded_in_parts_without_waiting(tiny_model, a_batch, encoding, monkeypatch):
    seen, write = [], Nodes.write

    def noting(nodes, level, vectors, *values):
        seen.append(len(vectors)) if isinstance(vectors, OnGPU) else None
        write(nodes, level, vectors, *values)

    monkeypatch.setattr(Nodes, "write", noting)
    check(tiny_model.model, a_batch, 3, encoding=encoding)
    whole, most = seen.copy(), 4 if encoding == "forced" else 12
    seen.clear()
    monkeypatch.setattr(encoder, "MAX_COMPOSITIONS_ON_GPU", most)
    check(tiny_model.model, a_batch, 3, encoding=encoding)
    assert max(whole) > most >= max(seen) and sum(seen) == sum(whole)


@pytest.mark.parametrize("parser_type", ["lstm", "transformer"])
@torch.no_grad()
def test_parsing_waits_as_often(tiny_config, a_batch, parser_type):
    tiny_config.parser_type = parser_type
    check(FastR2D2ForConstituencyParsing(tiny_config).eval(), a_batch, 2)


@pytest.mark.parametrize("objective", ["exact", "sampled"])
@torch.no_grad()
def test_pretraining_waits_for_nothing_more(tiny_model, a_batch, objective, monkeypatch):
    monkeypatch.setattr(torch, "binomial", lambda trials, share, generator: trials * share)  # CUDA has its own draws
    tiny_model.config.tree_objective = objective
    check(tiny_model, a_batch, 3)
    check(tiny_model.train(), a_batch, 2)


class Guided(torch.nn.Module):
    """All losses of pretraining, with guidance."""

    def __init__(self, model):
        super().__init__()
        self.objective = Objective(model)

    def forward(self, chart_scores, choice_scores, **inputs):
        guidance = Guidance(chart_scores=chart_scores, choice_scores=choice_scores)
        return self.objective(inputs, guidance, LOSSES[:3])  # those that need nothing but a chart


@torch.no_grad()
def test_guidance_waits_once_for_each_tensor_of_scores(tiny_model, a_batch):
    scores = {"chart_scores": torch.randn(5, 8), "choice_scores": torch.randn(5, 8)}
    check(Guided(tiny_model).eval(), a_batch | scores, 5)
    check(Guided(tiny_model).train(), a_batch | scores, 3)
    check(tiny_model, a_batch | {"split_scores": scores["chart_scores"]}, 2)


@torch.no_grad()
def test_fine_tuning_waits_for_its_labels_as_well(tiny_config, a_batch):
    tiny_config.num_labels = 2
    model = FastR2D2ForSequenceClassification(tiny_config).train()
    check(model, a_batch | {"labels": torch.tensor([0, 1, 0, 1, 1])}, 3)


@torch.no_grad()
def test_heuristic_pruning_waits_once_for_each_merge(tiny_model, a_batch):
    rows, merges = 3, 5  # above the tokens, and until four of nine units are left
    check(tiny_model.model, a_batch, 3 + rows + merges, encoding="heuristic")


@torch.no_grad()
def test_pairs_in_one_row_are_told_apart_with_one_wait_more(tiny_config):
    tiny_config.num_labels = 2
    model = FastR2D2ForPairClassification(tiny_config).eval()
    types = torch.tensor([[0, 0, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]])
    inputs = {"input_ids": torch.randint(20, 100, (2, 6)), "token_type_ids": types, "attention_mask": mask}
    check(model, inputs, 4)


@torch.no_grad()
def test_the_stand_in_counts_waits():
    with stand_in_gpu() as gpu:
        x = to_gpu(torch.tensor([1.0, -1.0]))
        for wait in (x.sum().item, lambda: x[x > 0], lambda: x[[0]], x.cpu, lambda: torch.ones(2).to(x)):
            before = len(gpu.waits)
            wait()
            assert len(gpu.waits) == before + 1
        x[:1].add_(1).mul_(2).clone().cumsum(0)
        assert len(gpu.waits) == before + 1 and x.held.tolist() == [4, -1]
        with pytest.raises(RuntimeError, match="a CPU's tensor"):
            x + torch.ones(2)
        with pytest.raises(RuntimeError, match="all other tensors on the GPU"):
            torch.nn.LSTM(1, 1)(PackedSequence(x[:, None], torch.tensor([1, 1])))
