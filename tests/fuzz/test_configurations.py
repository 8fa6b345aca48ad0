"""Any configuration: a ValueError, or a model that encodes."""

import pytest
import torch
from hypothesis import given

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2Model
from profiles import profile
from strategies import SMALL, configurations

pytestmark = pytest.mark.slow


@profile
@given(values=configurations)
def test_a_configuration_is_refused_or_makes_a_model(drawn, values):
    drawn["configurations"] += 1
    try:
        config = FastR2D2Config(**SMALL | values)
    except ValueError:
        return
    ids = torch.arange(8, 12).clamp(max=config.vocab_size - 1)[None]
    mask = torch.ones_like(ids)
    with torch.no_grad():
        output = FastR2D2Model(config).eval()(ids, mask)
    assert output.pooler_output.shape == (1, config.hidden_size)
    assert FastR2D2Config.from_dict(config.to_dict()).to_dict() == config.to_dict()
