"""The composition function on its own."""

import pytest
import torch

from modeling_fast_r2d2.children_apart import Children, FromVectors, task_output
from modeling_fast_r2d2.composition import Composition


@torch.no_grad()
def test_in_bfloat16_compositions_apart_and_in_any_number_are_the_same_to_the_bit(tiny_config):
    """Both ways are taken in a chart, by the size of a level, which depends on the batch."""
    composition = Composition(tiny_config).eval().bfloat16()
    vectors, tasks = (torch.randn(2, *shape, tiny_config.hidden_size).bfloat16() for shape in ((37,), ()))
    shared, stack = composition.prepare(tasks), composition.stack
    parents, log_probs = composition(shared, vectors)
    children = Children(stack.layers, shared.role_biases, FromVectors(vectors, stack.layers[0].query_key_value.weight))
    scored, summed = (task_output(stack, shared, children, task) for task in (0, 1))
    assert torch.equal(composition.log_prob(scored), log_probs)
    assert torch.equal(composition.parent(summed, *children.output()), parents)
    some_parents, some_log_probs = composition(shared, vectors[:, -3:])
    assert torch.equal(some_parents, parents[-3:]) and torch.equal(some_log_probs, log_probs[-3:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_autocast", [False, True])
@torch.no_grad()
def test_scores_of_vectors_in_half_precision_are_float32(tiny_config, dtype, is_autocast):
    """Half precision would round many to the same number, and the first of these would be chosen."""
    composition = Composition(tiny_config).eval().to(torch.float32 if is_autocast else dtype)
    like = composition.score.weight
    vectors, tasks = torch.randn(2, 50, tiny_config.hidden_size).to(like), torch.randn(2, tiny_config.hidden_size)
    with torch.autocast("cpu", dtype, enabled=is_autocast):
        shared = composition.prepare(tasks.to(like))
        scored, log_prob = composition.stack(shared, vectors)[0], composition(shared, vectors)[1]
    logit = torch.nn.functional.linear(scored.double(), like.double(), composition.score.bias.double())[:, 0]
    torch.testing.assert_close(log_prob.double(), torch.nn.functional.logsigmoid(logit), atol=1e-6, rtol=0)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_constants_are_what_every_composition_would_compute(tiny_config, activation):
    """Task tokens projected once and roles as biases, against roles added to the inputs of a stock attention."""
    tiny_config.hidden_act = activation
    composition = Composition(tiny_config).eval().double()
    stack, size = composition.stack, tiny_config.hidden_size
    tasks, left, right = torch.randn(2, size).double(), *torch.randn(2, 7, size).double()
    hidden = torch.stack([tasks[0].expand(7, -1), tasks[1].expand(7, -1), left, right], dim=1)
    sees = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]], dtype=torch.bool)
    for layer in stack.layers:
        with_roles = hidden + layer.role_embeddings.weight[[0, 0, 1, 2]]
        weights = zip(layer.query_key_value.weight.split(size), layer.query_key_value.bias.split(size), strict=True)
        parts = [source @ w.T + b for source, (w, b) in zip((with_roles, with_roles, hidden), weights, strict=True)]
        query, key, value = (part.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2) for part in parts)
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=sees)
        hidden = layer._norm(hidden + layer.attention_output(attended.transpose(1, 2).flatten(-2)))
        hidden = layer._norm(hidden + layer.output(layer.activation(layer.intermediate(hidden))))
    torch.testing.assert_close(stack(stack.prepare(tasks), torch.stack([left, right])), hidden.transpose(0, 1))


def test_a_hook_of_the_activation_and_another_activation_have_a_part(tiny_config):
    layer = Composition(tiny_config).eval().stack.layers[0]
    hidden = torch.randn(3, tiny_config.hidden_size)
    handle = layer.activation.register_forward_hook(lambda module, given, output: output * 0)
    attended = torch.zeros_like(hidden)
    layer.attention_output.bias.data.zero_()
    expected = layer._norm(layer._norm(hidden) + layer.output.bias)
    torch.testing.assert_close(layer.finish(attended, hidden), expected)
    handle.remove()
    assert not torch.allclose(layer.finish(attended, hidden), expected)
    layer.activation = torch.nn.Threshold(1e6, 0.0)
    torch.testing.assert_close(layer.finish(attended, hidden), expected)


@pytest.mark.parametrize("name", ["attention_output", "output", "dropout"])
def test_what_a_hook_has_seen_stays_as_it_was(tiny_config, name):
    """Residuals are added in place, and what a layer gave may be kept by its hooks."""
    composition, seen = Composition(tiny_config).eval(), []
    inputs = torch.randn(2, 5, tiny_config.hidden_size), torch.randn(2, tiny_config.hidden_size)
    expected = composition(composition.prepare(inputs[1]), inputs[0])
    hooked = getattr(composition.stack.layers[0], name)
    hooked.register_forward_hook(lambda module, given, output: seen.append((output, output.detach().clone())))
    hooked.register_full_backward_hook(lambda module, to_inputs, to_outputs: seen.append(to_outputs * 2))
    found = composition(composition.prepare(inputs[1]), inputs[0])
    torch.testing.assert_close(found, expected)
    found[0].sum().backward()
    assert len(seen) > 1 and all(torch.equal(*pair) for pair in seen)
