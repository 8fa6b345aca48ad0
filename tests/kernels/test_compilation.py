"""Every kernel compiles for GPUs that are not there, as it is launched, and fits into registers and shared memory."""

import importlib
import re
import subprocess
from collections.abc import Callable

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import fast_r2d2_kernels as kernels

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")

TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
}
# The base size's widths, and a small model's; every architecture, type and width is met by every kernel, one of each
# in `make test`.
TARGETS = [
    pytest.param(80, torch.float16, 256, marks=pytest.mark.slow, id="sm_80"),
    pytest.param(90, torch.bfloat16, 768, id="sm_90"),
    pytest.param(100, torch.float32, 768, marks=pytest.mark.slow, id="sm_100"),
]
OPS = {
    "attention": lambda x: kernels.composition_attention(
        x(4, 9, 3, -1).flatten(2), x(4, 3, -1).flatten(1), len(x(-1)) // 64, dropout_p=0.1
    ),
    "residual_norm": lambda x: kernels.residual_norm(x(4, 9, -1), x(-1), x(4, 9, -1), 1e-5, 0.1),
    "bias_gelu": lambda x: kernels.bias_gelu(x(4, 9, 4, -1).flatten(2), x(4, -1).flatten(), 0.1),
    "gather": lambda x: kernels.gather_children(x(5, -1), x(2, -1), *torch.zeros(2, 9, dtype=torch.long)),
    "blend_norm": lambda x: kernels.blend_norm(x(9, 2), x(9, -1), x(9, -1), 1e-5),
    "choice": lambda x: kernels.choose(x(9, 4, -1), x(9, 4), torch.zeros(9, 4)),
    "range_logsumexp": lambda x: kernels.range_logsumexp(x(9), *torch.zeros(2, 5, dtype=torch.long)),
}


class Recorder:
    """Stands in for a kernel, and notes its launches."""

    def __init__(self):
        self.launches = []

    def __call__(self, kernel):
        self.kernel = kernel
        return self

    def __getitem__(self, grid):
        return lambda *args, **options: self.launches.append((self.kernel, args, options))


def launches(name: str, dtype: torch.dtype, size: int, monkeypatch) -> list[tuple]:
    """Of an op's forward and backward pass; a size -1 stands for ``size``."""
    module, recorder = importlib.import_module(f"fast_r2d2_kernels.{name}"), Recorder()
    monkeypatch.setattr(module, "wrap_triton", recorder)
    monkeypatch.setattr(module, "runs_fused", lambda tensor: True)

    def draw(*shape: int) -> torch.Tensor:
        return torch.zeros([size if n == -1 else n for n in shape], dtype=dtype, requires_grad=True)

    outputs = OPS[name](draw)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = [x for x in outputs if x.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.zeros_like(x) for x in wanted])
    return recorder.launches


def compile_launch(kernel: Callable, args: tuple, options: dict, capability: int, floats: str = "fp32"):
    """As Triton specialises a launch: whole numbers that 16 divides, unless excepted, and all pointers are aligned."""
    signature, constants, aligned = {}, {}, {}
    for param, value in zip(
        kernel.params, [*args, *(options.get(p.name) for p in kernel.params[len(args) :])], strict=True
    ):
        if isinstance(value, torch.Tensor):
            signature[param.name] = TYPES[value.dtype]
        elif param.is_constexpr:
            signature[param.name] = "constexpr"
            constants[param.num,] = value
        else:
            signature[param.name] = floats if isinstance(value, float) else "i32"
        is_divisible = isinstance(value, int) and value % 16 == 0 and not param.do_not_specialize
        if isinstance(value, torch.Tensor) or is_divisible and not param.is_constexpr:
            aligned[param.num,] = [["tt.divisibility", 16]]
    source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": options.get("num_warps", 4)})


def resources(compiled, folder) -> dict[str, int]:
    """Registers per thread, bytes of stack per thread (for spilled registers), bytes of shared memory per program."""
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", report).groups()
    return {"registers": int(registers), "stack": int(stack), "shared": compiled.metadata.shared}


@pytest.mark.parametrize(("capability", "dtype", "size"), TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_kernels_compile_and_fit(name, capability, dtype, size, monkeypatch, tmp_path):
    launched = launches(name, dtype, size, monkeypatch)
    assert len({kernel.__name__ for kernel, *_ in launched}) == 2  # forward and backward
    for launch in launched:
        used = resources(compile_launch(*launch, capability), tmp_path)
        print(name, launch[0].__name__, capability, dtype, used)
        assert used["registers"] <= 255 and used["stack"] == 0 and used["shared"] <= 48 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_kernels_compile_for_the_float64_numbers_that_torch_compile_hands_over(name, monkeypatch):
    for launch in launches(name, torch.bfloat16, 256, monkeypatch):
        compiled = compile_launch(*launch, 90, "fp64")
        assert not re.search(r"(add|mul|fma|div|sqrt)\S*\.f64", compiled.asm["ptx"])  # converted at the door, once


class Hopper:
    """A driver that knows its GPU but has none, for the analysis of what a kernel writes to."""

    def get_current_target(self):
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)


def test_torch_compile_sees_the_kernels_and_what_they_write_to(monkeypatch):
    """Forward and backward become whole graphs of kernels; nothing runs."""
    for name in OPS:
        monkeypatch.setattr(importlib.import_module(f"fast_r2d2_kernels.{name}"), "runs_fused", lambda tensor: True)
    written = []

    def note(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        nodes = [node for node in graph.graph.nodes if "triton_kernel_wrapper" in str(node.target)]
        written.extend(sorted(node.kwargs["tensors_to_clone"]) for node in nodes)
        outputs = [node.meta["val"] for node in next(iter(reversed(graph.graph.nodes))).args[0]]
        return make_boxed_func(lambda *inputs: [torch.zeros(x.shape, dtype=x.dtype) for x in outputs])

    def update(x, bias):
        hidden = kernels.residual_norm(x, bias, x, 1e-5, 0.1, 3)
        return kernels.bias_gelu(hidden, bias, 0.1, 4).sum()

    monkeypatch.setattr(triton.runtime.driver, "_active", Hopper())
    compiled = torch.compile(update, fullgraph=True, backend=aot_autograd(fw_compiler=note, bw_compiler=note))
    compiled(*(torch.zeros(shape, requires_grad=True) for shape in ((5, 64), (64,)))).backward()
    assert written[:2] == [["out", "reciprocal"], ["out"]]
    assert written[2:] == [["grad", "partial"], ["grad_residual", "grad_update", "partial"]]
