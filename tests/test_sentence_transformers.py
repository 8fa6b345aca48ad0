"""sentence-transformers gives the vectors of `encode`, trains them and saves them; what would be wrong is refused."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModel, AutoTokenizer

pytest.importorskip("sentence_transformers")

from sentence_transformers import (  # noqa: E402
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Dense  # noqa: E402

from modeling_fast_r2d2 import (  # noqa: E402
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2Model,
    bundled_checkpoint,
)
from modeling_fast_r2d2.processor_code import SENTENCE_TRANSFORMERS_FILES  # noqa: E402

# Words of several pieces, whose trees depend on `atom_spans`; sentences of many lengths; none.
TEXTS = [
    "The unbelievably old man, unfazed, bought Schwarzenegger's car",
    "Yes",
    "It rained all day in Brobdingnag",
    "",
    "Dogs bark at 5km.",
    "He said that the discombobulated parliamentarian had left before anybody could ask him anything",
]


@pytest.fixture
def folder(tmp_path, tokenizer):
    """A saved model and its tokenizer, as our guides save them."""
    AutoModel.from_pretrained(bundled_checkpoint()).save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def expected(place, texts=TEXTS, **options) -> np.ndarray:
    return FastR2D2Model.from_pretrained(place, **options).encode(texts, normalize_embeddings=True)


def assert_equal(found, vectors) -> None:
    np.testing.assert_allclose(found, vectors, atol=1e-6, rtol=0)


@pytest.mark.parametrize("trust_remote_code", [False, True])
def test_a_saved_folder_gives_the_vectors_of_encode(folder, trust_remote_code):
    embedder = SentenceTransformer(str(folder), trust_remote_code=trust_remote_code, device="cpu")
    for batch_size in (1, 2, 32):
        found = embedder.encode(TEXTS, batch_size=batch_size, normalize_embeddings=True)
        assert_equal(found, expected(folder))
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    with_pooler = bundled_checkpoint("fast-r2d2-small")
    bundled = SentenceTransformer(with_pooler, device="cpu")
    assert_equal(bundled.encode(TEXTS, normalize_embeddings=True), expected(with_pooler))
    assert embedder.get_embedding_dimension() == 128


def test_other_modules_stay_when_the_model_is_saved_again(folder):
    torch.manual_seed(0)
    embedder = SentenceTransformer(str(folder), device="cpu")
    embedder.append(Dense(128, 16))
    embedder.save_pretrained(str(folder))
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    again = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), embedder.encode(TEXTS), atol=1e-6)
    assert again.encode(TEXTS).shape == (6, 16)


@pytest.mark.parametrize("own", ['{"transformer_task": "feature-extraction"}', "", "[]"])
def test_files_of_another_model_are_replaced(folder, own):
    (folder / "sentence_bert_config.json").write_text(own)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "1_Pooling"}]) if own else "{")
    AutoModel.from_pretrained(folder).save_pretrained(folder)
    assert json.loads((folder / "modules.json").read_text()) == modules
    embedder = SentenceTransformer(str(folder), device="cpu")
    assert_equal(embedder.encode(TEXTS, normalize_embeddings=True), expected(folder))


def test_the_encoding_is_the_configurations(folder):
    embedder = SentenceTransformer(str(folder), config_kwargs={"encoding": "chart"}, device="cpu")
    vectors = embedder.encode(TEXTS, normalize_embeddings=True)
    assert_equal(vectors, expected(folder, encoding="chart"))
    assert np.abs(vectors - expected(folder)).max() > 1e-3


def test_a_largest_length_cuts_texts(folder, tokenizer):
    embedder = SentenceTransformer(str(folder), device="cpu")
    embedder.max_seq_length = 3
    assert embedder.preprocess(["a b c d e"])["input_ids"].tolist() == [tokenizer("a b c")["input_ids"]]


REMOTE = """
import sys, json
from sentence_transformers import SentenceTransformer
first, second, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
try:
    SentenceTransformer(first, device="cpu")
except ValueError as error:
    assert "trust_remote_code=True" in str(error)
else:
    raise AssertionError("ran code that nobody trusted")
