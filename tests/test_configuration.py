"""Each field of a configuration refuses values that make no sense, by name."""

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel

from modeling_fast_r2d2 import FastR2D2Config, bundled_checkpoint
from modeling_fast_r2d2.configuration_fast_r2d2 import (
    ANY_NUMBERS,
    CHOICES,
    NOT_NEGATIVE,
    PROBABILITIES,
    REMOVED,
    SIZES,
    SWITCHES,
)  # fmt: skip

TOKEN_IDS = tuple(f"{name}_token_id" for name in ("pad", "unk", "bos", "eos", "cls", "sum", "mask", "pair"))
NO_NUMBERS = st.sampled_from([None, "3", "", [], [3], {}, 2j, True, False, math.nan, math.inf, -math.inf, b"3"])
FRACTIONS = st.floats().filter(lambda value: value != value or not value.is_integer()) | st.just(2.0)
TEXTS = st.text() | st.sampled_from([None, 1, 2.5, [], {}, True])


def bad_values(name: str) -> st.SearchStrategy:
    if name in SIZES:
        return NO_NUMBERS | FRACTIONS | st.integers(max_value=0)
    if name in TOKEN_IDS:
        return NO_NUMBERS | FRACTIONS | st.integers(max_value=-1) | st.integers(min_value=30_522)
    if name in SWITCHES:
        return st.sampled_from([None, 0, 1, "True", "false", "", [], 1.0, math.nan])
    if name in CHOICES:
        return TEXTS.filter(lambda value: value not in CHOICES[name])
    negative = st.floats(max_value=-1e-300) | st.integers(max_value=-1)
    if name in PROBABILITIES:
        allowed = [None] if name == "classifier_dropout" else []
        return (NO_NUMBERS | negative | st.floats(min_value=1)).filter(lambda value: value not in allowed)
    if name == "initializer_range":
        return NO_NUMBERS | negative | st.floats(min_value=1_000_001)
    return NO_NUMBERS if name in ANY_NUMBERS else NO_NUMBERS | negative


OURS = [*SIZES, *TOKEN_IDS, *SWITCHES, *CHOICES, *PROBABILITIES, *NOT_NEGATIVE, *ANY_NUMBERS, "layer_norm_eps"]


def test_every_field_is_checked():
    ours = set(FastR2D2Config.__annotations__)
    assert ours <= {field.name for field in fields(FastR2D2Config)} and ours <= set(OURS)


@given(st.data(), st.sampled_from(OURS))
def test_bad_values_are_refused_by_name(data, name):
    value = data.draw(bad_values(name))
    with pytest.raises(ValueError, match=name):
        FastR2D2Config(**{name: value})


@pytest.mark.parametrize(("name", "value"), [
    ("num_labels", "3"), ("num_labels", 0), ("num_labels", -1), ("num_labels", 2.5), ("id2label", 5),
    ("id2label", {"a": 1}), ("id2label", {}), ("id2label", ["a"]), ("dtype", "float99"), ("dtype", 32),
    ("dtype", "nn"), ("layer_norm_eps", 0.0), ("hidden_dropout_prob", 1.0), ("problem_type", "multi_label"),
])  # fmt: skip
def test_inherited_fields_are_checked_too(name, value):
    with pytest.raises(ValueError, match=name):
        FastR2D2Config(**{name: value})


def test_heads_divide_the_size_where_there_are_heads():
    assert FastR2D2Config(parser_hidden_size=5).parser_num_attention_heads == 8  # an LSTM has none
    with pytest.raises(ValueError, match=r"2 \* parser_hidden_size must be a multiple of parser_num_attention_heads"):
        FastR2D2Config(parser_hidden_size=5, parser_type="transformer")
    with pytest.raises(ValueError, match="hidden_size must be a multiple of num_attention_heads, got 768 and 5"):
        FastR2D2Config(num_attention_heads=5)


@pytest.mark.parametrize("name", REMOVED)
def test_removed_options_of_older_folders_are_ignored_with_one_warning_and_not_saved_again(tmp_path, recwarn, name):
    for is_on in (False, True):
        FastR2D2Config().save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: is_on}))
        config = FastR2D2Config.from_pretrained(tmp_path)
        assert [str(warning.message).split(":")[0] for warning in recwarn] == [f"{name} is ignored"] * is_on
        assert config.to_dict() == FastR2D2Config.from_pretrained(tmp_path).to_dict()
        config.save_pretrained(tmp_path)
        assert name not in path.read_text()


@pytest.mark.parametrize("change", [
    {"punctuation": "Aside"}, {"bounds_bonus": -5}, {"window_size": 0}, {"hidden_act": "foo"}, {"pad_token_id": 99999},
    {"num_attention_heads": 3}, {"bounds_bonus": math.nan},
])  # fmt: skip
def test_what_is_changed_in_loading_is_checked_too(change):
    [name] = change
    with pytest.raises(ValueError, match=name):
        AutoModel.from_pretrained(bundled_checkpoint(), **change)


def test_good_values_come_back_from_a_file(tmp_path):
    config = FastR2D2Config(
        id2label={0: "no", 1: "yes"}, dtype="bfloat16", classifier_dropout=0, split_noise=0, problem_type="regression"
    )
    config.save_pretrained(tmp_path)
    assert FastR2D2Config.from_pretrained(tmp_path).to_dict() == config.to_dict()
