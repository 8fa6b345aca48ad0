"""Models go to a hub and come back, by the real client over HTTP, into processes that know nothing of this package.

The client reads where the hub is when it is imported, so each side is a process of its own; downloads alone are checked
in this one.
"""

import json
import re
from pathlib import Path

import huggingface_hub
import pytest
import torch
from transformers import AutoTokenizer

from modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    bundled_checkpoint,
    download,
)
from server import Hub

CLASSES = {
    kind.__name__: kind
    for kind in (
        FastR2D2Model, FastR2D2ForPreTraining, FastR2D2ForSequenceClassification, FastR2D2ForPairClassification,
        FastR2D2ForConstituencyParsing,
    )
}  # fmt: skip
TEXTS = ["The old man bought a new car", "Nobody knows"]

UPLOAD = """
import sys, modeling_fast_r2d2 as package
from transformers import AutoTokenizer
from transformers.utils.logging import set_verbosity_error
set_verbosity_error()
for folder in sys.argv[1:]:
    name = folder.rpartition("/")[2]
    getattr(package, name).from_pretrained(folder).push_to_hub(f"user/{name}")
    AutoTokenizer.from_pretrained(folder).push_to_hub(f"user/{name}")
"""
LOAD = """
import sys, json, torch, transformers
from transformers.dynamic_module_utils import get_class_from_dynamic_module
AUTO = {"FastR2D2Model": "AutoModel", "FastR2D2ForPreTraining": "AutoModelForPreTraining",
        "FastR2D2ForSequenceClassification": "AutoModelForSequenceClassification",
        "FastR2D2ForPairClassification": "AutoModelForSequenceClassification"}
found = {}
for name in sys.argv[2:]:
    place, trust = f"user/{name}", {"trust_remote_code": True}
    if name in AUTO:
        model = getattr(transformers, AUTO[name]).from_pretrained(place, **trust)
    else:
        model = get_class_from_dynamic_module(f"modeling_fast_r2d2.{name}", place).from_pretrained(place)
    assert type(model).__name__ == name and "transformers_modules" in type(model).__module__, type(model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, **trust)
    texts = json.loads(sys.argv[1])
    pair = "Pair" in name
    batch = tokenizer(texts[:1], texts[1:], return_tensors="pt") if pair else tokenizer(texts[:1], return_tensors="pt")
    with torch.no_grad():
        output = model.eval()(**batch)
    found[name] = next(output[key] for key in ("logits", "pooler_output", "split_scores") if key in output).tolist()
print(json.dumps(found))
"""
INDEX = json.dumps({"weight_map": {"weight": "../../elsewhere.safetensors"}}).encode()
HOSTILE = {name: {name: b"hostile"} for name in ("../../victim.txt", "/etc/victim", "..\\victim")}
HOSTILE["../../elsewhere.safetensors"] = {"model.safetensors.index.json": INDEX}
EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = "---\nconfigs:\n- config_name: {name}\n  data_files:\n{splits}---\n"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A checkpoint for each class, heads drawn once."""
    torch.manual_seed(0)
    folders = {name: tmp_path_factory.mktemp("checkpoints") / name for name in CLASSES}
    tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint())
    for name, folder in folders.items():
        CLASSES[name].from_pretrained(bundled_checkpoint()).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folders


def outputs(folders: dict[str, Path]) -> dict[str, list]:
    tokenizer, found = AutoTokenizer.from_pretrained(bundled_checkpoint()), {}
    for name, folder in folders.items():
        texts = (TEXTS[:1], TEXTS[1:]) if "Pair" in name else (TEXTS[:1],)
        with torch.no_grad():
            output = CLASSES[name].from_pretrained(folder).eval()(**tokenizer(*texts, return_tensors="pt"))
        found[name] = next(output[key] for key in ("logits", "pooler_output", "split_scores") if key in output)
    return found


@pytest.mark.slow
def test_every_class_goes_up_and_comes_down_with_its_code(hub, folders, tmp_path, run_without_the_package):
    hub.run(tmp_path / "sender", "-c", UPLOAD, *folders.values())
    expected = outputs(folders)
    for offline in ("0", "1"):  # first into an empty cache, then from it
        if offline == "1":
            hub.repos.clear()
        environment = hub.environment(tmp_path / "receiver", HF_HUB_OFFLINE=offline)
        found = run_without_the_package(LOAD, json.dumps(TEXTS), *folders, environment=environment)
        for name, values in found.items():
            torch.testing.assert_close(torch.tensor(values), expected[name])


@pytest.fixture
def here(hub, monkeypatch) -> Hub:
    """The hub, to which the client in this process goes."""
    old, constants = huggingface_hub.constants.ENDPOINT, huggingface_hub.constants
    for name in ("ENDPOINT", "HUGGINGFACE_CO_URL_TEMPLATE"):
        monkeypatch.setattr(constants, name, getattr(constants, name).replace(old, hub.url))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    return hub


@pytest.mark.parametrize("path", ["parser.py", "model.safetensors"])
def test_a_download_with_another_hash_is_refused_and_not_kept(here, folders, tmp_path, path, monkeypatch):
    folder, name = folders["FastR2D2Model"], "user/FastR2D2Model"
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    here.repos[name] = [files]
    here.damaged = {path}
    with pytest.raises(ValueError, match=f"^{path} of {name} differ from the Hub's files and were removed"):
        download(name, cache_dir=tmp_path)
    here.damaged = set()
    got = download(name, cache_dir=tmp_path)
    assert {file.name: file.read_bytes() for file in Path(got).iterdir()} == files
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert download(name, cache_dir=tmp_path) == got


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_of_a_file_or_in_an_index_that_leads_out_of_the_folder_is_refused(here, tmp_path, name):
    here.repos["user/hostile"] = [{"config.json": b"{}"} | HOSTILE[name]]
    (tmp_path / "victim.txt").write_text("mine")
    with pytest.raises(ValueError, match=re.escape(f"{name!r}, which leads out of its folder")):
        download("user/hostile", cache_dir=tmp_path / "cache")
    assert (tmp_path / "victim.txt").read_text() == "mine"
    assert not [path for path in (tmp_path / "cache").rglob("*") if "hostile" in str(path) and path.is_file()]


@pytest.mark.slow
def test_pretraining_reads_a_corpus_by_its_hub_name_and_uploads_what_it_made(hub, tmp_path):
    splits = "  - split: train\n    path: raw/train-*\n"
    hub.repos["datasets/user/texts"] = [{
        "README.md": CONFIGS.format(name="raw", splits=splits).encode(),
        "raw/train-00000.txt": b"the cat sat on the mat\n = Heading = \n a dog ate . the old bone slept .\n" * 60,
    }]  # fmt: skip
    arguments = [EXAMPLES / "pretrain.py", "--corpus", "user/texts", "--corpus_config", "raw", "--sentence_rule"]
    arguments += ["wikitext", "--output_dir", tmp_path / "run", "--size", "tiny", "--use_cpu", "--vocab_size", "60"]
    arguments += ["--max_steps", "2", "--report_to", "none", "--push_to_hub", "--hub_model_id", "user/made"]
    arguments += ["--license", "mit"]
    assert "180 sentences, 900 tokens" in hub.run(tmp_path / "cache", *arguments)
    made = {file.name: file.read_bytes() for file in (tmp_path / "run" / "model").iterdir()}
    assert hub.repos["user/made"][-1] == made and b"license: mit" in made["README.md"]
