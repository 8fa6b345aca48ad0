"""What all parts of `on_gpu.py` share: options, sizes, and the file of results, which grows with every measurement."""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "examples" / "benchmarks"), str(ROOT / "examples")]  # timing, pretraining

from pretraining.options import SIZES  # noqa: E402


class Part:
    """A part of the measurements.

    Attributes:
        tiny: whether to take tiny sizes, for a trial on a CPU.
        device: ``"cuda"``, or ``"cpu"`` without a GPU.
    """

    def __init__(self, name: str, description: str | None, arguments: list[str] | None, **more: dict):
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        add = parser.add_argument
        add("--output_dir", type=Path, required=True, help="folder for the part's JSON file")
        add("--minutes", type=float, default=10, help="minutes after which no further measurement begins")
        add("--tiny", action="store_true", help="tiny sizes, to try the part on a CPU")
        for option, settings in more.items():
            add(f"--{option}", **settings)
        self.options = parser.parse_args(arguments)
        self.tiny, self.device = self.options.tiny, "cuda" if torch.cuda.is_available() else "cpu"
        if self.device == "cpu" and not self.tiny:
            parser.error("there is no GPU; try the part with --tiny")
        self.path = self.options.output_dir / f"{name}.json"
        self._end = time.monotonic() + 60 * self.options.minutes
        self.results: dict[str, Any] = {}
        self.failed: list[str] = []

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device == "cuda" else torch.float32

    @property
    def minutes_left(self) -> float:
        return (self._end - time.monotonic()) / 60

    def sizes(self) -> dict[str, Any]:
        """Fields of the configuration: the base size, or a tiny one."""
        if not self.tiny:
            return SIZES["base"] | {"vocab_size": 30522, "window_size": 4}
        return {
            "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "window_size": 3,
            "intermediate_size": 32, "parser_embedding_size": 8, "parser_hidden_size": 8, "parser_num_layers": 2,
        }  # fmt: skip

    def measure(self, name: str, function: Callable[[], Any]) -> None:
        """Note what a function returns, under a name, and write the file; what goes wrong is noted as well."""
        if self.minutes_left <= 0:
            print(f"{name}: left out, no time", flush=True)
            result: Any = {"left_out": "no time"}
        else:
            start = time.monotonic()
            try:
                result = function()
            except Exception as error:  # one failure, such as too little memory, must not cost the other measurements
                traceback.print_exc()
                result = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
                self.failed.append(name)
            print(f"{name} ({time.monotonic() - start:.1f} s): {json.dumps(result, default=str)[:2000]}", flush=True)
        self.results[name] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.results, indent=2, default=str) + "\n", encoding="utf-8")

    def finish(self) -> None:
        """End the process; its status says whether everything worked."""
        if self.failed:
            sys.exit(f"failed: {', '.join(self.failed)}")


def drawn_sentences(count: int, tokens: int, vocab_size: int) -> list[list[int]]:
    """Sentences of random ids, from a fixed seed."""
    generator = torch.Generator().manual_seed(count * tokens)
    low = min(20, vocab_size // 2)
    return torch.randint(low, vocab_size, (count, tokens), generator=generator).tolist()
