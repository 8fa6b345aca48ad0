"""Tiny models, built once."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, settings
from transformers import set_seed

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining

# How long an example takes is for benchmarks; examples that share a fixture may, since they do not change it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def _tiny_config() -> FastR2D2Config:
    return FastR2D2Config(
        vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
        window_size=3, parser_embedding_size=8, parser_hidden_size=8, parser_num_layers=2,
        parser_num_attention_heads=2,
    )  # fmt: skip


@pytest.fixture
def tiny_config(_tiny_config) -> FastR2D2Config:
    """A test's own, to be changed at will."""
    return copy.deepcopy(_tiny_config)


@pytest.fixture(scope="session")
def tiny_model(_tiny_config) -> FastR2D2ForPreTraining:
    """In evaluation mode; not to be changed."""
    set_seed(0)
    return FastR2D2ForPreTraining(copy.deepcopy(_tiny_config)).eval()


@pytest.fixture(scope="session")
def a_batch() -> dict[str, torch.Tensor]:
    """Five sentences of 9, 1, 2, 6 and 9 tokens."""
    lengths = torch.tensor([9, 1, 2, 6, 9])
    mask = (torch.arange(9) < lengths[:, None]).long()
    ids = torch.randint(20, 100, (5, 9), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids * mask, "attention_mask": mask}
