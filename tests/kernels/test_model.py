"""The model chooses its kernels by its configuration; on fused ones it computes what it computes on torch's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fast_r2d2_kernels.composition_layer import LayerOptions
from modeling_fast_r2d2 import FastR2D2Config
from modeling_fast_r2d2.composition_layer import CompositionLayer
from modeling_fast_r2d2.fused import fused_kernels


@pytest.mark.slow
@pytest.mark.parametrize("which", ["curve", "not curve"])
def test_the_model_on_kernels_by_the_interpreter(which):
    """In processes of their own, since Triton reads the variable when kernels are decorated."""
    path = Path(__file__).with_name("model_on_kernels.py")
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "-k",
        which,
        str(path),
    ]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout


def test_a_cpu_takes_torchs_operations_unless_told_otherwise():
    tensor = torch.ones(2)
    assert fused_kernels("auto", tensor) is None and fused_kernels("torch", tensor) is None
    assert fused_kernels("triton", tensor.double()) is None
    with pytest.raises(ValueError, match="composition_kernels='triton' needs a model on a GPU"):
        fused_kernels("triton", tensor)
    with pytest.raises(ValueError, match="composition_kernels must be one of auto, torch, triton, got 'cuda'"):
        FastR2D2Config(composition_kernels="cuda")


def test_dropout_is_seeded_by_torch_and_off_in_evaluation(tiny_config):
    tiny_config.hidden_dropout_prob = 0.25
    layer = CompositionLayer(tiny_config)
    torch.manual_seed(0)
    first = LayerOptions.of(layer)
    torch.manual_seed(0)
    assert first == LayerOptions.of(layer) and first.dropout == 0.25 and LayerOptions.of(layer) != first
    assert LayerOptions.of(layer.eval())[2:] == (0.0, 0.0, 0)
