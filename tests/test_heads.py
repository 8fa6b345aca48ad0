"""The language model's head against all logits at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_fast_r2d2 import FastR2D2Config, heads
from modeling_fast_r2d2.heads import LanguageModelHead, language_model_loss


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
