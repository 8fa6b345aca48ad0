"""The models as transformers models: contract, batching, saving, loading, dtypes, bad input."""

import copy
import inspect
import json
import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    set_seed,
)

from modeling_fast_r2d2 import (
    FastR2D2Config,
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    bundled_checkpoint,
)
from modeling_fast_r2d2.configuration_fast_r2d2 import ENCODINGS
from modeling_fast_r2d2.lstm import LSTMBackbone

# The last bit of a product of few rows depends on where in memory its weights lie, and loaded ones lie elsewhere.
ROUNDING = {"rtol": 1e-6, "atol": 1e-6}


def have_the_same_weights(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in ours.state_dict().items())


def count(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_base_size_has_the_papers_parameters():
    with torch.device("meta"):
        model = FastR2D2ForPreTraining(FastR2D2Config())
    assert count(model.model.embeddings) + count(model.model.composition) == 51_791_619
    assert count(model.model.parser) == 9_559_809
    assert count(model) == 51_791_619 + 9_559_809 + 768 * 768 + 768 + 30_522


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_outputs_have_the_shapes_and_padding_of_the_contract(tiny_model, a_batch, encoding):
    out = tiny_model.model(**a_batch, encoding=encoding)
    lengths = a_batch["attention_mask"].sum(1).tolist()
    assert out.pooler_output.shape == (5, 16) and out.last_hidden_state.shape == (5, 17, 16)
    assert out.split_scores.shape == (5, 8) and out.spans.shape == (5, 8, 2) and out.spans.dtype == torch.long
    assert (out.log_prob is None) == (encoding == "forced")
    for b, n in enumerate(lengths):
        states = out.last_hidden_state[b]
        torch.testing.assert_close(states[:n], tiny_model.model.embeddings(a_batch["input_ids"][b, :n]))
        assert not states[n:9].any() and not states[9 + n - 1 :].any()
        assert (out.spans[b, n - 1 :] == -1).all() and not out.split_scores[b, n - 1 :].any()
        root = states[0] if n == 1 else states[9 + out.spans[b, : n - 1].tolist().index([0, n - 1])]
        torch.testing.assert_close(root, out.pooler_output[b])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("parser_type", ["lstm", "transformer"])
def test_a_batch_gives_what_its_sentences_give_one_by_one(tiny_config, a_batch, encoding, parser_type):
    set_seed(1)
    config = FastR2D2Config(**{**tiny_config.to_dict(), "parser_type": parser_type, "normalize_split_scores": True})
    model = FastR2D2Model(config).double().eval()
    spans = torch.tensor([[[0, 2], [5, 6]], [[-1, -1]] * 2, [[0, 1], [-1, -1]], [[-1, -1]] * 2, [[3, 8], [-1, -1]]])
    together = model(**a_batch, atom_spans=spans, encoding=encoding)
    for b, n in enumerate(a_batch["attention_mask"].sum(1).tolist()):
        alone = model(a_batch["input_ids"][b : b + 1, :n], atom_spans=spans[b : b + 1], encoding=encoding)
        torch.testing.assert_close(alone.pooler_output[0], together.pooler_output[b])
        torch.testing.assert_close(alone.split_scores[0], together.split_scores[b, : n - 1])
        assert torch.equal(alone.spans[0], together.spans[b, : n - 1])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_evaluation_is_deterministic(tiny_model, a_batch, encoding):
    first, second = (tiny_model.model(**a_batch, encoding=encoding) for _ in range(2))
    assert torch.equal(first.last_hidden_state, second.last_hidden_state)


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_an_lstm_by_segments_is_the_packed_one(lengths, seed):
    """On a CPU it goes by segments of a batch, elsewhere it packs."""
    torch.manual_seed(seed)
    config = FastR2D2Config(parser_embedding_size=6, parser_hidden_size=5, parser_dropout_prob=0.0)
    backbone, lengths = LSTMBackbone(config).double(), torch.tensor(lengths)
    embedded = torch.randn(len(lengths), int(lengths.max()) + 1, 6).double()
    is_token = torch.arange(embedded.shape[1]) < lengths[:, None]
    packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(backbone.lstm(packed)[0], batch_first=True, total_length=embedded.shape[1])[0]
    for mode in (True, False):
        ours = backbone.train(mode)(embedded, lengths)
        torch.testing.assert_close(ours[is_token], expected[is_token], rtol=1e-12, atol=1e-12)
        gradients = [torch.autograd.grad(x[is_token].sin().sum(), [*backbone.parameters()], retain_graph=True)
                     for x in (ours, expected)]  # fmt: skip
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_an_lstms_dropout_lies_between_its_layers():
    config = FastR2D2Config(parser_embedding_size=6, parser_hidden_size=5, parser_num_layers=2, parser_dropout_prob=0.5)
    backbone, embedded = LSTMBackbone(config).train(), torch.randn(1, 3, 6)
    assert not backbone(embedded, torch.tensor([3])).equal(backbone(embedded, torch.tensor([3])))
    assert all((backbone(embedded, torch.tensor([3])) != 0).all() for _ in range(9))


def test_training_samples_trees_and_noise_can_be_switched_off(tiny_config, a_batch):
    set_seed(0)
    dropouts = ("hidden_dropout_prob", "attention_probs_dropout_prob", "parser_dropout_prob")
    config = tiny_config.to_dict() | dict.fromkeys(dropouts, 0.0)
    noisy = FastR2D2ForPreTraining(FastR2D2Config(**config)).train()
    spans = {tuple(noisy(**a_batch, output_constituents=True).spans.flatten().tolist()) for _ in range(10)}
    assert len(spans) > 1
    quiet = FastR2D2ForPreTraining(FastR2D2Config(**{**config, "split_noise": 0.0, "choice_noise": 0.0})).train()
    quiet.load_state_dict(noisy.state_dict())
    assert quiet(**a_batch).loss == quiet(**a_batch).loss
    torch.testing.assert_close(quiet(**a_batch).loss, noisy.eval()(**a_batch).loss)  # which composes small levels whole


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), seed=st.integers(0, 99), data=st.data())
def test_disjoint_spans_become_constituents_of_the_parsers_tree(tiny_model, lengths, seed, data):
    rows = []
    for n in lengths:
        cuts = sorted(data.draw(st.sets(st.integers(0, n), max_size=4)))
        rows.append([[i, j - 1] for i, j in zip(cuts[::2], cuts[1::2], strict=False)])
    most = max(map(len, rows))
    spans = torch.tensor([row + [[-1, -1]] * (most - len(row)) for row in rows], dtype=torch.long)
    spans = spans.reshape(len(rows), most, 2)
    ids = torch.randint(20, 100, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    found = tiny_model.model(ids, mask.long(), spans).spans.tolist()
    for b, row in enumerate(rows):
        assert all([i, j] in found[b] for i, j in row if i < j)


@given(length=st.integers(2, 12), window=st.integers(1, 5), seed=st.integers(0, 99), data=st.data())
def test_chart_trees_keep_spans_whole_on_request(tiny_config, length, window, seed, data):
    set_seed(seed)
    changes = {"constrain_chart": True, "window_size": window, "nested_spans": True}
    model = FastR2D2ForPreTraining(FastR2D2Config(**{**tiny_config.to_dict(), **changes}))
    cuts = sorted(data.draw(st.sets(st.integers(0, length), min_size=2, max_size=5)))
    spans = [[i, j - 1] for i, j in zip(cuts[::2], cuts[1::2], strict=False)]
    spans += [[spans[0][0], spans[0][1] - 1]] if spans[0][1] > spans[0][0] else []  # and one within another
    ids = torch.randint(20, 100, (1, length))
    for mode in (True, False):
        output = model.train(mode)(ids, atom_spans=torch.tensor([spans]), output_constituents=True)
        assert all([i, j] in output.spans[0].tolist() for i, j in spans if i < j)
        assert output.loss.isfinite()
    output.loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_nested_spans_are_both_honoured_on_request(tiny_config):
    set_seed(0)
    model = FastR2D2Model(FastR2D2Config(**{**tiny_config.to_dict(), "nested_spans": True})).eval()
    outer, inner = [1, 6], [3, 4]
    for seed in range(20):
        ids = torch.randint(20, 100, (1, 9), generator=torch.Generator().manual_seed(seed))
        spans = model(ids, atom_spans=torch.tensor([[outer, inner]])).spans[0].tolist()
        assert outer in spans and inner in spans


def test_callers_scores_replace_the_parser_and_serve_embeddings(tiny_model, a_batch):
    model, right_branching = tiny_model.model, -torch.arange(8.0).expand(5, -1)
    out = model(**a_batch, split_scores=right_branching)
    assert out.spans[0].tolist() == [[k, 8] for k in range(8)]
    vectors = model.embeddings(a_batch["input_ids"])
    by_vectors = model(inputs_embeds=vectors, attention_mask=a_batch["attention_mask"], split_scores=right_branching)
    torch.testing.assert_close(by_vectors.pooler_output, out.pooler_output)
    infinite = right_branching.clone()
    infinite[:, 3] = float("inf")
    assert model(**a_batch, split_scores=infinite).spans[0, 3].tolist() == [0, 8]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_embeddings_of_another_precision_become_the_models(tiny_model, dtype, weights):
    model, scores = tiny_model.model.to(weights), torch.tensor([[0.5, 1.0]])
    vectors = torch.randn(1, 3, 16).to(dtype)
    expected = model(inputs_embeds=vectors.to(weights), split_scores=scores).pooler_output
    assert torch.equal(model(inputs_embeds=vectors, split_scores=scores).pooler_output, expected)


def test_what_stands_in_padding_does_not_matter(tiny_model, a_batch):
    ids = a_batch["input_ids"].masked_fill(a_batch["attention_mask"] == 0, -100)
    out = tiny_model(ids, a_batch["attention_mask"])
    assert torch.equal(out.loss, tiny_model(**a_batch).loss)


def test_padding_token_stands_for_a_missing_mask(tiny_model, a_batch):
    with_mask, without = tiny_model.model(**a_batch), tiny_model.model(a_batch["input_ids"])
    assert torch.equal(with_mask.pooler_output, without.pooler_output)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_gradient_reaches_all_that_takes_part(tiny_config, a_batch, encoding):
    model = FastR2D2ForSequenceClassification(tiny_config).train()
    model(**a_batch, labels=torch.tensor([0, 1, 1, 0, 1]), encoding=encoding).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_gradient_checkpointing_changes_no_gradient(tiny_config, a_batch, dropout):
    gradients = []
    config = {**tiny_config.to_dict(), "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    for checkpointing in (False, True):
        set_seed(0)
        model = FastR2D2ForPreTraining(FastR2D2Config(**config)).double().train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        elif dropout:  # the same numbers are drawn for the same order of work, which a hook makes sure of
            model.model.composition.stack.register_forward_hook(lambda *_: None)
        set_seed(1)
        model(**a_batch).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients)


def test_constituents_are_described_in_training_only_on_request(tiny_config, a_batch):
    model = FastR2D2ForPreTraining(tiny_config).train()
    quiet, told = model(**a_batch), model(**a_batch, output_constituents=True)
    assert quiet.spans is None and quiet.last_hidden_state is None and quiet.pooler_output is not None
    assert told.spans.shape == (5, 8, 2) and model.eval()(**a_batch).spans.shape == (5, 8, 2)


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
    for other in (loaded, cast, parser):
        assert {weight.dtype for weight in other.parser.parameters()} == {torch.float32}
        assert torch.equal(other.parse(**a_batch).split_scores, expected.split_scores)
    with torch.autocast("cpu", dtype=dtype):
        found = model(**a_batch)
    assert torch.equal(found.split_scores, expected.split_scores) and torch.equal(found.spans, expected.spans)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_in_half_precision_trees_and_vectors_hardly_depend_on_the_batch(model, dtype):
    """In bfloat16 not at all on the CPUs that were measured; others may multiply many rows in another way than few."""
    lengths = torch.randint(2, 25, (64,))
    mask = (torch.arange(24) < lengths[:, None]).long()
    ids, base = torch.randint(1000, 2000, (64, 24)) * mask, model.model.to(dtype)
    for options in ({}, {"encoding": "chart"}, {"encoding": "chart", "decoding": "minimum_risk"}):
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


def test_autocast_trains(tiny_config, a_batch):
    model = FastR2D2ForPreTraining(tiny_config).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**a_batch).loss
    loss.backward()
    assert loss.dtype == torch.float32 and loss.isfinite()


