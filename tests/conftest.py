"""Tiny models and the bundled one; each test has its own, which it may change."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, settings
from transformers import AutoTokenizer, PreTrainedTokenizerFast, set_seed

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, bundled_checkpoint

# No deadline: benchmarks measure time. All examples of a test share its fixtures, since they do not change them.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("quick", settings.get_profile("full"), max_examples=10)  # for `make test`
settings.load_profile("full")


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