embedder = SentenceTransformer(first, trust_remote_code=True, device="cpu")
assert "transformers_modules" in type(embedder[0].model).__module__
embedder.save_pretrained(second)
again = SentenceTransformer(second, trust_remote_code=True, device="cpu")
print(json.dumps([model.encode(texts, normalize_embeddings=True).tolist() for model in (embedder, again)]))
"""


@pytest.mark.slow
def test_a_folder_runs_where_the_package_is_not_installed(folder, tmp_path, run_without_the_package):
    for vectors in run_without_the_package(REMOTE, folder, tmp_path / "again", json.dumps(TEXTS)):
        assert_equal(vectors, expected(folder))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")  # what it saved, here
    assert_equal(again.encode(TEXTS, normalize_embeddings=True), expected(folder))


def test_an_adapter_reloads_with_the_same_vectors(tmp_path):
    """Its folder has no configuration of the model, which sets punctuation aside."""
    peft = pytest.importorskip("peft")
    embedder = SentenceTransformer(bundled_checkpoint(), device="cpu")
    options = {"target_modules": ["query_key_value", "output"], "init_lora_weights": False}
    embedder.add_adapter(peft.LoraConfig(task_type="FEATURE_EXTRACTION", **options))
    embedder.eval().save_pretrained(str(tmp_path))
    assert_equal(SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS), embedder.encode(TEXTS))


@pytest.mark.slow
def test_training_changes_the_vectors_and_reloads(folder, tmp_path):
    embedder = SentenceTransformer(str(folder), device="cpu")
    before = embedder.encode(TEXTS, normalize_embeddings=True)
    rows = Dataset.from_dict({"anchor": TEXTS, "positive": [f"{text} indeed" for text in TEXTS]})
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), num_train_epochs=2, per_device_train_batch_size=3, learning_rate=1e-3, use_cpu=True,
        report_to="none", disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(embedder)
    SentenceTransformerTrainer(embedder, arguments, train_dataset=rows, loss=loss).train()
    embedder.eval().save_pretrained(str(tmp_path / "trained"))
    after = embedder.encode(TEXTS, normalize_embeddings=True)
    assert np.abs(after - before).max() > 1e-2
    loaded = SentenceTransformer(str(tmp_path / "trained"), device="cpu")
    assert_equal(loaded.encode(TEXTS, normalize_embeddings=True), after)
    assert_equal(expected(tmp_path / "trained"), after)  # and by this package alone


@pytest.mark.parametrize("mini_batch_size", [1, 2, 5])
def test_losses_that_cut_a_batch_into_smaller_ones_give_the_same(folder, mini_batch_size):
    embedder = SentenceTransformer(str(folder), device="cpu")
    pairs = [embedder.preprocess(texts) for texts in (TEXTS, TEXTS[::-1])]
    whole = MultipleNegativesRankingLoss(embedder)(pairs, None)
    in_parts = CachedMultipleNegativesRankingLoss(embedder, mini_batch_size=mini_batch_size)(pairs, None)
    torch.testing.assert_close(in_parts, whole)


def test_a_folder_of_an_older_version_loads_and_is_refused_for_texts(folder):
    """It has no modules.json: sentence-transformers takes a mean over constituents and padding."""
    for name in SENTENCE_TRANSFORMERS_FILES:
        (folder / name).unlink()
    assert expected(folder).shape == (6, 128)
    with pytest.raises(ValueError, match=r"no modules\.json.* wrong vectors.* save it again"):
        SentenceTransformer(str(folder), device="cpu").encode(TEXTS)


def test_a_parser_alone_is_refused(tmp_path, tokenizer):
    FastR2D2ForConstituencyParsing.from_pretrained(bundled_checkpoint()).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds a parser alone"):
        SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    with pytest.raises(ValueError, match=r"lacks 13 weights of an encoder, such as composition\..* parser alone"):
        AutoModel.from_pretrained(tmp_path)


def test_pairs_have_no_sentence_vector(folder):
    with pytest.raises(ValueError, match="for texts, not for pairs"):
        SentenceTransformer(str(folder), device="cpu").encode([("a cat", "a dog")])


def test_a_cross_encoder_scores_pairs_as_the_model_does(tmp_path, tokenizer):
    torch.manual_seed(0)
    model = FastR2D2ForPairClassification.from_pretrained(bundled_checkpoint(), num_labels=1).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    batch = tokenizer(TEXTS[:2], TEXTS[4:], padding=True, return_tensors="pt")
    with torch.no_grad():
        scores = model(**batch).logits[:, 0].sigmoid()
    found = CrossEncoder(str(tmp_path), device="cpu").predict(list(zip(TEXTS[:2], TEXTS[4:], strict=True)))
    np.testing.assert_allclose(found, scores, atol=1e-6)


def test_the_tokenizer_is_still_the_tokenizer(folder):
    assert AutoTokenizer.from_pretrained(folder)("a cat").keys() == {"input_ids", "token_type_ids", "attention_mask"}
