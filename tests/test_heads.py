"""Heads: classifiers of sentences and pairs, the losses that they add up, the language model against all logits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import set_seed
from without_chance import WITHOUT_CHANCE

from modeling_fast_r2d2 import (
    FastR2D2Config,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    heads,
    modeling_fast_r2d2,
)
from modeling_fast_r2d2.heads import LanguageModelHead, language_model_loss

WEIGHTS = ("forced", "chart", "lm", "tree")


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="torch has no fused loss")
@settings(max_examples=20)
@given(rows=st.integers(1, 30), seed=st.integers(0, 99), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_the_language_model_loss_in_parts_is_that_of_all_logits(rows, seed, dtype):
    torch.manual_seed(seed)
    head = LanguageModelHead(FastR2D2Config(vocab_size=50, hidden_size=12, num_attention_heads=1)).to(dtype)
    hidden, ids = torch.randn(rows, 12, dtype=dtype, requires_grad=True), torch.randint(50, (rows,))
    leaves, most = [hidden, *head.parameters()], heads.ROWS_AT_ONCE
    try:
        heads.ROWS_AT_ONCE = 7
        ours, twin = head.loss(hidden, ids), language_model_loss(head(hidden), ids)
        torch.testing.assert_close(ours, twin)
        for _ in range(2):  # a graph may be gone through twice
            gradients = [torch.autograd.grad(3 * loss, leaves, retain_graph=True) for loss in (ours, twin)]
            torch.testing.assert_close(*gradients)
    finally:
        heads.ROWS_AT_ONCE = most


def test_what_takes_the_language_models_last_layers_place_is_called():
    head = LanguageModelHead(FastR2D2Config(vocab_size=50, hidden_size=12, num_attention_heads=1))
    hidden, ids = torch.randn(3, 12), torch.tensor([4, 5, 6])
    before, calls = head.loss(hidden, ids), []
    head.decoder.register_forward_hook(lambda *given: calls.append(given))
    torch.testing.assert_close(head.loss(hidden, ids), before)
    assert len(calls) == 1


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


@pytest.mark.parametrize("chosen", [[w] for w in WEIGHTS[:2]] + [["forced", "tree"], ["chart", "lm"], list(WEIGHTS)])
@pytest.mark.parametrize("encoding", ["forced", "chart"])
def test_fine_tuning_sums_the_losses_that_have_weight(tiny_config, tiny_model, a_batch, chosen, encoding, monkeypatch):
    labels, weights = torch.tensor([0, 1, 0, 1, 1]), {"forced": 0.5, "chart": 2.0, "lm": 0.25, "tree": 3.0}
    settings = tiny_config.to_dict() | WITHOUT_CHANCE
    settings |= {f"{name}_loss_weight": weights[name] if name in chosen else 0.0 for name in WEIGHTS}
    model = FastR2D2ForSequenceClassification(FastR2D2Config(**settings))
    model.model.load_state_dict(tiny_model.model.state_dict())
    model.lm_head.load_state_dict(tiny_model.lm_head.state_dict())
    expected = {name: model.eval()(**a_batch, labels=labels, encoding=name).loss for name in ("forced", "chart")}
    pretraining = FastR2D2ForPreTraining(FastR2D2Config(**tiny_config.to_dict() | WITHOUT_CHANCE)).train()
    pretraining.load_state_dict(tiny_model.state_dict())
    both = pretraining(**a_batch)
    expected |= {"lm": both.lm_loss, "tree": both.tree_loss}
    composed, compose = [], model.model.encode_batch
    noting = lambda batch, kind, **more: composed.append(kind) or compose(batch, kind, **more)  # noqa: E731
    monkeypatch.setattr(model.model, "encode_batch", noting)
    output = model.train()(**a_batch, labels=labels, encoding=encoding)
    torch.testing.assert_close(output.loss, sum(weights[name] * expected[name] for name in chosen))
    for name in WEIGHTS:
        found = getattr(output, f"{name}_loss")
        assert (found is None) == (name not in chosen)
        if found is not None:
            torch.testing.assert_close(found, expected[name])
    assert sorted(composed) == sorted({"forced" if name == "forced" else "chart" for name in chosen})


def test_a_classifier_of_single_texts_warns_of_pairs(tiny_config, monkeypatch):
    said = []
    monkeypatch.setattr(modeling_fast_r2d2.logger, "warning_once", said.append)
    model, ids = FastR2D2ForSequenceClassification(tiny_config).eval(), torch.tensor([[20, 21, 22]])
    model(ids, token_type_ids=torch.zeros_like(ids))
    assert not said
    model(ids, token_type_ids=torch.tensor([[0, 0, 1]]))
    assert "FastR2D2ForPairClassification reads pairs" in said[0]


def test_vectors_cannot_train_a_language_model(tiny_config, a_batch):
    model, composed = FastR2D2ForSequenceClassification(tiny_config).train(), []
    model.model.composition.score.register_forward_hook(lambda *_: composed.append(1))
    vectors = model.get_input_embeddings()(a_batch["input_ids"])
    inputs = {"attention_mask": a_batch["attention_mask"], "split_scores": torch.zeros(5, 8)}
    with pytest.raises(ValueError, match="the language-model loss needs input_ids"):
        model(inputs_embeds=vectors, labels=torch.tensor([0, 1, 0, 1, 1]), **inputs)
    assert not composed


def test_a_classifier_needs_a_task_loss(tiny_config, a_batch):
    weights = {"forced_loss_weight": 0.0, "chart_loss_weight": 0.0}
    model = FastR2D2ForSequenceClassification(FastR2D2Config(**tiny_config.to_dict() | weights)).train()
    with pytest.raises(ValueError, match="a value above 0"):
        model(**a_batch, labels=torch.tensor([0, 1, 0, 1, 1]))
