"""Every op against its reference, on a GPU or, with ``TRITON_INTERPRET=1``, in Triton's interpreter.

Which of both is settled when kernels are decorated; so this file runs in a process of its own, which
`test_interpreter.py` and `test_gpu.py` start.
"""

import importlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fast_r2d2_kernels as kernels
from comparison import DEVICE, DTYPES, OF_A_LAYER, assert_close, draw
from fast_r2d2_kernels.attention import composition_attention_reference
from fast_r2d2_kernels.bias_gelu import bias_gelu_reference
from fast_r2d2_kernels.blend_norm import blend_norm_reference
from fast_r2d2_kernels.choice import choose_reference
from fast_r2d2_kernels.composition_layer import LayerOptions, _Layer, composition_layer_reference
from fast_r2d2_kernels.gather import add_to_rows_reference, gather_children_reference
from fast_r2d2_kernels.residual_norm import residual_norm_reference
from modeling_fast_r2d2 import FastR2D2Config
from modeling_fast_r2d2.composition import CompositionLayer

torch.set_num_threads(1)
pytestmark = pytest.mark.usefixtures("new_memory_is_poisoned")
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
each_dropout = pytest.mark.parametrize("dropout_p", [0.0, 0.3])
INF = float("inf")
ATTENTION = kernels.composition_attention, composition_attention_reference
MANY = [100_000] if DEVICE == "cuda" else []  # the interpreter would take more than an hour
SHAPES = [(2, 17, 24), (3, 40), (0, 24), (2, 0, 40), *((count, 24) for count in MANY)]


def with_options(function, *options, **keywords):
    """``function`` of its tensors alone."""
    return lambda *tensors: function(*tensors, *options, **keywords)


def test_there_is_something_to_run_the_kernels_on():
    assert kernels.is_available()


@each_dtype
@each_dropout
@pytest.mark.parametrize(("tasks", "count", "heads", "head_size"), [
    (2, 17, 2, 12), (1, 3, 5, 8), (0, 1, 3, 32), (2, 0, 2, 12), (1, 70, 1, 24), (2, 2, 1, 128), (1, 33, 2, 64),
    *((2, count, 2, 12) for count in MANY),
])  # fmt: skip
def test_attention(tasks, count, heads, head_size, dropout_p, dtype):
    tensors = draw(tasks + 2, count, 3 * heads * head_size), draw(tasks + 2, 3 * heads * head_size, seed=1)
    op, reference = (with_options(function, heads, dropout_p, 7) for function in ATTENTION)
    assert_close(op, reference, tensors, dtype)


def test_attention_weighs_large_scores_without_overflow():
    op, reference = (with_options(function, 2) for function in ATTENTION)
    assert_close(op, reference, (100 * draw(3, 5, 72), draw(3, 72)), torch.float32)


def layer_tensors(tasks: int, count: int, size: int) -> list[torch.Tensor]:
    """A layer's input, its role bias and its weights, which keep the size of what they multiply."""
    weights = [(3 * size, size), (size, size), (size,), (2 * size, size), (2 * size,), (size, 2 * size), (size,)]
    drawn = [draw(*shape, seed=number) / shape[-1] ** 0.5 for number, shape in enumerate(weights)]
    return [draw(tasks + 2, count, size), draw(tasks + 2, 3 * size, seed=9), *drawn]


@each_dtype
@each_dropout
@pytest.mark.parametrize(("tasks", "count", "heads", "head_size"), [(2, 5, 2, 12), (1, 3, 1, 8), (2, 0, 2, 12)])
def test_a_layer_as_one_node(tasks, count, heads, head_size, dropout_p, dtype):
    options = LayerOptions(heads, 1e-5, dropout_p, dropout_p, 12)
    assert_close(
        lambda hidden, role_bias, *weights: _Layer.apply(hidden, role_bias, None, options, *weights),
        lambda hidden, role_bias, *weights: composition_layer_reference(hidden, role_bias, None, options, *weights),
        layer_tensors(tasks, count, heads * head_size),
        dtype,
        OF_A_LAYER,
    )


def test_a_layer_whose_input_is_projected_already():
    hidden, role_bias, query_key_value, *others = layer_tensors(1, 5, 24)
    options = LayerOptions(2, 1e-5, 0.3, 0.3, 12)
    op, reference = (
        lambda hidden, role_bias, projected, *others, f=f: f(hidden, role_bias, projected, options, not_read, *others)
        for f in (_Layer.apply, composition_layer_reference)
    )
    not_read = torch.full_like(query_key_value, torch.nan)
    assert_close(op, reference, [hidden, role_bias, draw(3, 5, 72, seed=8), *others], torch.float32)


