"""Any configuration and any batch: a ValueError, or the right shapes, valid trees and the numbers of each alone."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import set_seed

from modeling_fast_r2d2 import BinaryTree, FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model
from strategies import SMALL, batches, configurations, damaged_batches

pytestmark = pytest.mark.slow
encodings = st.sampled_from(["forced", "chart", "heuristic"])


@pytest.fixture(scope="module")
def model() -> FastR2D2ForPreTraining:
    set_seed(0)
    return FastR2D2ForPreTraining(FastR2D2Config(**SMALL)).eval()


@torch.no_grad()
def run(model, batch: dict, encoding: str):
    return model.model(**batch, encoding=encoding)


def check(output, batch: dict, encoding: str, hidden_size: int) -> None:
    mask = batch.get("attention_mask")
    lengths = mask.bool().sum(1).tolist() if mask is not None else (batch["input_ids"] != 0).sum(1).tolist()
    rows, width = batch["input_ids"].shape
    assert output.pooler_output.shape == (rows, hidden_size) and output.pooler_output.isfinite().all()
    assert output.last_hidden_state.shape == (rows, 2 * width - 1, hidden_size)
    assert output.spans.shape == (rows, width - 1, 2) and (output.log_prob is None) == (encoding == "forced")
    for row, length in enumerate(lengths):
        spans = output.spans[row]
        assert (spans[length - 1 :] == -1).all()
        tree = BinaryTree.from_spans(spans)  # raises ValueError unless it is a binary tree
        assert tree.num_leaves == length
        if encoding == "forced" and "atom_spans" in batch:
            words = {tuple(span) for span in batch["atom_spans"][row].tolist() if span[0] >= 0 and span[0] < span[1]}
            assert words <= set(map(tuple, tree.spans))


@given(batch=batches(), encoding=encodings)
def test_every_good_batch_is_encoded_as_its_sentences_are_alone(model, batch, encoding):
    output = run(model, batch, encoding)
    check(output, batch, encoding, model.config.hidden_size)
    if encoding == "heuristic" or "split_scores" not in batch:
        return  # drawn scores decide trees alone; those of the parser have near ties, and so has the heuristic
    for row in range(len(batch["input_ids"])):
        length = int(batch["attention_mask"][row].sum())
        alone = {name: value[row : row + 1, :length] for name, value in batch.items() if name != "atom_spans"}
        alone["split_scores"] = batch["split_scores"][row : row + 1, : length - 1]
        if "atom_spans" in batch:
            alone["atom_spans"] = batch["atom_spans"][row : row + 1]
        expected = run(model, alone, encoding).pooler_output
        torch.testing.assert_close(output.pooler_output[row : row + 1], expected, rtol=1e-3, atol=1e-4)


@given(batch=damaged_batches(), encoding=encodings)
def test_a_damaged_batch_is_refused_or_encoded_rightly(model, batch, encoding):
    try:
        output = run(model, batch, encoding)
    except ValueError:
        return
    check(output, {"attention_mask": None} | batch, encoding, model.config.hidden_size)


@given(batch=st.one_of(batches(), damaged_batches()))
@example(batch={"input_ids": torch.tensor([[24, 23]]), "split_scores": torch.tensor([[torch.inf]])})
def test_pretraining_on_any_batch_is_refused_or_has_finite_gradients(model, batch):
    try:
        loss = model.train()(**batch).loss
    except ValueError:
        return
    finally:
        model.eval()
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert loss.isfinite() and all(gradient.isfinite().all() for gradient in gradients)
    model.zero_grad()


@given(values=configurations)
def test_a_configuration_is_refused_or_makes_a_model(values):
    try:
        config = FastR2D2Config(**SMALL | values)
    except ValueError:
        return
    ids = torch.arange(8, 12).clamp(max=config.vocab_size - 1)[None]
    with torch.no_grad():
        output = FastR2D2Model(config).eval()(ids, torch.ones_like(ids))
    assert output.pooler_output.shape == (1, config.hidden_size)
    assert FastR2D2Config.from_dict(config.to_dict()).to_dict() == config.to_dict()
