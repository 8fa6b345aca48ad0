"""Checkpoints: saved by a class and loaded by others, here and where the package is not installed; vocabularies."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoModelForSequenceClassification

from modeling_fast_r2d2 import (
    FastR2D2Config,
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
)

# The last bit of a product of few rows depends on where in memory its weights lie, and loaded ones lie elsewhere.
ROUNDING = {"rtol": 1e-6, "atol": 1e-6}


@pytest.mark.parametrize("shards", [False, True])
def test_a_saved_checkpoint_loads_into_every_class(tiny_model, a_batch, tmp_path, shards):
    tiny_model.save_pretrained(tmp_path, max_shard_size="10KB" if shards else "5GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == shards
    expected = tiny_model.model(**a_batch)
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is FastR2D2Model and not base.training
    torch.testing.assert_close(base.state_dict(), tiny_model.model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(base(**a_batch).pooler_output, expected.pooler_output, **ROUNDING)
    assert type(AutoConfig.from_pretrained(tmp_path)) is FastR2D2Config
    pretraining = AutoModelForPreTraining.from_pretrained(tmp_path)
    torch.testing.assert_close(pretraining.state_dict(), tiny_model.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(pretraining(**a_batch).loss, tiny_model(**a_batch).loss, **ROUNDING)
    parser, info = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert torch.equal(parser(**a_batch).spans, expected.spans)
    classifier, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"classifier"}
    assert type(classifier) is FastR2D2ForSequenceClassification


def test_base_and_parser_checkpoints_load_into_what_needs_them(tiny_model, a_batch, tmp_path):
    tiny_model.model.save_pretrained(tmp_path / "base")
    parser = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path / "base")
    assert torch.equal(parser(**a_batch).spans, tiny_model.model(**a_batch).spans)
    parser.save_pretrained(tmp_path / "parser")
    assert all(name.startswith("parser.") for name in load_file(tmp_path / "parser" / "model.safetensors"))
    again = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path / "parser")
    assert torch.equal(parser(**a_batch).split_scores, again(**a_batch).split_scores)
    head = FastR2D2ForPreTraining.from_pretrained(tmp_path / "base")
    torch.testing.assert_close(head.model.state_dict(), tiny_model.model.state_dict(), rtol=0, atol=0)


def test_tied_weights_are_stored_once_and_stay_tied(tiny_model, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert not {"lm_head.decoder.weight", "model.embeddings.weight"} <= set(file.keys())
    model = FastR2D2ForPreTraining.from_pretrained(tmp_path)
    assert model.lm_head.decoder.weight is model.model.embeddings.weight


@pytest.mark.parametrize("change", [{"tie_word_embeddings": False}, {"pooler": True}, {"parser_type": "transformer"}])
@pytest.mark.parametrize("model_class", [FastR2D2ForPreTraining, FastR2D2ForSequenceClassification])
def test_weights_that_no_file_has_are_initialized(tiny_model, tmp_path, new_memory_is_poisoned, model_class, change):
    tiny_model.save_pretrained(tmp_path)
    loaded = model_class.from_pretrained(tmp_path, **change)
    assert all(0 < weight.abs().max() < 10 for name, weight in loaded.named_parameters() if "bias" not in name)
    assert all(weight.isfinite().all() for weight in loaded.parameters())


@pytest.mark.parametrize("size", [90, 130])
def test_resizing_the_vocabulary_resizes_the_parser_too(tiny_model, a_batch, size, tmp_path):
    model = tiny_model
    ids = a_batch["input_ids"] % 90
    before = model(ids, a_batch["attention_mask"])
    model.resize_token_embeddings(size)
    assert model.config.vocab_size == size == len(model.lm_head.decoder.bias)
    assert len(model.model.embeddings.weight) == len(model.model.parser.embeddings.weight) == size
    after = model(ids, a_batch["attention_mask"])
    assert torch.equal(before.split_scores, after.split_scores)
    assert torch.equal(before.pooler_output, after.pooler_output)
    model.save_pretrained(tmp_path)
    again = FastR2D2ForPreTraining.from_pretrained(tmp_path).eval()(ids, a_batch["attention_mask"])
    assert torch.equal(after.loss, again.loss)


def test_a_vocabulary_without_its_special_tokens_is_refused(tiny_model, a_batch):
    before = tiny_model(**a_batch)
    for size, multiple in ((3, None), (0, None), (7, None), (3, 4)):
        with pytest.raises(ValueError, match="token_id must be in 0 ... .*; take the ids from the tokenizer"):
            tiny_model.resize_token_embeddings(size, multiple)
    assert torch.equal(tiny_model(**a_batch).loss, before.loss)
    tiny_model.resize_token_embeddings(3, pad_to_multiple_of=8)
    assert tiny_model.config.vocab_size == 8


CLEAN_PROCESS = """
import json, torch, transformers
sys.modules["nltk"] = None  # is not installed
found = []
for auto in ("AutoModel", "AutoModelForPreTraining", "AutoModelForSequenceClassification"):
    model = getattr(transformers, auto).from_pretrained(sys.argv[1], trust_remote_code=True).eval()
    assert "transformers_modules" in type(model).__module__, type(model)
    found.append(model.base_model(torch.tensor([[30, 31, 32, 33, 34]])).pooler_output.tolist())
print(json.dumps(found))
"""


def test_a_folder_brings_its_code_to_a_process_without_the_package(tiny_model, tmp_path, run_without_the_package):
    """Saved by a class, loaded by another; `tests/hub` loads each class's folder by the same class."""
    tiny_model.save_pretrained(tmp_path / "checkpoint")
    expected = tiny_model.model(torch.tensor([[30, 31, 32, 33, 34]])).pooler_output
    for vectors in run_without_the_package(CLEAN_PROCESS, tmp_path / "checkpoint"):
        torch.testing.assert_close(torch.tensor(vectors), expected)


BOTH_CLASSIFIERS = """
import json, transformers
auto = transformers.AutoModelForSequenceClassification
load = auto.from_pretrained
config = transformers.AutoConfig.from_pretrained(sys.argv[-1], trust_remote_code=True)
auto.from_config(config, trust_remote_code=True)
print(json.dumps([type(load(folder, trust_remote_code=True)).__name__ for folder in sys.argv[1:]]))
"""


@pytest.mark.parametrize("order", [1, -1])
def test_both_classifiers_load_in_a_process_without_the_package(order, tiny_config, tmp_path, run_without_the_package):
    """From folders of one name, as of several tasks; transformers takes these for one module of code."""
    classes = [FastR2D2ForSequenceClassification, FastR2D2ForPairClassification][::order]
    folders = [tmp_path / model_class.__name__ / "model" for model_class in classes]
    for model_class, folder in zip(classes, folders, strict=True):
        model_class(tiny_config).save_pretrained(folder)
    assert run_without_the_package(BOTH_CLASSIFIERS, *folders) == [model_class.__name__ for model_class in classes]
