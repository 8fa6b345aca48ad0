import pytest
import torch

from modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    parameter_groups,
)


@pytest.mark.parametrize("weight_decay", [0.1, 0.0])
@pytest.mark.parametrize(
    "model_class",
    [
        FastR2D2ForConstituencyParsing,
        FastR2D2ForPairClassification,
        FastR2D2ForPreTraining,
        FastR2D2ForSequenceClassification,
        FastR2D2Model,
    ],
)
def test_every_parameter_has_its_group(tiny_config, model_class, weight_decay):
    model = model_class(tiny_config)
    wrapped = torch.nn.ModuleDict({"module": model})  # as data-parallel training and adapters wrap it
    groups = parameter_groups(wrapped, 0.5, 0.25, weight_decay)
    place = {id(parameter): group for group in groups for parameter in group["params"]}
    assert len(place) == sum(len(group["params"]) for group in groups)
    for name, parameter in model.named_parameters():
        if name.endswith("parser.score.bias"):  # no gradient but rounding errors
            assert id(parameter) not in place
            continue
        group = place.pop(id(parameter))
        assert group["lr"] == (0.25 if "parser." in name else 0.5)
        assert group["name"] == ("parser" if "parser." in name else "encoder")
        assert group["weight_decay"] == (0 if "bias" in name else weight_decay)
    assert not place
