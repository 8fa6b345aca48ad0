"""Part (d): one way against another.

    python examples/benchmarks/on_gpu/compare.py --output_dir runs/gpu

Fused kernels against torch's operations, and a model in bfloat16 against one in float32 under autocast. The ways take
turns in one process, on the same batches.
"""

from collections.abc import Callable

import torch
from part import Part, drawn_sentences

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model
from timing.clock import take_turns
from timing.systems import pad

CASES = {"forced 50 x 30": ("forced", 50, 30), "forced 218 x 150": ("forced", 218, 150),
         "chart 64 x 27": ("chart", 64, 27)}  # fmt: skip


def encoders(part: Part, encoding: str, batch: dict) -> dict[str, Callable[[], None]]:
    """A function for each way to encode a batch."""
    fields, functions = part.sizes(), {}
    ways = {"torch": {"composition_kernels": "torch"}, "fused": {"composition_kernels": "auto"}}
    torch.manual_seed(0)
    weights = FastR2D2Model(FastR2D2Config(**fields)).state_dict()
    for name, options in ways.items():
        model = FastR2D2Model(FastR2D2Config(**fields, **options)).eval()
        model.load_state_dict(weights)
        functions[name] = _encoder(model.to(part.device, part.dtype), encoding, batch)
    whole = FastR2D2Model(FastR2D2Config(**fields)).eval().to(part.device)
    functions["fused, float32 under autocast"] = _encoder(whole, encoding, batch, part.dtype)
    return functions


def _encoder(model: FastR2D2Model, encoding: str, batch: dict, autocast: torch.dtype | None = None) -> Callable:
    device = model.device.type

    @torch.inference_mode()
    def run() -> None:
        is_used = autocast not in (None, torch.float32)
        with torch.autocast(device, autocast if is_used else torch.bfloat16, enabled=is_used):
            model(**batch, encoding=encoding)

    return run


def trainers(part: Part, batch: dict) -> dict[str, Callable[[], None]]:
    """A step of pretraining by kernels and by torch's operations."""

    def trainer(kernels: str) -> Callable[[], None]:
        torch.manual_seed(0)
        model = FastR2D2ForPreTraining(FastR2D2Config(**part.sizes(), composition_kernels=kernels)).train()
        model.to(part.device)

        def step() -> None:
            with torch.autocast(part.device, part.dtype, enabled=part.dtype != torch.float32):
                loss = model(**batch).loss
            loss.backward()
            model.zero_grad()

        return step

    return {"torch": trainer("torch"), "fused": trainer("auto")}


def compare(part: Part, functions: dict[str, Callable[[], None]]) -> dict:
    times = take_turns(functions, 1 if part.tiny else 5, part.device)
    return {name: {"seconds": time.median, "least": time.least, "most": time.most} for name, time in times.items()}


def main(arguments: list[str] | None = None) -> None:
    part = Part("compare", __doc__, arguments)
    vocab_size = part.sizes()["vocab_size"]

    def batch(count: int, tokens: int) -> dict:
        return pad(drawn_sentences(*((2, 5) if part.tiny else (count, tokens)), vocab_size), part.device)

    for name, (encoding, *size) in CASES.items():
        part.measure(name, lambda e=encoding, size=size: compare(part, encoders(part, e, batch(*size))))
    part.measure("training, 1,539 tokens", lambda: compare(part, trainers(part, batch(57, 27))))
    part.finish()


if __name__ == "__main__":
    main()
