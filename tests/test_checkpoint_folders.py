"""Checkpoints and files of weights that are damaged, hostile or another model's: one clear error, no foreign code."""

import json
import os
import re
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import pipeline

from modeling_fast_r2d2 import TreeParser, bundled_checkpoint
from modeling_fast_r2d2.checkpoints import find_checkpoint


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(shutil.copytree(bundled_checkpoint(), tmp_path / "checkpoint"))


class Foreign:
    """Runs a command when it is unpickled."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder / "foreign-code-ran"),)


def change(name: str, **fields: object):
    """Harm that changes the JSON in a file."""
    return lambda folder: (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | fields))


configure = partial(change, "config.json")
configure_tokenizer = partial(change, "tokenizer_config.json")
change_tokenizer = partial(change, "tokenizer.json")


def write(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


def only_pickle(content: object):
    def harm(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        if isinstance(content, bytes):
            (folder / "pytorch_model.bin").write_bytes(content)
        else:
            torch.save({"weight": Foreign(folder)}, folder / "pytorch_model.bin")

    return harm


def only_index(weight_map: object):
    def harm(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    return harm


def cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def drop_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.parser.score.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def pipe(folder: Path) -> None:
    """It gives something only to a reader that must not be there; without one, it would be waited for."""
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")
    threading.Thread(target=(folder / "tokenizer.json").write_bytes, args=[b"[]"], daemon=True).start()


def device(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/null")


QUANTISED = {"quant_method": "bitsandbytes", "load_in_4bit": True}
PANICS = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
WORDLESS = {"type": "WordLevel", "vocab": {}, "unk_token": "[UNK]"}

HARMS = {
    "cut weights": (cut_weights, "the weights in .* are damaged"),
    "empty weights": (write("model.safetensors", b""), "the weights in .* are damaged"),
    "other bytes": (write("model.safetensors", b"x" * 1000), "the weights in .* are damaged"),
    "other sizes": (configure(parser_hidden_size=32), "the weights in .* do not fit its config.json"),
    "a weight less": (drop_a_weight, "lacks 1 weights of a .*, such as .*parser.score.weight"),
    "foreign code": (only_pickle(Foreign), "are damaged, or a file holds more than tensors"),
    "no pickle": (only_pickle(b"xyz" * 100), "are damaged, or a file holds more than tensors"),
    "empty pickle": (only_pickle(b""), "are damaged, or a file holds more than tensors"),
    "a text as weights": (only_pickle(b"hello, no weights"), "are damaged, or a file holds more than tensors"),
    "a text with brackets": (only_pickle(b"(hello)"), "are damaged, or a file holds more than tensors"),
    "quantised": (configure(quantization_config=QUANTISED), r"the config.json in .* cannot be used \(.*bitsandbytes"),
    "no quantisation": (configure(quantization_config="4 bits"), "the config.json in .* cannot be used"),
    "number as token": (configure_tokenizer(unk_token=5), "the tokenizer_config.json in .* is damaged .*unk_token"),
    "word as length": (configure_tokenizer(model_max_length="x"), "the tokenizer_config.json in .* is damaged"),
    "damage that panics": (change_tokenizer(normalizer=PANICS), "tokenizer.json is damaged"),
    "pipe": (pipe, "tokenizer.json is a pipe or a device; give a file"),
    "device": (device, "model.safetensors is a pipe or a device; give a file"),
    "a way out": (only_index({"a": "../other.safetensors"}), "'../other.safetensors', which leads out of its folder"),
    "no map": (only_index([1]), r"index.json is damaged \(no weight_map"),
    "list as configuration": (write("config.json", b"[1, 2]"), "config.json is damaged"),
    "empty configuration": (write("config.json", b""), "config.json is damaged"),
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "another model": (configure(model_type="bert"), "is of a 'bert' model"),
    "list as tokenizer": (write("tokenizer.json", b"[]"), "tokenizer.json is damaged"),
    "list as its settings": (write("tokenizer_config.json", b"[1]"), "tokenizer_config.json is damaged"),
    "empty vocabulary": (change_tokenizer(model=WORDLESS), r"has 0 pieces, and '\[UNK\]' is none of them"),
}


@pytest.mark.parametrize("name", HARMS)
def test_a_damaged_checkpoint_is_refused_with_its_name(folder, error_of, name):
    harm, message = HARMS[name]
    harm(folder)
    line = error_of("parse", "--checkpoint", folder, "The old man")
    assert str(folder) in line and re.search(message, line), line
    assert not (folder / "foreign-code-ran").exists()


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_a_kernel_named_in_a_configuration_is_never_fetched(folder, error_of, name):
    configure(**{name: "kernels-community/flash-attn"})(folder)
    line = error_of("parse", "--checkpoint", folder, "The old man")
    assert f"{name} must be eager or sdpa, or left out, got 'kernels-community/flash-attn'" in line


def test_an_expression_on_which_the_tokenizer_panics_is_one_error(folder, error_of):
    rule = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    change_tokenizer(pre_tokenizer=rule)(folder)
    assert "the tokenizer breaks off (" in error_of("parse", "--checkpoint", folder, "x" * 300)
    parser = TreeParser.from_pretrained(str(folder))
    for call in (
        lambda: parser([["x" * 300]], is_split_into_words=True),
        lambda: pipeline("constituency-parsing", model=parser.model, tokenizer=parser.tokenizer)(["x" * 300]),
    ):
        with pytest.raises(ValueError, match="tokenizer breaks off .*; check the expressions in its tokenizer.json"):
            call()


@pytest.mark.parametrize("name", ["/nowhere", "./no/where", "", "a/b/c", "fast-r2d2-tinny", __file__])
def test_a_path_without_a_checkpoint_is_named(name):
    remedy = "give a folder, a Hub name or one of fast-r2d2-small, fast-r2d2-tiny"
    with pytest.raises(ValueError, match=f"no checkpoint at '.*'; {remedy}"):
        find_checkpoint(name)
    with pytest.raises(ValueError, match="no checkpoint at '/nowhere'"):
        TreeParser.from_pretrained(Path("/nowhere"))
    with pytest.raises(ValueError, match="method must be one of"):  # before anything is read
        TreeParser.from_pretrained("/nowhere", "pasrer")
    assert find_checkpoint("user/name") == "user/name"
    assert find_checkpoint("bert-base-uncased", is_model=False) == "bert-base-uncased"


@pytest.fixture
def original(tmp_path) -> list:
    """A call of `fast-r2d2 convert` with files that can be harmed."""
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 16, "num_attention_heads": 2, "vocab_size": 50}))
    (tmp_path / "out").mkdir()
    return ["convert", "weights", "--config", tmp_path / "config.json", "--output", tmp_path / "out", "--weights"]


def test_wrong_weights_are_not_converted(original, tmp_path, error_of):
    weights = tmp_path / "weights.bin"
    for content, message in (
        ({"a": Foreign(tmp_path)}, "weights.bin is damaged, or it holds more than a dict of tensors"),
        ([torch.zeros(3)], "weights.bin holds no dict of weights by name"),
        ({"parser.embedding.weight": 3}, "weights.bin holds no dict of weights by name"),
        ({"parser.embedding.weight": torch.zeros(())}, "weights.bin holds no dict of weights by name"),
        ({"bert.embeddings.weight": torch.zeros(3)}, "no weights of the original Fast-R2D2 code found"),
        ({"parser.embedding.weight": torch.zeros(3, 4)}, "the weights do not have the shapes that"),
    ):
        torch.save(content, weights)
        assert message in error_of(*original, weights)
    assert "is a pipe or a device; give a file" in error_of(*original, "/dev/null")
    weights.write_bytes(b"hello, no weights")
    assert "weights.bin is damaged" in error_of(*original, weights)
    for name in ("weights.bin", "weights.safetensors"):
        (tmp_path / name).write_bytes(b"xyz" * 100)
        assert f"{name} is damaged" in error_of(*original, tmp_path / name)
    assert "No such file" in error_of(*original, tmp_path / "nowhere.bin")
    assert not (tmp_path / "foreign-code-ran").exists() and not list((tmp_path / "out").iterdir())


def test_a_wrong_configuration_or_output_is_named(original, tmp_path, error_of):
    (tmp_path / "config.json").write_text("[1]")
    assert "config.json is damaged" in error_of(*original, tmp_path / "weights.bin")
    original[original.index("--output") + 1] = tmp_path / "config.json"
    assert "config.json is a file; give a folder" in error_of(*original, tmp_path / "weights.bin")
