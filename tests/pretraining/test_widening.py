"""The model that a run begins with: a given one, as it is and made wider."""

import pytest
import torch
from test_count_vectors import drawn_vectors
from torch.nn import functional as F
from transformers import AutoTokenizer

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, FastR2D2Model, bundled_checkpoint
from pretraining.models import SHARE_OF_OLD, begin_with_counts, make_model, make_tokenizer, size_of_count_vectors, widen
from pretraining.options import DataOptions, ModelOptions

TEXTS = ["the old man bought a new car", "several people were hurt when the bridge fell into the river"]


def test_a_bundled_model_goes_by_its_name():
    options = ModelOptions(model="fast-r2d2-tiny", config_overrides="window_size=3")
    tokenizer = make_tokenizer([], DataOptions(corpus=[]), options)
    model, bundled = make_model(tokenizer, options), FastR2D2Model.from_pretrained(bundled_checkpoint())
    assert model.training and len(tokenizer) == bundled.config.vocab_size
    assert model.config.window_size == 3 != bundled.config.window_size
    assert torch.equal(model.model.embeddings.weight, bundled.embeddings.weight)


@pytest.mark.parametrize("tie_decoder", [True, False])
def test_without_layer_norms_the_wider_model_computes_what_the_old_did(tiny_model, a_batch, monkeypatch, tie_decoder):
    """Layer norms are over old and new features together; nothing else mixes them."""
    monkeypatch.setattr(F, "layer_norm", lambda hidden, *args, **options: hidden)
    config = tiny_model.config.to_dict() | {"num_hidden_layers": 2, "tie_decoder": tie_decoder}
    old = FastR2D2ForPreTraining(FastR2D2Config.from_dict(config))
    new = widen(old, FastR2D2Config.from_dict(config | {"hidden_size": 48, "intermediate_size": 80, "pooler": True}))
    old, new, size = old.double().eval(), new.double().eval(), old.config.hidden_size
    assert size < 48 and old.config.intermediate_size < 80
    for encoding in ("forced", "chart"):
        before, after = (model.model(**a_batch, encoding=encoding) for model in (old, new))
        torch.testing.assert_close(after.last_hidden_state[..., :size], before.last_hidden_state)
        assert torch.equal(after.spans, before.spans) and torch.equal(after.split_scores, before.split_scores)
    before, after = old(**a_batch), new(**a_batch)
    torch.testing.assert_close(after.tree_loss, before.tree_loss)
    # The decoder multiplies new features of the embeddings by new features of the head, which are 0.
    torch.testing.assert_close(after.lm_loss, before.lm_loss)


def test_the_bundled_model_made_wider_is_nearly_the_same(tokenizer):
    old = FastR2D2ForPreTraining.from_pretrained(bundled_checkpoint()).eval()
    options = ModelOptions("fast-r2d2-tiny", config_overrides="hidden_size=160,intermediate_size=600,pooler=true")
    torch.manual_seed(0)
    new = make_model(tokenizer, options).eval()
    batch = AutoTokenizer.from_pretrained(bundled_checkpoint())(TEXTS, return_tensors="pt", padding=True)
    before, after = (model.model(**batch) for model in (old, new))
    assert torch.equal(before.spans, after.spans)
    is_node = before.last_hidden_state.abs().sum(-1) > 0
    cosines = F.cosine_similarity(before.last_hidden_state, after.last_hidden_state[..., :128], dim=-1)[is_node]
    assert cosines.min() > 0.8 and cosines.mean() > 0.93
    root = after.last_hidden_state[0, batch["input_ids"].shape[1] :][after.spans[0].diff(dim=-1)[:, 0].argmax()]
    torch.testing.assert_close(after.pooler_output[0], torch.cat([root[128:], SHARE_OF_OLD * root[:128]]))


def test_new_features_may_begin_with_counts(tokenizer):
    options = ModelOptions("fast-r2d2-tiny", config_overrides="hidden_size=132,pooler=true")
    model = make_model(tokenizer, options)
    before, vectors = model.model.embeddings.weight.detach().clone(), drawn_vectors(model.config.vocab_size)
    assert size_of_count_vectors(options, model.config) == 4
    begin_with_counts(model, vectors)
    after = model.model.embeddings.weight.detach()
    assert torch.equal(after[:, :128], before[:, :128])
    centred = vectors.tokens - vectors.tokens.mean(1, keepdim=True)
    torch.testing.assert_close(F.cosine_similarity(after[:, 128:], centred), torch.ones(len(after)))
    assert after[:, 128:].square().mean() == pytest.approx(before[:, 128:].square().mean().item(), rel=0.01)


@pytest.mark.parametrize("overrides", ["hidden_size=32", "hidden_size=160,num_attention_heads=8", "num_hidden_layers=2",
                                       "parser_hidden_size=300", "hidden_size=160,vocab_size=9000"])  # fmt: skip
def test_a_given_model_changes_in_no_other_way(tokenizer, overrides):
    with pytest.raises(ValueError, match="a given model may only grow, in hidden_size and intermediate_size"):
        make_model(tokenizer, ModelOptions("fast-r2d2-tiny", config_overrides=overrides))


@pytest.mark.parametrize("overrides", [None, "hidden_size=160"])
def test_count_vectors_need_new_features_and_a_pooler(tokenizer, overrides):
    options = ModelOptions("fast-r2d2-tiny", config_overrides=overrides)
    with pytest.raises(ValueError, match=r"hidden_size=384,pooler=true"):
        size_of_count_vectors(options, make_model(tokenizer, options).config)
    assert size_of_count_vectors(ModelOptions(), FastR2D2Config()) == 768
