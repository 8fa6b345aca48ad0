"""Weights and activations in half precision: trees stay, vectors move a little, losses are float32."""

import pytest
import torch
from transformers import AutoModel

from modeling_fast_r2d2 import FastR2D2ForConstituencyParsing, FastR2D2ForPreTraining, FastR2D2Model
from modeling_fast_r2d2.configuration_fast_r2d2 import ENCODINGS


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_embeddings_of_another_precision_become_the_models(tiny_model, dtype, weights):
    model, scores = tiny_model.model.to(weights), torch.tensor([[0.5, 1.0]])
    vectors = torch.randn(1, 3, 16).to(dtype)
    expected = model(inputs_embeds=vectors.to(weights), split_scores=scores).pooler_output
    assert torch.equal(model(inputs_embeds=vectors, split_scores=scores).pooler_output, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_half_precision_weights_keep_log_probabilities_in_float32(tiny_model, a_batch, tmp_path, dtype, encoding):
    tiny_model.save_pretrained(tmp_path)
    model = FastR2D2Model.from_pretrained(tmp_path, dtype=dtype).eval()
    scores = tiny_model.model(**a_batch).split_scores
    out = model(**a_batch, split_scores=scores, encoding=encoding)
    assert out.pooler_output.dtype == dtype
    if encoding == "forced":
        full = tiny_model.model(**a_batch, split_scores=scores).pooler_output
        torch.testing.assert_close(out.pooler_output.float(), full, atol=0.1, rtol=0.1)
    else:
        assert out.log_prob.dtype == torch.float32
    loss = FastR2D2ForPreTraining.from_pretrained(tmp_path, dtype=dtype).train()(**a_batch).loss
    loss.backward()
    assert loss.dtype == torch.float32 and loss.isfinite()


@pytest.mark.parametrize("parser_type", ["lstm", "transformer"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_changes_no_tree(tiny_config, a_batch, tmp_path, dtype, parser_type):
    """Not by loading, not by casting, not by autocast."""
    tiny_config.parser_type = parser_type
    model = FastR2D2Model(tiny_config).eval()
    model.save_pretrained(tmp_path)
    expected = model.parse(**a_batch)
    loaded = FastR2D2Model.from_pretrained(tmp_path, dtype=dtype).eval()
    cast = FastR2D2Model.from_pretrained(tmp_path).eval().to(dtype)
    parser = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path, dtype=dtype).eval()
    assert loaded.embeddings.weight.dtype == cast.embeddings.weight.dtype == dtype
    made = AutoModel.from_config(loaded.config)  # whose dtype is the half one
    made.load_state_dict(model.state_dict())
    assert made.embeddings.weight.dtype == dtype
    for other in (loaded, cast, parser, made.eval()):
        assert {weight.dtype for weight in other.parser.parameters()} == {torch.float32}
        assert torch.equal(other.parse(**a_batch).split_scores, expected.split_scores)
    with torch.autocast("cpu", dtype=dtype):
        found = model(**a_batch)
    assert torch.equal(found.split_scores, expected.split_scores) and torch.equal(found.spans, expected.spans)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_in_half_precision_trees_and_vectors_hardly_depend_on_the_batch(model, dtype):
    """In bfloat16 not at all on the CPUs that were measured; others may multiply many rows in another way than few."""
    lengths = torch.randint(2, 25, (64,))
    mask = (torch.arange(24) < lengths[:, None]).long()
    ids, base = torch.randint(1000, 2000, (64, 24)) * mask, model.model.to(dtype)
    for options in ({}, {"encoding": "chart"}, {"encoding": "minimum_risk"}):
        together, changed = base(ids, mask, **options), 0
        for row, length in enumerate(lengths.tolist()):
            alone, spans = base(ids[row : row + 1, :length], **options), together.spans[row, : length - 1]
            nodes = together.last_hidden_state[row, 24 : 24 + length - 1]
            if torch.equal(alone.spans[0], spans):
                differences = (alone.last_hidden_state[0, length:] - nodes).float().norm(dim=-1)
                assert differences.amax() < 0.02 * base.config.hidden_size**0.5
            else:
                changed += 1
        assert changed <= 1


def test_normalised_scores_have_finite_gradients_under_autocast(tiny_config):
    """Also those of two tokens, which have one score and no variance."""
    tiny_config.normalize_split_scores = True
    model = FastR2D2ForPreTraining(tiny_config).train()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.tensor([[7, 8, 0], [9, 10, 11]])).loss
    loss.backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
