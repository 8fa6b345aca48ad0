"""Descriptions of the processor and of the libraries that compute matrix products on it."""

import platform
import re
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from modeling_fast_r2d2.cpu_linear import linear

LIBRARIES = {"oneDNN": r"MKL-DNN (v[\d.]+)", "MKL": r"oneAPI Math Kernel Library Version ([\w.]+)"}


def describe_machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{_processor()}, {capability}, {torch.get_num_threads()} threads"


def _processor() -> str:
    """The processor's name; on Linux with family and model, because a virtual machine may give a vague name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    pairs = (map(str.strip, line.split(":", 1)) for line in reversed(lines) if ":" in line)
    fields = dict(pairs)
    if "model name" not in fields:
        return platform.machine()
    numbers = [f"{name.split()[-1]} {fields[name]}" for name in ("cpu family", "model") if name in fields]
    return f"{fields['model name']} ({', '.join(numbers)})" if numbers else fields["model name"]


def describe_products(device: str, dtype: torch.dtype) -> str:
    """The library that computes torch's linear layers, and the library that computes ours."""
    torchs = "cuBLAS" if device.startswith("cuda") else _torchs_library(dtype)
    ours = f"ours, if large, by {_with_version('oneDNN')}" if _calls_onednn(device, dtype) else "ours as well"
    return f"products: torch's by {torchs}, {ours}"


def _torchs_library(dtype: torch.dtype) -> str:
    """The library of torch's linear layers on a CPU."""
    if dtype != torch.float32:
        served = torch.backends.mkldnn.is_available() and _onednn_has(dtype)
        return _with_version("oneDNN") if served else "torch's own code"
    names = re.findall(r"BLAS_INFO=(\w+)", torch.__config__.show())
    name = names[0] if names else "torch's own code"
    return _with_version("MKL") if name == "mkl" else name


def _onednn_has(dtype: torch.dtype) -> bool:
    supports = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return supports[dtype]() if dtype in supports else False


def _with_version(library: str) -> str:
    versions = re.findall(LIBRARIES[library], torch.__config__.show())
    return " ".join([library, *versions[:1]])


def _calls_onednn(device: str, dtype: torch.dtype) -> bool:
    """Whether our linear layers call oneDNN, tried with a large product."""
    inputs, weight = (torch.zeros(1024, 1024, device=device, dtype=dtype) for _ in range(2))
    with CalledOperations() as names, torch.no_grad():
        linear(inputs, weight)
    return "mkldnn._linear_pointwise.default" in names.called


class CalledOperations(TorchDispatchMode):
    """Notes the names of the operations that are called."""

    def __init__(self):
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.called.append(str(function))
        return function(*args, **(kwargs or {}))
