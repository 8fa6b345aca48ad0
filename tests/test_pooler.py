"""Models whose sentence and constituent vectors are a linear map of their nodes' vectors."""

import numpy as np
import pytest
import torch

from modeling_fast_r2d2 import (
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    TreeParser,
    bundled_checkpoint,
)

TEXT = "The old man bought a new car"


@pytest.fixture
def folder(tmp_path, tokenizer):
    """The bundled model with a pooler."""
    FastR2D2ForPreTraining.from_pretrained(bundled_checkpoint(), pooler=True).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_the_pooler_is_saved_and_all_doors_give_its_vectors(folder):
    plain, model = FastR2D2Model.from_pretrained(bundled_checkpoint()), FastR2D2Model.from_pretrained(folder)
    matrix = model.pooler.weight.detach().numpy()
    expected = plain.encode(TEXT) @ matrix.T
    np.testing.assert_allclose(model.encode(TEXT), expected, atol=1e-4)
    for before, after in zip(plain.constituents(TEXT), model.constituents(TEXT), strict=True):
        assert before.span == after.span
        np.testing.assert_allclose(after.vector, before.vector @ matrix.T, atol=1e-4)
    parsed = TreeParser.from_pretrained(str(folder), with_vectors=True)([TEXT])[0]
    np.testing.assert_allclose(parsed.vector, expected, atol=1e-4)


@pytest.mark.parametrize("head", [FastR2D2ForSequenceClassification, FastR2D2ForPairClassification])
def test_classifiers_and_last_hidden_state_keep_the_nodes_vectors(folder, head, a_batch):
    batch = {name: value[[0, 3]] for name, value in a_batch.items()}
    pooled = head.from_pretrained(folder).eval()
    plain = head.from_pretrained(bundled_checkpoint()).eval()
    plain.load_state_dict({name: v for name, v in pooled.state_dict().items() if "pooler" not in name})
    states = [model.model(**batch).last_hidden_state for model in (pooled, plain)]
    torch.testing.assert_close(*states)
    if head is FastR2D2ForPairClassification:
        batch["token_type_ids"] = batch["attention_mask"].clone()
        batch["token_type_ids"][:, 0] = 0
    torch.testing.assert_close(pooled(**batch).logits, plain(**batch).logits)
