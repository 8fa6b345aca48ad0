"""The check of kernels before their first use; `test_interpreter.py` runs it in a process of its own."""

import importlib
import warnings
from functools import cache

import pytest
import torch

from fast_r2d2_kernels import trust
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model, fused

CPU = torch.device("cpu")
SMALL = 8, 2, 16, 3


@pytest.fixture(autouse=True)
def nothing_is_known_yet(monkeypatch):
    monkeypatch.setattr(fused, "_find_fault", cache(fused._find_fault.__wrapped__))


class OnGPU(torch.Tensor):
    """Says that it is on a GPU, and is not."""

    is_cuda = True


def vectors(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(2, 8, dtype=dtype).as_subclass(OnGPU)


def model(setting: str) -> FastR2D2Model:
    torch.manual_seed(0)
    config = FastR2D2Config(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16,
        parser_embedding_size=8, parser_hidden_size=8, parser_num_layers=1, composition_kernels=setting,
    )  # fmt: skip
    return FastR2D2Model(config).eval()


def spoil(monkeypatch, module: str, function: str, factor: float = 1.01) -> None:
    file = importlib.import_module(f"fast_r2d2_kernels.{module}")
    right = getattr(file, function)

    def wrong(*args):
        results = right(*args)
        return factor * results if torch.is_tensor(results) else (factor * results[0], *results[1:])

    monkeypatch.setattr(file, function, wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize("sizes", [SMALL, (128, 4, 256, 4)])
def test_right_kernels_are_trusted(sizes, dtype, with_gradients):
    state = torch.get_rng_state()
    with torch.inference_mode():
        assert trust.first_fault(CPU, dtype, sizes, with_gradients) is None
    assert torch.get_rng_state().equal(state)


def test_torchs_default_device_does_not_matter():
    with torch.device("meta"):
        assert trust.first_fault(CPU, torch.float32, SMALL) is None


def test_float64_stays_with_torch_under_autocast():
    ids, found = torch.tensor([[20, 21, 22]]), []
    for setting in ("torch", "triton"):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            found.append(model(setting).double()(ids, encoding="chart").pooler_output)
    assert torch.equal(*found)


def test_what_older_models_ask_for_is_gone():
    """On split scores. With ``"auto"`` they take torch's operations then."""
    assert trust.first_fault(CPU, torch.float32, None) == "the kernel range_logsumexp is gone"


@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize(("module", "functions", "op"), [
    ("attention", ("_attention", "_attention_backward"), "composition_attention of 1 tasks"),
    ("residual_norm", ("_residual_norm", "_residual_norm_backward"), "residual_norm"),
    ("bias_gelu", ("_bias_gelu", "_bias_gelu_backward"), "bias_gelu"),
    ("blend_norm", ("_blend_norm", "_blend_norm_backward"), "blend_norm"),
    ("gather", ("_gather_children", "_add_to_rows"), "gather_children of width 8"),
    ("choice", ("_choose", "_choose_backward"), "choose"),
])  # fmt: skip
def test_wrong_numbers_of_any_kernel_are_found(module, functions, op, is_backward, monkeypatch):
    for factor in (1.01, float("nan")):
        with monkeypatch.context() as context:
            spoil(context, module, functions[is_backward], factor)
            case = CPU, torch.float32, SMALL
            fault = trust.first_fault(*case)
            assert fault.startswith(f"the kernel {op}") and "gives wrong numbers: relative error" in fault
            assert (trust.first_fault(*case, with_gradients=False) is None) == is_backward


def test_auto_warns_once_and_takes_torchs_operations(monkeypatch):
    spoil(monkeypatch, "residual_norm", "_residual_norm")
    what = r"kernel residual_norm gives wrong numbers.*\(cpu, float32, torch .*, Triton .*\); torch's operations run"
    with pytest.warns(RuntimeWarning, match=f"the {what}"):
        assert fused.fused_kernels("auto", vectors(), SMALL) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fused.fused_kernels("auto", vectors(), SMALL) is None
        assert fused.fused_kernels("torch", vectors(), SMALL) is None


def test_a_kernel_that_fails_is_not_taken(monkeypatch):
    def fail(*args):
        raise OSError("no compiler")

    monkeypatch.setattr(importlib.import_module("fast_r2d2_kernels.bias_gelu"), "_bias_gelu", fail)
    with pytest.warns(RuntimeWarning, match="the kernel bias_gelu fails: OSError: no compiler"):
        assert fused.fused_kernels("auto", vectors(), SMALL) is None


def test_triton_raises_and_torch_does_not_ask(monkeypatch):
    ids = torch.tensor([[20, 21, 22]])
    with torch.no_grad():
        expected = model("torch")(ids).pooler_output
        torch.testing.assert_close(model("triton")(ids).pooler_output, expected)
        fused._find_fault.cache_clear()
        spoil(monkeypatch, "attention", "_attention")
        what = "composition_attention of 1 tasks gives wrong numbers.*take composition_"
        with pytest.raises(RuntimeError, match=what):
            model("triton")(ids)
        assert model("torch")(ids).pooler_output.equal(expected)