@pytest.mark.parametrize("shards", [False, True])
def test_a_saved_checkpoint_loads_into_every_class(tiny_model, a_batch, tmp_path, shards):
    tiny_model.save_pretrained(tmp_path, max_shard_size="10KB" if shards else "5GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == shards
    expected = tiny_model.model(**a_batch)
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is FastR2D2Model and not base.training
    have_the_same_weights(base, tiny_model.model)
    torch.testing.assert_close(base(**a_batch).pooler_output, expected.pooler_output, **ROUNDING)
    assert type(AutoConfig.from_pretrained(tmp_path)) is FastR2D2Config
    pretraining = AutoModelForPreTraining.from_pretrained(tmp_path)
    have_the_same_weights(pretraining, tiny_model)
    torch.testing.assert_close(pretraining(**a_batch).loss, tiny_model(**a_batch).loss, **ROUNDING)
    parser = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path)
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
    have_the_same_weights(head.model, tiny_model.model)


def test_tied_weights_are_stored_once_and_stay_tied(tiny_model, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert not {"lm_head.decoder.weight", "model.embeddings.weight"} <= set(file.keys())
    model = FastR2D2ForPreTraining.from_pretrained(tmp_path)
    assert model.lm_head.decoder.weight is model.model.embeddings.weight


@pytest.mark.parametrize("size", [90, 130])
def test_resizing_the_vocabulary_resizes_the_parser_too(tiny_config, a_batch, size, tmp_path):
    set_seed(0)
    model = FastR2D2ForPreTraining(copy.deepcopy(tiny_config)).eval()
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


def test_initial_language_model_loss_is_that_of_a_uniform_guess(tiny_model, a_batch):
    loss = tiny_model(**a_batch).lm_loss.item()
    assert abs(loss - torch.tensor(100.0).log().item()) < 0.3


@pytest.mark.parametrize("tie_decoder", [True, False])
def test_pairs_are_classified_in_order(tiny_config, a_batch, tie_decoder):
    set_seed(0)
    model = FastR2D2ForPairClassification(
        FastR2D2Config(**{**tiny_config.to_dict(), "tie_decoder": tie_decoder})
    ).eval()
    pairs = {name: value[:4].unflatten(0, (2, 2)) for name, value in a_batch.items()}
    logits = model(**pairs).logits
    assert logits.shape == (2, 2)
    swapped = model(**{name: value.flip(1) for name, value in pairs.items()}).logits
    assert not torch.allclose(logits, swapped)
    output = model.train()(**pairs, labels=torch.tensor([0, 1]))
    output.loss.backward()
    assert output.loss > output.lm_loss + output.tree_loss


@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4), left=st.booleans(),
)  # fmt: skip
def test_pairs_in_one_row_are_the_same_pairs(tiny_config, lengths, left):
    set_seed(0)
    model = FastR2D2ForPairClassification(tiny_config).eval()
    pairs = [[torch.randint(20, 100, (n,)) for n in pair] for pair in lengths]
    width = max(map(sum, lengths))

    def in_one_row(parts: list[torch.Tensor]) -> torch.Tensor:
        row = torch.cat(parts)
        padding = row.new_zeros(width - len(row))
        return torch.cat([padding, row] if left else [row, padding])

    flat = {
        "input_ids": torch.stack([in_one_row(pair) for pair in pairs]),
        "attention_mask": torch.stack([in_one_row([torch.ones_like(part) for part in pair]) for pair in pairs]),
        "token_type_ids": torch.stack([in_one_row([torch.zeros_like(a), torch.ones_like(b)]) for a, b in pairs]),
    }
    split = torch.nn.utils.rnn.pad_sequence([part for pair in pairs for part in pair], batch_first=True)
    expected = model(split.unflatten(0, (-1, 2))).logits
    torch.testing.assert_close(model(**flat).logits, expected)
    torch.testing.assert_close(model(flat["input_ids"], token_type_ids=flat["token_type_ids"]).logits, expected)


