"""What the benchmarks share: turns, memory, operations, profiles, a BERT to compare with, and files of results."""

import argparse
import copy
import ctypes
import json
import math
import platform
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import timer
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm
from transformers import AutoTokenizer, BertConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # pretraining, which the benchmarks import

from modeling_fast_r2d2 import FastR2D2Config, bundled_checkpoint
from modeling_fast_r2d2.cpu_operations import linear
from modeling_fast_r2d2.embedding import batches_by_length
from modeling_fast_r2d2.text_files import write_text
from tokenization_fast_r2d2 import clean_wikitext, read_sentences, tokenize_sentences
from tokenization_fast_r2d2.padding import pad_sentences

VOCAB_SIZE = 30522
LONG_RUN_SECONDS = 20.0


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Options for where a benchmark runs, and where its results go."""
    add = parser.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="by default a GPU, if there is one")
    add("--dtype", choices=["float32", "bfloat16", "float16"], help="by default float32 on a CPU, bfloat16 on a GPU")
    add("--threads", type=int, help="number of CPU threads; by default PyTorch's choice")
    add("--profile", action="store_true", help="also print where the time of each system goes, by operations")
    add("--output_dir", type=Path, help="folder for the results as JSON and as text")


def set_machine(options: argparse.Namespace) -> torch.dtype:
    """Set the threads and the device; returns the dtype to compute with."""
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.device.startswith("cuda:"):
        torch.cuda.set_device(options.device)  # memory and time are asked of the current device
    return getattr(torch, options.dtype or ("float32" if options.device == "cpu" else "bfloat16"))


def describe_machine(device: str, dtype: torch.dtype) -> str:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else _processor()
    return f"{name}, torch {torch.__version__}, {str(dtype).removeprefix('torch.')}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")] or [platform.machine()]
    return f"{names[0]}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"


def take_turns(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Time each function once in every round, after whatever its device still does: median, least and most seconds.

    A first round does not count, except for functions that take longer than `LONG_RUN_SECONDS`, of which a first run is
    like any other.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in tqdm(range(rounds + 1), desc="rounds", leave=False, disable=None):
        for name, function in functions.items():
            if len(seconds[name]) == rounds:
                continue
            start = timer()
            function()
            taken = timer() - start
            if number or taken > LONG_RUN_SECONDS:
                seconds[name].append(taken)
    return {
        name: {"seconds": statistics.median(values), "least": min(values), "most": max(values)}
        for name, values in seconds.items()
    }


def peak_memory(function: Callable[[], object], device: str) -> int | None:
    """Peak memory of a run in bytes, beyond the memory in use before; None on a CPU without Linux."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    if sys.platform != "linux":
        return None
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # unused memory goes back to the system
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before = _resident_bytes("VmRSS")
    function()
    return _resident_bytes("VmHWM") - before


def _resident_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def operations_of(function: Callable[[], object]) -> int:
    """Number of additions and multiplications of a function's matrix products, those of its backward pass included.

    Meanwhile torch computes all products by operations that it can count, without oneDNN and cuDNN. A loss in one
    operation, which is known to torch after its first use only, makes three products of one size.
    """
    name = "_linear_cross_entropy_batch_chunked"
    losses = [getattr(torch.ops.torch_nn, name)] if hasattr(torch.ops.torch_nn, name) else []
    mapping = {loss: lambda inputs, weight, *_, **__: 6 * math.prod(inputs) * weight[0] for loss in losses}
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    with torch.backends.mkldnn.flags(False, allow_tf32=None), torch.backends.cudnn.flags(enabled=False), counter:
        function()
    return counter.get_total_flops()


def rate_of_products(device: str, dtype: torch.dtype) -> float:
    """Additions and multiplications per second of a large matrix product, by the routine that our models call."""
    size = 8192 if device.startswith("cuda") else 2048
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / take_turns({"product": lambda: linear(left, right)}, 5)["product"]["least"]


def profile_of(function: Callable[[], object], device: str) -> str:
    """A table of the operations that take most of a function's time."""
    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        function()
        timer()  # waits for the device
    order = f"self_{'device' if on_gpu else 'cpu'}_time_total"
    return profiler.key_averages().table(sort_by=order, row_limit=15, max_name_column_width=60)


