"""Part (a): are the numbers right on this GPU?

    python examples/benchmarks/on_gpu/checks.py --output_dir runs/gpu

Versions; every kernel against its definition in all dtypes; the authors' reference cases by torch and by kernels; where
the host waits; the parser's LSTM in several dtypes; then, if pytest is installed, the tests of kernels and of the
model.
"""

import importlib.util
import multiprocessing
import os
import platform
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import torch
import transformers
from part import ROOT, Part, drawn_sentences

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model
from modeling_fast_r2d2.fused import fused_kernels
from timing.check import check_references
from timing.clock import take_turns
from timing.systems import pad

BASE, SMALL = (768, 12, 3072, 4), (256, 4, 1024, 4)  # hidden size, heads, intermediate size, window
KERNEL_DTYPES = torch.bfloat16, torch.float32, torch.float16
TESTS = ("ops_against_references.py", "test_model_on_gpu.py", "test_gpu.py")  # in the order of what they tell


def versions(part: Part) -> dict:
    found = {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}
    if part.device == "cuda":
        found |= {
            "device": torch.cuda.get_device_name(), "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
        }  # fmt: skip
    triton = importlib.util.find_spec("triton")
    return found | {"triton": importlib.import_module("triton").__version__ if triton else None}


def kernel_faults(part: Part) -> dict:
    """What is wrong with the kernels for each dtype and for the sizes of a model; None is good.

    Each has a process of its own, several at once: compiling takes most of the time, and after a wrong memory access a
    process cannot use its GPU any more.
    """
    import fast_r2d2_kernels as kernels

    if not kernels.is_available():
        return {"left_out": "kernels need a GPU and Triton"}
    cases = [(part.device, dtype, sizes) for dtype in KERNEL_DTYPES for sizes in (BASE, SMALL, None)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(KERNEL_DTYPES), context, max_tasks_per_child=1) as pool:
        faults = {
            f"{dtype}, size {sizes and sizes[0]}": fault
            for (_, dtype, sizes), fault in zip(cases, pool.map(fault_of, cases), strict=True)
        }
    if any(faults.values()):
        raise ValueError(str(faults))
    return faults


def fault_of(case: tuple[str, torch.dtype, tuple[int, int, int, int] | None]) -> str | None:
    from fast_r2d2_kernels import trust

    device, dtype, sizes = case
    return trust.first_fault(torch.device(device), dtype, sizes)


def references(part: Part, **options) -> dict:
    return {"right": check_references(part.device, torch.float32, **options)}


def waits(part: Part, encoding: str) -> dict:
    """How often the host waits in an encoding, and where."""
    model = FastR2D2Model(FastR2D2Config(**part.sizes())).eval().to(part.device, part.dtype)
    batch = pad(drawn_sentences(8, 12, model.config.vocab_size), part.device)
    with torch.inference_mode():
        model(**batch, encoding=encoding)
        if part.device == "cpu":
            return {"left_out": "a CPU waits for nothing"}
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            model(**batch, encoding=encoding)
            torch.cuda.set_sync_debug_mode("default")
    places = [f"{warning.filename}:{warning.lineno}" for warning in seen if "synchroniz" in str(warning.message)]
    most = {"forced": 4, "chart": 6}[encoding]
    if len(places) > most:
        raise ValueError(f"{len(places)} waits, at most {most} are allowed: {places}")
    return {"waits": len(places), "places": places}


def lstm_times(part: Part) -> dict:
    """Milliseconds of the parser's LSTM by dtype; models always take float32."""
    count, tokens = (2, 5) if part.tiny else (50, 30)
    sizes, times = part.sizes(), {}
    lengths = torch.full((count,), tokens)
    for dtype in (torch.float32, torch.bfloat16, torch.float16) if part.device == "cuda" else (torch.float32,):
        backbone = FastR2D2Model(FastR2D2Config(**sizes)).parser.backbone.to(part.device, dtype).eval()
        embedded = torch.randn(count, tokens, sizes.get("parser_embedding_size", 128), device=part.device, dtype=dtype)
        with torch.inference_mode():
            run = lambda backbone=backbone, embedded=embedded: backbone(embedded, lengths)  # noqa: E731
            times[str(dtype)] = 1000 * take_turns({"lstm": run}, 5, part.device)["lstm"].median
    return times


def tests(part: Part, file: str, keyword: str = "") -> dict:
    """One of the tests' files, in a process of its own."""
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("hypothesis") is None:
        return {"left_out": "pytest or hypothesis is not installed"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-m", ""]
    command += [str(ROOT / "tests" / "kernels" / file), *(["-k", keyword] if keyword else [])]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True,
                         timeout=max(60 * part.minutes_left, 1))  # fmt: skip
    print(run.stdout[-6000:], run.stderr[-2000:], flush=True)
    if run.returncode:
        raise ValueError(run.stdout.strip().splitlines()[-1] if run.stdout.strip() else run.stderr[-500:])
    return {"passed": run.stdout.strip().splitlines()[-1]}


def main(arguments: list[str] | None = None) -> None:
    part = Part("checks", __doc__, arguments)
    part.measure("versions", lambda: versions(part))
    part.measure("kernels", lambda: kernel_faults(part))
    part.measure("references by torch", lambda: references(part, composition_kernels="torch"))
    if part.device == "cuda":
        part.measure("references by kernels", lambda: references(part, composition_kernels="triton"))
    part.measure("kernels are in use", lambda: fused_kernels("auto", torch.zeros(1, 8, device=part.device)) is not None)
    for encoding in ("forced", "chart"):
        part.measure(f"waits, {encoding}", lambda encoding=encoding: waits(part, encoding))
    part.measure("lstm milliseconds", lambda: lstm_times(part))
    for file in TESTS if part.device == "cuda" else ():
        part.measure(file, lambda file=file: tests(part, file))
    part.finish()


if __name__ == "__main__":
    main()
