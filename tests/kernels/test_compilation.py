"""Every kernel compiles for GPUs that are not there, as it is launched, and fits into registers and shared memory."""

import importlib
import re
import subprocess
from collections.abc import Callable

import pytest
import torch

import fast_r2d2_kernels as kernels

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")

TYPES = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64", torch.int32: "*i32",
}  # fmt: skip
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
}


def launches(name: str, dtype: torch.dtype, size: int, monkeypatch) -> list[tuple]:
    """Of an op's forward and backward pass; a size -1 stands for ``size``."""
    module, launched = importlib.import_module(f"fast_r2d2_kernels.{name}"), []

    def note(kernel: Callable, programs: int, *args, **options) -> None:
        launched.append((kernel, args, options))

    monkeypatch.setattr(module, "launch", note)
    monkeypatch.setattr(module, "runs_fused", lambda tensor: True)

    def draw(*shape: int) -> torch.Tensor:
        return torch.zeros([size if n == -1 else n for n in shape], dtype=dtype, requires_grad=True)

    outputs = OPS[name](draw)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    wanted = [x for x in outputs if x.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.zeros_like(x) for x in wanted])
    return launched


def compile_launch(kernel: Callable, args: tuple, options: dict, capability: int):
    """As Triton specialises a launch: whole numbers that 16 divides, unless excepted, and all pointers are aligned."""
    signature, constants, aligned = {}, {}, {}
    values = [*args, *(options.get(param.name) for param in kernel.params[len(args) :])]
    for param, value in zip(kernel.params, values, strict=True):
        if isinstance(value, torch.Tensor):
            signature[param.name] = TYPES[value.dtype]
        elif param.is_constexpr:
            signature[param.name] = "constexpr"
            constants[param.num,] = value
        else:
            signature[param.name] = "fp32" if isinstance(value, float) else "i32"
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
