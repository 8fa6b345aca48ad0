"""Kernels are compared with their definitions before a model uses them; where nothing can run them, a user is told, and
the definitions run."""

import subprocess
import sys
import warnings
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fast_r2d2_kernels
from fast_r2d2_kernels import trust
from modeling_fast_r2d2 import fused

SIZES = 8, 2, 16, 3


def test_the_check_takes_the_models_own_sizes_and_its_gradients_when_they_are_asked_for(tiny_model, monkeypatch):
    asked = []
    monkeypatch.setattr(fast_r2d2_kernels, "runs_fused", lambda tensor: True)
    monkeypatch.setattr(fast_r2d2_kernels.trust, "first_fault", lambda device, *case: asked.append(case))
    monkeypatch.setattr(fused, "_find_fault", cache(fused._find_fault.__wrapped__))
    tiny_model.config.composition_kernels = "triton"
    ids = torch.tensor([[20, 21, 22]])
    with torch.no_grad():
        tiny_model.model(ids, encoding="chart")
    assert asked == [(torch.float32, (16, 4, 32, 3), False)]
    tiny_model.model(ids, encoding="chart")
    assert asked[1:] == [(torch.float32, (16, 4, 32, 3), True)]


@pytest.mark.parametrize(
    ("module", "missing"), [(None, "the fast-r2d2 package"), (SimpleNamespace(runs_fused=lambda _: False), "Triton")]
)
def test_where_kernels_are_missing_a_gpus_user_is_told_once(module, missing, monkeypatch):
    class OnGPU(torch.Tensor):
        is_cuda = True

    fused._say_that_torch_runs.cache_clear()
    monkeypatch.setattr(fused, "_load", lambda: module)
    tensor = torch.zeros(2, 8).as_subclass(OnGPU)
    with pytest.warns(UserWarning, match=f"{missing} is not installed, so torch's operations run"):
        assert fused.fused_kernels("auto", tensor, SIZES) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fused.fused_kernels("auto", tensor, SIZES) is None
        assert fused.fused_kernels("auto", torch.zeros(2), SIZES) is None  # a CPU
    fused._say_that_torch_runs.cache_clear()


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch, fast_r2d2_kernels as kernels
assert not kernels.is_available()
x = torch.ones(2, 8, requires_grad=True)
kernels.bias_gelu(x, x[0], 0.5, seed=1).sum().backward()
assert x.grad.isfinite().all()
"""


@pytest.mark.slow
def test_references_run_where_triton_cannot_be_installed():
    run = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_TRITON], capture_output=True, text=True)
    assert run.returncode == 0 and not run.stderr, run.stderr


def test_a_check_within_a_checkpoint_finds_what_it_finds_elsewhere():
    """Its own gradients are no reason to compute the checkpoint again."""
    found = []

    def run(tensor):
        found.append(trust.first_fault(torch.device("cpu"), torch.float32, (24, 2, 48, 2)))
        return tensor.exp()

    checkpoint(run, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    assert found[0] is None


def test_a_full_gpu_is_no_fault_of_a_kernel(monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(trust, "_largest_error", fails)
    with pytest.raises(torch.OutOfMemoryError):
        trust.first_fault(torch.device("cpu"), torch.float32, (24, 2, 48, 2))
