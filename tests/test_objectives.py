"""Losses against enumeration of every tree in the chart, and samples against the exact expectation."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from walking import counts_of, follow  # noqa: E402

from modeling_fast_r2d2 import BinaryTree, FastR2D2Config, heads  # noqa: E402
from modeling_fast_r2d2.chart_planning import merge_ranks, plan_chart  # noqa: E402
from modeling_fast_r2d2.encoder import EncodedChart  # noqa: E402
from modeling_fast_r2d2.heads import LanguageModelHead, language_model_loss  # noqa: E402
from modeling_fast_r2d2.objectives import (  # noqa: E402
    expected_counts,
    range_logsumexp,
    sampled_counts,
    tree_label_loss,
    tree_loss,
)


def a_chart(lengths: list[int], window: int, seed: int):
    """A chart with random candidate probabilities, and random scores to compare it with."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    random = torch.randn(len(lengths), int(lengths.max()) - 1, generator=generator)
    chart = plan_chart(merge_ranks(random, lengths), lengths, window)
    logits = torch.randn(chart.splits.shape, generator=generator, dtype=torch.float64)
    logits = logits.masked_fill(chart.splits < 0, float("-inf"))
    scores = torch.randn(chart.num_tokens, generator=generator, dtype=torch.float64, requires_grad=True)
    return chart, EncodedChart(None, None, logits, None), scores


def all_trees(chart, probabilities, node):
    """Every tree below a node: (probability, [(row, candidate), ...])."""
    if node < chart.num_tokens:
        return [(1.0, [])]
    row, trees = node - chart.num_tokens, []
    for c, split in enumerate(chart.splits[row].tolist()):
        if split >= 0:
            for p, left in all_trees(chart, probabilities, int(chart.left[row, c])):
                for q, right in all_trees(chart, probabilities, int(chart.right[row, c])):
                    trees.append((p * q * float(probabilities[row, c]), [(row, c), *left, *right]))
    return trees


def parser_log_prob(chart, scores, tree):
    total = 0.0
    for row, candidate in tree:
        i, j = chart.spans[chart.num_tokens + row].tolist()
        total = total + scores[chart.splits[row, candidate]] - scores[i:j].logsumexp(0)
    return total


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=2), window=st.integers(1, 8), seed=st.integers(0, 99))
def test_expected_counts_exact_loss_and_gradient_are_those_of_all_trees(lengths, window, seed):
    chart, encoding, scores = a_chart(lengths, window, seed)
    probabilities = encoding.candidate_log_prob.softmax(-1)
    counts, loss = torch.zeros_like(probabilities), scores.sum() * 0
    for root, length in zip(chart.roots.tolist(), lengths, strict=True):
        for p, tree in all_trees(chart, probabilities, root):
            loss = loss - p * parser_log_prob(chart, scores, tree) / length / len(lengths)
            for row, candidate in tree:
                counts[row, candidate] += p
    torch.testing.assert_close(expected_counts(chart, encoding), counts)
    ours = tree_loss(chart, expected_counts(chart, encoding), scores)
    torch.testing.assert_close(ours, loss)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (ours, loss)]
    torch.testing.assert_close(*gradients)


def test_sampled_loss_and_gradient_converge_to_the_exact_ones():
    chart, encoding, scores = a_chart([9, 1, 6, 2], 3, seed=1)
    exact = tree_loss(chart, expected_counts(chart, encoding), scores)
    exact_gradient = torch.autograd.grad(exact, scores)[0]
    errors = []
    for samples in (16, 256, 4096):
        generator = torch.Generator().manual_seed(0)
        loss_error, gradient_error = [], []
        for _ in range(8):
            sampled = tree_loss(chart, sampled_counts(chart, encoding, samples, generator), scores)
            loss_error.append((sampled - exact).square())
            gradient_error.append((torch.autograd.grad(sampled, scores)[0] - exact_gradient).square().sum())
        errors.append([float(torch.stack(values).mean().detach().sqrt()) for values in (loss_error, gradient_error)])
    for few, many in zip(errors, errors[1:], strict=False):  # 16 times the samples, a quarter of the error
        assert all(0.1 < after / before < 0.5 for before, after in zip(few, many, strict=True))
    assert errors[-1][0] < 0.01 * float(exact.detach())


def test_counts_of_samples_are_distributed_as_those_of_trees():
    """Means and covariances of the counts, against trees walked one by one."""
    chart, encoding, _ = a_chart([5, 4], 4, seed=2)
    probabilities, generator = encoding.candidate_log_prob.softmax(-1), torch.Generator().manual_seed(0)
    draw = lambda cells: torch.multinomial(probabilities[cells], 1, generator=generator)[:, 0]  # noqa: E731
    walked = [counts_of(chart, trees) for trees in follow(chart, draw, 3 * 3000).split(3)]
    drawn = [sampled_counts(chart, encoding, 3, generator) for _ in range(3000)]
    walked, drawn = (3 * torch.stack(counts).flatten(1) for counts in (walked, drawn))
    assert drawn.frac().abs().max() < 1e-9
    torch.testing.assert_close(drawn.mean(0) / 3, expected_counts(chart, encoding).flatten(), atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.t().cov(), walked.t().cov(), atol=0.08, rtol=0)


def test_forbidden_candidates_are_not_sampled():
    chart, encoding, _ = a_chart([8], 3, seed=0)
    encoding.candidate_log_prob[chart.splits[:, 2] >= 0] = torch.tensor([float("-inf"), 0.0, float("-inf")]).double()
    counts = sampled_counts(chart, encoding, 7)
    assert counts[:, 2].sum() == 0 and counts.sum() == pytest.approx(7)  # splits of eight tokens


@given(values=st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_range_logsumexp_is_that_of_every_range(values):
    values = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    ranges = torch.combinations(torch.arange(len(values)), with_replacement=True)
    ours = range_logsumexp(values, *ranges.unbind(1))
    twin = torch.stack([values[first : last + 1].logsumexp(0) for first, last in ranges.tolist()])
    torch.testing.assert_close(ours, twin)
    gradients = [torch.autograd.grad(result.sin().sum(), values)[0] for result in (ours, twin)]
    torch.testing.assert_close(*gradients)


def test_tree_loss_of_words_of_one_or_two_tokens_is_zero():
    chart, encoding, scores = a_chart([1, 2, 1], 2, seed=0)
    assert tree_loss(chart, expected_counts(chart, encoding), scores).item() == pytest.approx(0)


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


@given(st.integers(0, 99), st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_given_trees_are_as_likely_as_their_splits(seed, lengths):
    torch.manual_seed(seed)
    lengths, width = torch.tensor(lengths), max(lengths)
    scores = torch.randn(len(lengths), width, dtype=torch.double, requires_grad=True)
    is_token = torch.arange(width) < lengths[:, None]
    labels, expected = torch.full((len(lengths), width, 2), -1), 0.0
    for row, length in enumerate(lengths.tolist()):
        for split, span in enumerate(BinaryTree.from_order(torch.rand(length - 1).tolist()).spans):
            if torch.rand(()) < 0.8:
                labels[row, split] = torch.tensor(span)
                log_prob = scores[row, split] - scores[row, span[0] : span[1]].logsumexp(0)
                expected = expected - log_prob / length / len(lengths)
    loss = tree_label_loss(scores[is_token], labels[is_token], lengths)
    assert loss.item() == pytest.approx(float(expected), abs=1e-9)
    if loss.requires_grad:
        loss.backward()
        assert scores.grad.isfinite().all()
