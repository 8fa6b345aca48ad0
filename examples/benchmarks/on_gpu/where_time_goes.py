"""Part (b): where does the time go?

    python examples/benchmarks/on_gpu/where_time_goes.py --output_dir runs/gpu

Of each case: seconds, seconds in which the GPU works, launches, waits and peak memory. Then the planning of charts on
the host and on the GPU, and the GPU's rates of copying and of matrix products.
"""

import torch
from part import Part, drawn_sentences
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart, plan_tree
from timing.clock import peak_memory, take_turns
from timing.limits import copy_bandwidth
from timing.systems import pad

# Calls of CUDA, as a profiler names them.
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")

ENCODINGS = {
    "forced 50 x 30": ("forced", 50, 30), "forced 50 x 150": ("forced", 50, 150),
    "forced 218 x 150": ("forced", 218, 150), "chart 64 x 27": ("chart", 64, 27),
}  # fmt: skip
TRAINING = {"training, 1,536 tokens": (57, 27), "training, 6,144 tokens": (228, 27)}


def profiled(run, device: str, table_rows: int = 15) -> dict:
    """Times, counts and the costliest operations of a function."""
    time = take_turns({"run": run}, 3, device)["run"]
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities) as profiler:
        run()
        if device == "cuda":
            torch.cuda.synchronize()  # one wait more, which is taken off below
    events = profiler.key_averages()
    count = {event.key: event.count for event in events}
    on_device = [event for event in events if event.device_type != DeviceType.CPU and not event.is_user_annotation]
    busy = sum(event.self_device_time_total for event in on_device) / 1e6
    sort_by = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    print(events.table(sort_by=sort_by, row_limit=table_rows, max_name_column_width=60), flush=True)
    return {
        "seconds": time.median, "least": time.least, "most": time.most, "device_seconds": busy,
        "launches": sum(count.get(name, 0) for name in LAUNCHES),
        "waits": max(sum(count.get(name, 0) for name in WAITS) - (device == "cuda"), 0),
        "operations": sum(number for name, number in count.items() if name.startswith("aten::")),
        "peak_bytes": peak_memory(run, device),
    }  # fmt: skip


def encoding_case(part: Part, case: str) -> dict:
    encoding, count, tokens = ENCODINGS[case]
    count, tokens = (2, 5) if part.tiny else (count, tokens)
    model = FastR2D2Model(FastR2D2Config(**part.sizes())).eval().to(part.device, part.dtype)
    batch = pad(drawn_sentences(count, tokens, model.config.vocab_size), part.device)

    def run() -> None:
        with torch.inference_mode():
            model(**batch, encoding=encoding)

    return {"tokens": count * tokens} | profiled(run, part.device)


def training_case(part: Part, case: str) -> dict:
    count, tokens = (2, 5) if part.tiny else TRAINING[case]
    model = FastR2D2ForPreTraining(FastR2D2Config(**part.sizes())).train().to(part.device)
    batch = pad(drawn_sentences(count, tokens, model.config.vocab_size), part.device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=part.device == "cuda")

    def step() -> None:
        with torch.autocast(part.device, part.dtype, enabled=part.dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"tokens": count * tokens} | profiled(step, part.device)


def planning(part: Part, count: int, tokens: int) -> dict:
    """Milliseconds of planning trees and charts from scores on the device: by the host, as models do it, or there."""
    count, tokens = (2, 5) if part.tiny else (count, tokens)
    scores, lengths = torch.randn(count, tokens - 1, device=part.device), torch.full((count,), tokens)
    here = lengths.to(part.device)
    functions = {
        "tree, host": lambda: plan_tree(merge_ranks(scores.cpu(), lengths), lengths).to(scores.device),
        "chart, host": lambda: plan_chart(merge_ranks(scores.cpu(), lengths), lengths, 4).to(scores.device),
        "tree, device": lambda: plan_tree(merge_ranks(scores, here), here),
        "chart, device": lambda: plan_chart(merge_ranks(scores, here), here, 4),
    }
    times = take_turns(functions, 3, part.device)
    return {name: 1000 * time.median for name, time in times.items()}


def product_rate(part: Part) -> dict:
    """Operations per second of a product of square matrices, the best of ten."""
    size = 64 if part.tiny else 8192
    left, right = (torch.randn(size, size, device=part.device, dtype=part.dtype) for _ in range(2))
    time = take_turns({"product": lambda: left @ right}, 10, part.device)["product"]
    return {"size": size, "operations_per_second": 2 * size**3 / time.least}


def main(arguments: list[str] | None = None) -> None:
    part = Part("where_time_goes", __doc__, arguments)
    copied = lambda: {"bytes_per_second": copy_bandwidth(part.device, 1 if part.tiny else 256)}  # noqa: E731
    part.measure("copying", copied)
    part.measure("products", lambda: product_rate(part))
    for case in ENCODINGS:
        part.measure(case, lambda case=case: encoding_case(part, case))
    for case in TRAINING:
        part.measure(case, lambda case=case: training_case(part, case))
    for count, tokens in ((64, 27), (218, 150)):
        name = f"planning {count} x {tokens}"
        part.measure(name, lambda count=count, tokens=tokens: planning(part, count, tokens))
    part.finish()


if __name__ == "__main__":
    main()
