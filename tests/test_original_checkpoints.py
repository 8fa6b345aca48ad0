"""Weights of the original code, in one file or two, to a checkpoint folder."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification

from modeling_fast_r2d2.checkpoints.original import convert_config, convert_files

GOLDEN = Path(__file__).parent / "golden"
CASE = json.loads((GOLDEN / "cases" / "len6.json").read_text())
WEIGHTS = load_file(GOLDEN / "weights" / "tied_a.safetensors")
WITH_ANOTHER_LAYER = WEIGHTS | {name.replace("layers.0", "layers.7"): weight for name, weight in WEIGHTS.items()}


def stored(tmp_path, weights: dict) -> Path:
    torch.save(weights, path := tmp_path / f"weights{len(weights)}.bin")
    return path


def part(prefix: str) -> dict:
    return {name.removeprefix(prefix): tensor for name, tensor in WEIGHTS.items() if name.startswith(prefix)}


@pytest.mark.parametrize("files", ["one", "encoder and parser", "data parallel"])
def test_the_command_writes_a_folder_that_gives_the_reference_vectors(tmp_path, files):
    weights = {
        "one": [WEIGHTS],
        "encoder and parser": [part("r2d2."), part("parser.")],
        "data parallel": [{"module." + name: tensor for name, tensor in WEIGHTS.items()}],
    }[files]
    (tmp_path / "config.json").write_text(json.dumps(CASE["config"]))
    paths = [stored(tmp_path, part_weights) for part_weights in weights]
    output = tmp_path / "converted"
    convert_files(tmp_path / "config.json", paths, output)
    model = AutoModel.from_pretrained(output, dtype=torch.float64)
    root = model(torch.tensor(CASE["input_ids"])).pooler_output
    expected = load_file(GOLDEN / CASE["arrays"])["forced_root"]
    torch.testing.assert_close(root, expected, atol=1e-9, rtol=1e-9)
    if files != "encoder and parser":
        assert AutoModelForSequenceClassification.from_pretrained(output).config.num_labels == 3


def test_sizes_that_differ_are_refused():
    with pytest.raises(ValueError, match="embedding_dim must equal hidden_size, got 16 and 32"):
        convert_config({**CASE["config"], "embedding_dim": 16})


@pytest.mark.parametrize("weights, message", [
    (part("r2d2."), "parser"),
    (WITH_ANOTHER_LAYER, "config.json has no place for .* weights, such as .*layers.7"),
])  # fmt: skip
def test_weights_that_are_missing_or_unknown_are_refused(tmp_path, weights, message):
    (tmp_path / "config.json").write_text(json.dumps(CASE["config"]))
    path = stored(tmp_path, weights)
    with pytest.raises(ValueError, match=message):
        convert_files(tmp_path / "config.json", [path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_berts_vocabulary_has_its_unknown_word():
    assert convert_config({"vocab_size": 30522, "cls_token_id": 101}).unk_token_id == 100
    assert convert_config({"vocab_size": 30522, "cls_token_id": 101, "unk_token_id": 3}).unk_token_id == 3