def test_frozen_weights_of_a_layer_get_no_gradient_and_the_others_get_theirs():
    tensors = [x.float().to(DEVICE).requires_grad_() for x in layer_tensors(1, 3, 8)]
    options = LayerOptions(1, 1e-5, 0.0, 0.0, 0)
    wanted = torch.autograd.grad(_Layer.apply(*tensors[:2], None, options, *tensors[2:]).square().sum(), tensors)
    for frozen in range(len(tensors)):
        tensors[frozen].requires_grad_(False)
        others = [x for x in tensors if x.requires_grad]
        loss = _Layer.apply(*tensors[:2], None, options, *tensors[2:]).square().sum()
        expected = [gradient for number, gradient in enumerate(wanted) if number != frozen]
        torch.testing.assert_close(list(torch.autograd.grad(loss, others)), expected)
        tensors[frozen].requires_grad_()


@each_dtype
@each_dropout
@pytest.mark.parametrize("shape", [*SHAPES, (1, 96)], ids=str)
def test_residual_norm(shape, dropout_p, dtype):
    tensors = draw(*shape), draw(shape[-1]), draw(*shape, seed=1)
    op, reference = (with_options(f, 1e-5, dropout_p, 3) for f in (kernels.residual_norm, residual_norm_reference))
    assert_close(op, reference, tensors, dtype)


@each_dtype
@each_dropout
@pytest.mark.parametrize("shape", [*SHAPES, (1, 1500)], ids=str)
def test_bias_gelu(shape, dropout_p, dtype):
    tensors, options = (3 * draw(*shape), draw(shape[-1])), (dropout_p, 5)
    assert_close(with_options(kernels.bias_gelu, *options), with_options(bias_gelu_reference, *options), tensors, dtype)


@each_dtype
@pytest.mark.parametrize(("tasks", "nodes", "count", "size"), [
    (2, 5, 17, 24), (1, 5, 3, 40), (0, 5, 1, 96), (2, 5, 0, 24), (2, 1, 7, 24), *((2, n, n, 24) for n in MANY),
])  # fmt: skip
def test_gather_children(tasks, nodes, count, size, dtype):
    """With five nodes, some are the children of many compositions and some of none; one may be all children."""
    left, right = torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(0))
    tensors = draw(nodes, size), draw(tasks, size, seed=1), left, right
    assert_close(kernels.gather_children, gather_children_reference, tensors, dtype)


@each_dtype
@pytest.mark.parametrize(("count", "size"), [(17, 24), (3, 1), (1, 96), (0, 24)])
def test_values_are_added_to_rows_in_their_order(count, size, dtype):
    """Exactly what one addition after the other gives, in float32."""
    ids = torch.randint(5, (count,), generator=torch.Generator().manual_seed(0))
    row, order = ids.sort(stable=True)
    values, rows = draw(count, size).to(dtype), draw(6, size, seed=1).float()
    expected = rows.clone().index_add_(0, ids, values.float())
    assert add_to_rows_reference(rows.clone(), values, row, order).equal(expected)
    given = (x.to(DEVICE) for x in (values, row, order))
    assert kernels.add_to_rows(rows.to(DEVICE), *given).cpu().equal(expected)


@each_dtype
@pytest.mark.parametrize(("count", "size"), [(17, 24), (3, 40), (1, 96), (0, 24), *((count, 24) for count in MANY)])
def test_blend_norm(count, size, dtype):
    tensors = draw(count, 2), draw(count, size), draw(count, size, seed=1)
    assert_close(with_options(kernels.blend_norm, 1e-5), with_options(blend_norm_reference, 1e-5), tensors, dtype)


@each_dtype
@pytest.mark.parametrize("scale", [0, 2])
@pytest.mark.parametrize(("cells", "count", "size"), [
    (17, 4, 24), (3, 5, 40), (1, 1, 96), (0, 4, 24), (5, 17, 8), *((cells, 4, 24) for cells in MANY),
])  # fmt: skip
def test_choice(cells, count, size, scale, dtype):
    noise = (scale * draw(cells, count, seed=1)).to(dtype) if scale else None
    assert_close(*choices(noise), (draw(cells, count, size), draw(cells, count)), dtype)


def choices(noise: torch.Tensor | None) -> list:
    """The op and its reference under some noise, functions of vectors and candidates."""
    moved = (lambda c: None) if noise is None else noise.to
    return [lambda v, c, f=f: f(v, c, moved(c)) for f in (kernels.choose, choose_reference)]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(-3, 0), st.sampled_from([0.0, -INF])), min_size=1, max_size=6))
def test_a_forbidden_candidate_is_never_chosen_and_the_first_of_equal_ones_is(drawn):
    drawn[0] = (drawn[0][0], 0.0)
    candidates, noise = torch.tensor(drawn, dtype=torch.float32, device=DEVICE).t()[:, None]
    vectors = draw(1, len(drawn), 8).float().to(DEVICE)
    vector, log_prob, chosen = kernels.choose(vectors, candidates, noise)
    best = max(range(len(drawn)), key=lambda number: (sum(drawn[number]), -number))
    assert (chosen.item(), log_prob.item()) == (best, drawn[best][0])
    assert vector.equal(vectors[:, best])


