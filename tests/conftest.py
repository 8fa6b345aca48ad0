"""Tiny models and the bundled one; each test has its own, which it may change."""

import copy
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from transformers import AutoTokenizer, PreTrainedTokenizerFast, set_seed

from fast_r2d2_entry_points.command_line import main
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, bundled_checkpoint
from server import Hub

# No deadline: benchmarks measure time. All examples of a test share its fixtures, since they do not change them.
ALLOWED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("full", deadline=None, suppress_health_check=ALLOWED)
settings.register_profile("quick", settings.get_profile("full"), max_examples=10)  # for `make test`
# For `make fuzz`: other examples in each round. A single one may take 20 seconds.
settings.register_profile("fuzz", settings.get_profile("full"), max_examples=1000, deadline=20_000, print_blob=True)
settings.load_profile("full")

HIDE = """
import sys
for name in ("modeling_fast_r2d2", "tokenization_fast_r2d2", "fast_r2d2_kernels"):
    sys.modules[name] = None
"""


def pytest_collection_finish() -> None:
    """The collector of garbage leaves out what was imported: looking at it took a tenth of the tests' time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    """What a test draws does not depend on the tests that ran before it."""
    set_seed(0)


@pytest.fixture
def tiny_config() -> FastR2D2Config:
    return FastR2D2Config(
        vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        window_size=3, parser_embedding_size=8, parser_hidden_size=8, parser_num_layers=2,
        parser_num_attention_heads=2,
    )  # fmt: skip


@pytest.fixture
def tiny_model(tiny_config) -> FastR2D2ForPreTraining:
    """In evaluation mode; the same weights in every test."""
    set_seed(0)
    return FastR2D2ForPreTraining(copy.deepcopy(tiny_config)).eval()


@pytest.fixture
def a_batch() -> dict[str, torch.Tensor]:
    """Five sentences of 9, 1, 2, 6 and 9 tokens."""
    lengths = torch.tensor([9, 1, 2, 6, 9])
    mask = (torch.arange(9) < lengths[:, None]).long()
    ids = torch.randint(20, 100, (5, 9), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids * mask, "attention_mask": mask}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """The bundled checkpoint's."""
    return AutoTokenizer.from_pretrained(bundled_checkpoint())


@pytest.fixture
def model() -> FastR2D2ForPreTraining:
    """The bundled checkpoint, in evaluation mode."""
    return FastR2D2ForPreTraining.from_pretrained(bundled_checkpoint()).eval()


@pytest.fixture
def new_memory_is_poisoned() -> Iterator[None]:
    """`torch.empty` gives NaN, so that a value that nothing wrote is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def error_of(capsys) -> Callable[..., str]:
    """Runs `fast-r2d2` with arguments that it refuses; returns the last line that it says."""

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        [*_, line] = capsys.readouterr().err.splitlines()
        assert stopped.value.code == 2 and ": error: " in line and "weights_only" not in line
        return line

    return run


@pytest.fixture
def run_without_the_package(tmp_path) -> Callable[..., Any]:
    """Runs code in a process that can import none of our packages, and gives the JSON that it prints last.

    By default the process has no hub.
    """

    def run(code: str, *arguments: str | Path, environment: dict[str, str] | None = None) -> Any:
        environment = environment or os.environ | {"HF_HUB_OFFLINE": "1"}
        environment = environment | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
        command = [sys.executable, "-c", HIDE + code, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run
