"""Vectors of texts and constituents are those that the model gives for each text alone."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch
from transformers import AutoModel
from transformers.dynamic_module_utils import get_imports

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model, TreeParser, bundled_checkpoint
from tokenization_fast_r2d2 import tokenize_sentences

TEXTS = ["The unbelievably old cat sat on the mat", "Yes", "It rained all day", "Yes", ""]


@pytest.fixture
def model():
    return FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()


def alone(model, tokenizer, text: str):
    encoded = tokenize_sentences(tokenizer, [text])
    spans = torch.tensor(encoded["atom_spans"], dtype=torch.long).view(1, -1, 2)
    with torch.no_grad():
        return model(torch.tensor(encoded["input_ids"]), atom_spans=spans), encoded


@pytest.mark.parametrize("limits", [{"batch_size": 1}, {"batch_size": 2}, {}, {"batch_size": None, "batch_tokens": 12}])
def test_vectors_are_root_vectors_in_the_order_of_the_texts(model, tokenizer, limits, capfd):
    vectors = model.encode(TEXTS, **limits, show_progress_bar=True)
    assert "encoding" in capfd.readouterr().err
    assert vectors.shape == (5, model.config.hidden_size) and vectors.dtype == np.float32
    for vector, text in zip(vectors, TEXTS, strict=True):
        np.testing.assert_allclose(vector, alone(model, tokenizer, text)[0].pooler_output[0], atol=1e-5)
    np.testing.assert_array_equal(model.encode(TEXTS[2], tokenizer=tokenizer), model.encode([TEXTS[2]])[0])
    assert model.encode([]).shape == (0, model.config.hidden_size)


def test_threads_encode_a_model_in_training_as_one_does_and_leave_it_there(model, tokenizer):
    """One of them has another part of the model; a part that was in evaluation stays so."""
    whole = FastR2D2ForPreTraining(model.config).train()
    whole.model.load_state_dict(model.state_dict())
    whole.model.parser.eval()
    modes = [module.training for module in whole.modules()]
    vectors, trees = model.encode(TEXTS), TreeParser(model, tokenizer, "chart")(TEXTS)
    parser, start = TreeParser(whole, tokenizer, "chart"), Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for _ in range(3):
            if thread % 2:
                np.testing.assert_allclose(whole.model.encode(TEXTS, tokenizer=tokenizer), vectors, atol=1e-5)
            else:
                assert [found.tree for found in parser(TEXTS)] == [found.tree for found in trees]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert [module.training for module in whole.modules()] == modes


def test_constituents_are_the_trees_words_and_phrases(model, tokenizer):
    text = TEXTS[0]
    output, encoded = alone(model, tokenizer, text)
    assert len(encoded["input_ids"][0]) > len(text.split())  # a word of several pieces
    constituents, tree = model.constituents(text), TreeParser(model, tokenizer)([text])[0].tree
    assert {c.span for c in constituents} == tree.constituents(trivial=True)
    assert len(constituents) == 2 * len(text.split()) - 1
    assert all(c.words == text.split()[c.span[0] : c.span[1] + 1] for c in constituents)
    np.testing.assert_allclose(constituents[0].vector, output.pooler_output[0], atol=1e-6)
    nodes = [output.last_hidden_state[0, piece] for piece in range(len(encoded["input_ids"][0]))]
    [cat] = [c for c in constituents if c.words == ["cat"]]
    assert any(np.allclose(cat.vector, node, atol=1e-6) for node in nodes)
    assert [c.words for c in model.constituents("Yes")] == [["Yes"]]


def test_a_model_in_a_subfolder_finds_its_tokenizer_there(model, tokenizer, tmp_path):
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    found = AutoModel.from_pretrained(tmp_path, subfolder="model")
    np.testing.assert_allclose(found.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    options = {"subfolder": "model", "local_files_only": True}
    loaded, _ = FastR2D2Model.from_pretrained(tmp_path, **options, output_loading_info=True)
    assert loaded._place == options  # its tokenizer is not looked for on the Hub either
    np.testing.assert_allclose(loaded.encode(TEXTS), found.encode(TEXTS), atol=1e-5)
    headed = FastR2D2ForPreTraining.from_pretrained(tmp_path, **options).model
    np.testing.assert_allclose(headed.encode(TEXTS), found.encode(TEXTS), atol=1e-5)


def test_a_model_without_a_tokenizer_beside_it_asks_for_one(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no tokenizer beside the weights, in .*; give tokenizer="):
        FastR2D2Model.from_pretrained(tmp_path).encode(TEXTS)
    fresh = FastR2D2Model(FastR2D2Config.from_pretrained(bundled_checkpoint(), name_or_path=""))
    with pytest.raises(ValueError, match="give tokenizer="):
        fresh.encode(TEXTS)
    assert fresh.encode(TEXTS, tokenizer=tokenizer).shape == (5, model.config.hidden_size)
    for wrong in (0, "8", float("nan")):
        with pytest.raises(ValueError, match=f"batch_size must be >= 1, got {wrong!r}"):
            model.encode(TEXTS, batch_size=wrong)


CLEAN_PROCESS = """
import sys, json, torch
from transformers import AutoModel, AutoTokenizer
place, vectors = sys.argv[1], []
for number in range(2):  # as saved by the package, and as saved here
    model = AutoModel.from_pretrained(place, trust_remote_code=True, dtype=torch.float64)
    assert "transformers_modules" in type(model).__module__
    vectors.append(model.encode(json.loads(sys.argv[2])).tolist())
    tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=True)
    place = f"{sys.argv[1]}-{number}"
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
print(json.dumps(vectors))
"""


@pytest.mark.slow
def test_a_model_and_its_tokenizer_alone_encode_without_the_package(
    model, tokenizer, tmp_path, run_without_the_package
):
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    for vectors in run_without_the_package(CLEAN_PROCESS, tmp_path / "saved", json.dumps(TEXTS)):
        np.testing.assert_allclose(vectors, model.double().encode(TEXTS), atol=1e-9)  # float32 rounds by 1e-6


def test_a_saved_folder_asks_for_no_package_of_ours_and_text_code_for_none_of_the_models(model, tmp_path):
    model.save_pretrained(tmp_path)
    text = list((Path(__file__).parents[1] / "tokenization").glob("*.py"))
    carried = {file.name for file in tmp_path.glob("*.py")}
    assert {"processing_fast_r2d2.py", "reading.py", "word_rules.py"} <= carried & {file.name for file in text}
    for file in [*tmp_path.glob("*.py"), *text]:
        assert not [name for name in get_imports(file) if name.endswith("_fast_r2d2")], file