def test_impossible_candidates_have_no_gradient_and_no_nan():
    candidates = torch.tensor([[-INF, -1.0, -2.0, -INF]], dtype=torch.float64)
    noise = torch.tensor([[0.0, -INF, 0.0, 0.0]])
    assert_close(*choices(noise), (draw(1, 4, 8), candidates), torch.float32)


DROPPING = {
    "attention": lambda x, p, seed: kernels.composition_attention(x.repeat(1, 1, 3), x.new_zeros(3, 192), 8, p, seed),
    "residual_norm": lambda x, p, seed: kernels.residual_norm(x, x.new_zeros(64), torch.zeros_like(x), 1e-5, p, seed),
    "bias_gelu": lambda x, p, seed: kernels.bias_gelu(x, x.new_zeros(64), p, seed),
}


@pytest.mark.parametrize("name", DROPPING)
def test_a_seed_drops_the_same_values_and_another_seed_others(name):
    x = draw(3, 8, 64).abs().float().to(DEVICE)
    once, again, other = (DROPPING[name](x, 0.4, seed) for seed in (2**40, 2**40, 2**41))
    assert once.equal(again)
    assert not once.equal(other)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_drops_the_given_share_and_keeps_the_expectation(p):
    """Within five standard deviations of what independent draws give."""
    x = torch.ones(12, 3200, device=DEVICE)
    dropped = kernels.bias_gelu(x, x.new_zeros(3200), p, seed=11)
    full = kernels.bias_gelu(x, x.new_zeros(3200))
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert abs((dropped == 0).double().mean().item() - p) < 5 * deviation
    assert abs((dropped / full).double().mean().item() - 1) < 5 * deviation / (1 - p)
    pairs = (dropped[..., 1:] == 0) & (dropped[..., :-1] == 0)  # neighbours are independent
    assert abs(pairs.double().mean().item() - p * p) < 10 * deviation


@pytest.mark.parametrize("module", ["residual_norm", "bias_gelu"])
def test_programs_of_several_rows_sum_the_gradient_of_the_bias(module, monkeypatch):
    monkeypatch.setattr(importlib.import_module(f"fast_r2d2_kernels.{module}"), "rows_per_program", lambda rows: 4)
    globals()[f"test_{module}"]((2, 17, 24), 0.3, torch.float32)


def test_dropout_of_everything_is_refused():
    x = torch.zeros(1, 8, device=DEVICE)
    with pytest.raises(ValueError, match="less than 1"):
        kernels.bias_gelu(x, x[0], 1.0)


def test_where_torch_compiles_the_definition_runs():
    """Torch cannot trace the interpreter, so a kernel would be an error."""
    x, bias = (draw(*shape).float().to(DEVICE).requires_grad_() for shape in ((5, 24), (24,)))
    expected = bias_gelu_reference(x, bias, 0.1, 3)
    compiled = torch.compile(kernels.bias_gelu, fullgraph=True, backend="eager")(x, bias, 0.1, 3)
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), (x, bias)) for y in (compiled, expected)))


@pytest.mark.parametrize("is_training", [False, True])
def test_a_layer_takes_a_projection_that_is_not_packed(is_training):
    options = dict(vocab_size=40, hidden_size=8, num_attention_heads=2, intermediate_size=16)
    layer = CompositionLayer(FastR2D2Config(**options)).eval().to(DEVICE)
    hidden, role_bias, projected = (draw(*shape).float().to(DEVICE) for shape in ((3, 5, 8), (24, 3), (5, 3, 24)))
    role_bias, projected = role_bias.t(), projected.transpose(0, 1)
    packed = role_bias.contiguous(), projected.contiguous()
    with torch.set_grad_enabled(is_training):
        run = kernels.layers.composition_layer
        torch.testing.assert_close(run(layer, hidden, role_bias, projected), run(layer, hidden, *packed))


def test_rows_may_be_columns_of_one_tensor():
    row, order = torch.tensor([[0, 2], [1, 0], [1, 1]], device=DEVICE).unbind(1)
    rows, values = (draw(*shape).float().to(DEVICE) for shape in ((4, 8), (3, 8)))
    expected = add_to_rows_reference(rows.clone(), values, row, order)
    torch.testing.assert_close(kernels.add_to_rows(rows, values, row, order), expected)


UNFIT = [
    (kernels.residual_norm, [(3, 8), (4,), (3, 8)], (1e-5,)),
    (kernels.residual_norm, [(3, 8), (1, 8), (3, 8)], (1e-5,)),
    (kernels.bias_gelu, [(3, 8), (1,)], ()),
    (kernels.blend_norm, [(1, 2), (3, 8), (3, 8)], (1e-5,)),
    (kernels.composition_attention, [(4, 5, 24), (1, 24)], (2,)),
]


@pytest.mark.parametrize(("op", "shapes", "options"), UNFIT)
def test_shapes_that_do_not_fit_are_refused(op, shapes, options):
    with pytest.raises(ValueError, match="shapes do not fit"):
        op(*(draw(*shape).float().to(DEVICE) for shape in shapes), *options)