def bert_config(config: FastR2D2Config, times: int = 3) -> BertConfig:
    """The configuration of a BERT of our model's size, but with ``times`` as many layers.

    With three times as many it makes about as many matrix products per token: a composition runs each layer over three
    vectors.
    """
    same = {name: getattr(config, name) for name in ("hidden_size", "num_attention_heads", "intermediate_size")}
    layers = times * config.num_hidden_layers
    return BertConfig(**same, num_hidden_layers=layers, vocab_size=config.vocab_size, attn_implementation="sdpa")


def on_our_products(bert: nn.Module) -> nn.Module:
    """The same BERT with its linear layers computed by the routine that our models call; both share their weights.

    On a CPU, torch may give float32 products to a library that leaves half of the processor unused, while our models
    call oneDNN, with GELU in the product before it. That is a merit of the library, not of the model.
    """
    ours = copy.deepcopy(bert, {id(weight): weight for weight in bert.parameters()})  # what is given is not copied
    for layer in ours.modules():
        if isinstance(layer, nn.Linear):
            layer.forward = partial(_linear, layer)
    for layer in ours.base_model.encoder.layer:
        layer.intermediate.dense.forward = partial(_linear, layer.intermediate.dense, gelu=True)
        layer.intermediate.intermediate_act_fn = nn.Identity()
    return ours


def _linear(layer: nn.Linear, inputs: Tensor, gelu: bool = False) -> Tensor:
    return linear(inputs, layer.weight, layer.bias, gelu)


def read_corpus(files: Sequence[Path] | None, count: int, low: int = 2, high: int = 50) -> list[list[int]]:
    """Sentences of ``low`` to ``high - 1`` tokens, as ids; neighbouring lines are joined until they are long enough.

    Without files the ids and lengths are drawn. Then trees are deeper than a trained parser's on text, but the work is
    alike. Raises ValueError if the corpus is too small.
    """
    generator = random.Random(0)
    if not files:
        lengths = [generator.randrange(low, high) for _ in range(count)]
        return [[generator.randrange(20, VOCAB_SIZE) for _ in range(length)] for length in lengths]
    texts = [text for text in (clean_wikitext(line) for line in read_sentences(files)) if text]
    ids = tokenize_sentences(AutoTokenizer.from_pretrained(bundled_checkpoint()), texts)["input_ids"]
    sentences, joined = [], []
    for line in ids:
        joined = joined + line
        if len(joined) >= low:
            sentences += [joined] if len(joined) < high else []
            joined = []
    if len(sentences) < count:
        raise ValueError(
            f"the corpus has {len(sentences)} sentences of {low} to {high - 1} tokens, with neighbours joined, but "
            f"{count} are needed; give a larger corpus or ask for less"
        )
    return generator.sample(sentences, count)


def batches_of(sentences: Sequence[list[int]], size: int, tokens: int | None = None) -> Iterator[list[list[int]]]:
    """Batches of ``size`` sentences in their order, or of similar lengths with ``tokens`` tokens, padding included."""
    if tokens is None:
        yield from (list(sentences[start : start + size]) for start in range(0, len(sentences), size))
    else:
        for rows in batches_by_length(list(map(len, sentences)), batch_tokens=tokens):
            yield [sentences[row] for row in rows]


def pad(batch: list[list[int]], device: str) -> dict[str, Tensor]:
    """``input_ids`` and ``attention_mask`` of a batch."""
    return {name: tensor.to(device) for name, tensor in pad_sentences(batch).items()}


def as_memory(number: int | None) -> str:
    """Bytes in words."""
    if number is None:
        return "–"
    return f"{number / 2**30:.2f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"


def save(folder: Path | None, name: str, results: dict, text: str) -> None:
    """Write ``name.json`` and ``name.md`` after every measurement, so that a run that is stopped leaves what it has."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.json", json.dumps(results, indent=2) + "\n")
    write_text(folder / f"{name}.md", text + "\n")