WEIGHTS = ("forced", "chart", "lm", "tree")
CERTAIN = {
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "parser_dropout_prob": 0.0, "split_noise": 0.0,
    "choice_noise": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("chosen", [[w] for w in WEIGHTS[:2]] + [["forced", "tree"], ["chart", "lm"], list(WEIGHTS)])
@pytest.mark.parametrize("encoding", ["forced", "chart"])
def test_fine_tuning_sums_the_losses_that_have_weight(tiny_config, tiny_model, a_batch, chosen, encoding, monkeypatch):
    labels, weights = torch.tensor([0, 1, 0, 1, 1]), {"forced": 0.5, "chart": 2.0, "lm": 0.25, "tree": 3.0}
    settings = tiny_config.to_dict() | CERTAIN
    settings |= {f"{name}_loss_weight": weights[name] if name in chosen else 0.0 for name in WEIGHTS}
    model = FastR2D2ForSequenceClassification(FastR2D2Config(**settings))
    model.model.load_state_dict(tiny_model.model.state_dict())
    model.lm_head.load_state_dict(tiny_model.lm_head.state_dict())
    expected = {name: model.eval()(**a_batch, labels=labels, encoding=name).loss for name in ("forced", "chart")}
    pretraining = FastR2D2ForPreTraining(FastR2D2Config(**tiny_config.to_dict() | CERTAIN)).train()
    pretraining.load_state_dict(tiny_model.state_dict())
    both = pretraining(**a_batch)
    expected |= {"lm": both.lm_loss, "tree": both.tree_loss}
    composed = []
    compose = model.model.encode_batch
    monkeypatch.setattr(
        model.model, "encode_batch", lambda batch, kind, **more: composed.append(kind) or compose(batch, kind, **more)
    )
    output = model.train()(**a_batch, labels=labels, encoding=encoding)
    torch.testing.assert_close(output.loss, sum(weights[name] * expected[name] for name in chosen))
    for name in WEIGHTS:
        found = getattr(output, f"{name}_loss")
        assert (found is None) == (name not in chosen)
        if found is not None:
            torch.testing.assert_close(found, expected[name])
    assert sorted(composed) == sorted({"forced" if name == "forced" else "chart" for name in chosen})


def test_a_classifier_needs_a_task_loss(tiny_config, a_batch):
    weights = {"forced_loss_weight": 0.0, "chart_loss_weight": 0.0}
    model = FastR2D2ForSequenceClassification(FastR2D2Config(**tiny_config.to_dict() | weights)).train()
    with pytest.raises(ValueError, match="a value above 0"):
        model(**a_batch, labels=torch.tensor([0, 1, 0, 1, 1]))
    with pytest.raises(ValueError, match="lm_loss_weight must be >= 0 and finite, got -1"):
        FastR2D2Config(lm_loss_weight=-1.0)


def test_sampled_tree_objective_trains(tiny_config, a_batch):
    config = FastR2D2Config(**{**tiny_config.to_dict(), "tree_objective": "sampled", "num_tree_samples": 8})
    model = FastR2D2ForPreTraining(config).train()
    model(**a_batch).tree_loss.backward()
    assert model.model.parser.score.weight.grad.abs().sum() > 0
    assert model.model.embeddings.weight.grad is None  # the encoder is the teacher


CLEAN_PROCESS = """
import sys, json, torch
assert not any(name.startswith(("modeling_fast_r2d2", "tokenization_fast_r2d2")) for name in sys.modules)
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("modeling_fast_r2d2", "tokenization_fast_r2d2", "fast_r2d2_kernels", "nltk"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
import transformers
ids = torch.tensor([[30, 31, 32, 33, 34]])
for auto in ("AutoModel", "AutoModelForPreTraining", "AutoModelForSequenceClassification"):
    model = getattr(transformers, auto).from_pretrained(sys.argv[1], trust_remote_code=True).eval()
    assert "transformers_modules" in type(model).__module__, type(model)
    if auto == "AutoModel":
        print(json.dumps(model(ids).pooler_output.tolist()))
"""


@pytest.mark.parametrize(
    "model_class",
    [
        FastR2D2ForPreTraining,
        pytest.param(FastR2D2Model, marks=pytest.mark.slow),
        pytest.param(FastR2D2ForConstituencyParsing, marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_folder_brings_its_code_to_a_process_without_the_package(tiny_model, tmp_path, model_class):
    folder = tmp_path / "checkpoint"
    tiny_model.save_pretrained(folder)
    if model_class is not FastR2D2ForPreTraining:
        model_class.from_pretrained(folder).save_pretrained(folder)
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, "-c", CLEAN_PROCESS, str(folder)], capture_output=True, text=True,
                            env=environment, cwd=tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr
    if model_class is not FastR2D2ForConstituencyParsing:
        remote = torch.tensor(json.loads(result.stdout.splitlines()[-1]))
        torch.testing.assert_close(remote, tiny_model.model(torch.tensor([[30, 31, 32, 33, 34]])).pooler_output)


def test_auto_classes_for_other_tasks_give_no_model(tiny_model, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    for auto in (AutoModelForNextSentencePrediction, AutoModelForMaskedLM, AutoModelForTokenClassification):
        for folder in (tmp_path, bundled_checkpoint()):
            with pytest.raises(ValueError, match="Unrecognized configuration class"):
                auto.from_pretrained(folder)


def test_parsing_reads_only_the_parsers_tensors(tiny_model, tmp_path, monkeypatch):
    tiny_model.save_pretrained(tmp_path)
    # A file whose other tensors are damaged loads all the same, with the same trees.
    path = tmp_path / "model.safetensors"
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
    content = bytearray(path.read_bytes())
    for name, entry in header.items():
        if name != "__metadata__" and not name.startswith("model.parser."):
            begin, end = entry["data_offsets"]
            content[start + begin : start + end] = b"\xff" * (end - begin)  # NaN
    path.write_bytes(content)
    model, info = FastR2D2ForConstituencyParsing.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = torch.tensor([[30, 31, 32, 33, 34]])
    assert torch.equal(model(ids).spans, tiny_model.model(ids).spans)


BAD_INPUTS = {
    "row 1 .* no token": dict(
        input_ids=None, inputs_embeds=torch.zeros(2, 3, 16), attention_mask=torch.tensor([[1, 1, 1], [0, 0, 0]])
    ),
    "row 1 .* padding between its tokens; pad on one side": dict(attention_mask=torch.tensor([[1, 1, 1], [1, 0, 1]])),
    "row 0 .* padding between": dict(input_ids=torch.tensor([[0, 5, 0, 5], [0, 5, 5, 0]])),
    r"row 0 .* outside the vocabulary; use ids in 0 \.\.\. 99": dict(input_ids=torch.tensor([[1, 100, 2], [1, 2, 3]])),
    "row 1 .* outside the vocabulary": dict(input_ids=torch.tensor([[1, 5, 2], [1, -1, 3]])),
    r"input_ids must be \(batch, seq_len\)": dict(input_ids=torch.tensor([1, 2, 3])),
    r"attention_mask must be \(2, 3\), got \(2, 4\)": dict(attention_mask=torch.ones(2, 4)),
    "row 1 .* outside the sentence": dict(atom_spans=torch.tensor([[[0, 1]], [[1, 3]]])),
    "row 0 .* outside the sentence": dict(atom_spans=torch.tensor([[[-1, 1]], [[1, 2]]])),
    "row 1 .* reversed span": dict(atom_spans=torch.tensor([[[0, 1]], [[2, 1]]])),
    r"atom_spans must be \(2, max_spans, 2\)": dict(atom_spans=torch.tensor([[0, 1], [1, 2]])),
    "atom_spans must be long": dict(atom_spans=torch.ones(2, 1, 2)),
    r"split_scores must be \(2, 2\)": dict(split_scores=torch.zeros(2, 3)),
    "split_scores must be floating": dict(split_scores=torch.zeros(2, 2).long()),
    "row 1 .* NaN in split_scores": dict(split_scores=torch.tensor([[0.0, 1.0], [float("nan"), 0.0]])),
    "encoding must be one of forced, chart, heuristic, got 'cky'": dict(encoding="cky"),
    "either input_ids or inputs_embeds": dict(inputs_embeds=torch.zeros(2, 3, 16)),
    "inputs_embeds must end in 16": dict(input_ids=None, inputs_embeds=torch.zeros(2, 3, 8)),
    "give split_scores with inputs_embeds": dict(input_ids=None, inputs_embeds=torch.zeros(2, 3, 16)),
}


@pytest.mark.parametrize("message", BAD_INPUTS)
def test_bad_input_is_refused_with_row_and_remedy(tiny_model, message):
    inputs = {"input_ids": torch.tensor([[30, 31, 32], [33, 34, 35]]), **BAD_INPUTS[message]}
    with pytest.raises(ValueError, match=message):
        tiny_model.model(**inputs)


def test_pairs_of_another_shape_are_refused(tiny_config):
    model = FastR2D2ForPairClassification(tiny_config).eval()
    with pytest.raises(ValueError, match=r"input_ids must be \(batch, 2, ...\).* got \(2, 3\)"):
        model(torch.tensor([[30, 31, 32], [33, 34, 35]]))
    ids, types = torch.tensor([[30, 31, 32], [33, 34, 35]]), torch.tensor([[0, 0, 1], [0, 0, 0]])
    with pytest.raises(ValueError, match=r"must be \(batch, seq_len\), got \(2, 3\) and \(1, 3\)"):
        model(ids, token_type_ids=types[:1])
    with pytest.raises(ValueError, match="without atom_spans"):
        model(ids, token_type_ids=types, atom_spans=torch.tensor([[[0, 1]], [[0, 1]]]))


def test_pretraining_refuses_forced_encoding(tiny_model, a_batch):
    with pytest.raises(ValueError, match="pretraining needs a chart"):
        tiny_model(**a_batch, encoding="forced")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_activation_memory_of_training_is_linear_in_length(tiny_config, encoding):
    if encoding == "forced":
        model, inputs = FastR2D2ForSequenceClassification(tiny_config).eval(), {"labels": torch.tensor([1])}
    else:
        model, inputs = FastR2D2ForPreTraining(tiny_config).train(), {}
    per_token = []
    for length in (100, 400):
        kept: dict[int, int] = {}

        def remember(tensor, kept=kept):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            output = model(torch.randint(20, 100, (1, length)), encoding=encoding, **inputs)
        per_token.append(sum(kept.values()) / length)
        del output
    assert 0.75 < per_token[1] / per_token[0] < 1.25


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_five_thousand_tokens_and_one_token_are_encoded(tiny_model, encoding):
    length = 500 if encoding == "heuristic" else 5000  # the heuristic is sequential by nature
    ids = torch.randint(20, 100, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert tiny_model.model(ids, encoding=encoding).pooler_output.isfinite().all()
        assert tiny_model.model(ids[:, :1], encoding=encoding).spans.shape == (1, 0, 2)


def test_scores_that_are_not_finite_reach_the_loss_in_training_alone(tiny_config, a_batch):
    """A training loop leaves such a step out; a prediction from such weights would mean nothing."""
    model = FastR2D2ForPreTraining(tiny_config)
    with torch.no_grad():
        model.model.parser.score.weight.fill_(float("nan"))
    assert model.train()(**a_batch).loss.isnan()
    with pytest.raises(ValueError, match="NaN in split_scores"):
        model.eval()(**a_batch)
    given = torch.full((5, 8), float("nan"))
    with pytest.raises(ValueError, match="NaN in split_scores"):
        model.train()(**a_batch, split_scores=given)


def test_a_parser_learns_given_trees(tiny_config):
    parser = FastR2D2ForConstituencyParsing(tiny_config)
    ids = torch.randint(10, 90, (4, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids).index_fill_(1, torch.tensor([5]), 0)
    labels = torch.tensor([[0, 4], [1, 4], [2, 4], [3, 4], [-1, -1]]).expand(4, -1, -1)
    optimizer = torch.optim.Adam(parser.parameters(), 0.02)
    for _ in range(40):
        loss = parser(ids, mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.1 and torch.equal(parser.eval()(ids, mask).spans, labels)
    assert parser(ids, mask).loss is None


@pytest.mark.parametrize("wrong", [[2, 4], [0, 0], [0, 5], [-1, 4]])
def test_labels_that_are_no_tree_are_refused(tiny_config, wrong):
    parser, ids = FastR2D2ForConstituencyParsing(tiny_config), torch.full((2, 5), 20)
    labels = torch.tensor([[0, 4], [1, 4], [2, 4], [3, 4]]).repeat(2, 1, 1)
    labels[1, 1] = torch.tensor(wrong)
    with pytest.raises(ValueError, match="row 1 of the batch has labels that are no spans around their split points"):
        parser(ids, labels=labels)
    with pytest.raises(ValueError, match=r"labels must be \(2, 4, 2\) long, got \(2, 4\) torch.int64"):
        parser(ids, labels=labels[..., 0])


def test_torchs_compiler_leaves_models_alone_at_once_and_says_what_to_compile(tiny_config, a_batch):
    """Charts differ from batch to batch, so it would compile for minutes."""
    tiny_config.num_labels = 2
    of_labels = {"labels": torch.tensor([0, 1, 0, 1, 1])}
    for model_class, more in (
        (FastR2D2Model, {"encoding": "chart"}), (FastR2D2ForPreTraining, {}), (FastR2D2ForConstituencyParsing, {}),
        (FastR2D2ForSequenceClassification, of_labels),
    ):  # fmt: skip
        model = model_class(tiny_config).eval()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        with pytest.warns(
            UserWarning, match=r"compile its encoder's .* model.base_model.composition.compile\(dynamic=True\)"
        ):
            output = torch.compile(model)(**a_batch, **more)
        expected = model(**a_batch, **more)
        assert all(torch.equal(output[name], expected[name]) for name in expected)
        assert torch._dynamo.utils.counters["stats"]["calls_captured"] == 0
        assert "input_ids" in inspect.signature(model.forward).parameters


@pytest.mark.slow
@torch.no_grad()
def test_a_compiled_composition_gives_the_same_in_any_number_of_compositions(tiny_config, a_batch):
    model = FastR2D2Model(tiny_config).eval()
    expected = model(**a_batch, encoding="chart")
    torch._dynamo.utils.counters.clear()
    model.composition.compile(dynamic=True)
    output = model(**a_batch, encoding="chart")
    assert torch.equal(output.spans, expected.spans)
    torch.testing.assert_close(output.last_hidden_state, expected.last_hidden_state, **ROUNDING)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
