"""Rows written and read in one buffer, against the same by tensors that are only ever joined."""

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import FastR2D2Model
from modeling_fast_r2d2.node_rows import NodeRows, PlainNodeRows


class JoinedRows:
    """The twin, by plain autograd."""

    def __init__(self, first, num_nodes):
        self.written = first

    def write(self, rows, values):
        assert rows.start == len(self.written)
        self.written = torch.cat([self.written, values])

    def read(self, ids):
        return self.written[ids]

    def all(self):
        return self.written


def walk(kind, first, levels, weight):
    """Levels of drawn children, each node a function of two; what is read, written and left."""
    rows, seen = kind(first, len(first) + sum(map(len, levels))), []
    start = len(first)
    for ids in levels:
        left, right = rows.read(ids).unbind(1)
        values = (left * weight).tanh() + right * left
        rows.write(slice(start, start + len(ids)), values)
        seen.append(left.sum())
        start += len(ids)
    return rows.all(), torch.stack(seen)


@st.composite
def charts(draw):
    """How many rows come first, and the children of each further one."""
    first = draw(st.integers(1, 4))
    levels, total = [], first
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        ids = st.integers(0, total - 1)
        levels.append(torch.tensor(draw(st.lists(st.tuples(ids, ids), min_size=size, max_size=size))))
        total += size
    return first, levels


@pytest.mark.parametrize("kind", [NodeRows, PlainNodeRows])
@pytest.mark.parametrize("width", [(), (3,)])
@given(chart=charts(), seed=st.integers(0, 99), frozen=st.sampled_from(["nothing", "leaves", "weight"]))
def test_values_and_gradients_are_those_of_joined_tensors(kind, width, chart, seed, frozen):
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(chart[0], *width, generator=generator, dtype=torch.float64, requires_grad=frozen != "leaves")
    weight = torch.randn(width, generator=generator, dtype=torch.float64, requires_grad=frozen != "weight")
    leaves = [each for each in (first, weight) if each.requires_grad]
    ours, twins = (walk(kind, first, chart[1], weight) for kind in (kind, JoinedRows))
    torch.testing.assert_close(ours, twins)
    for part in (lambda rows, seen: rows.sin().sum(), lambda rows, seen: seen.sin().sum() + rows[0].sum()):
        for inputs in (leaves, leaves[-1:], leaves):  # again and again, of all or some
            gradients = [torch.autograd.grad(part(*each), inputs, retain_graph=True) for each in (ours, twins)]
            torch.testing.assert_close(*gradients)


def test_second_derivatives_are_refused_not_wrong():
    leaf = torch.randn(2, 3, requires_grad=True)
    rows, _ = walk(NodeRows, leaf, [torch.tensor([[0, 1]])], torch.ones(3))
    (gradient,) = torch.autograd.grad(rows.square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_half_precision_gradients_are_summed_in_float32():
    leaf = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    rows = NodeRows(leaf, 1)
    read = rows.read(torch.zeros(1000, dtype=torch.long))
    read.sum().backward()
    assert leaf.grad.item() == 1000  # in bfloat16 one by one it would stop at 256


def test_nothing_outlives_its_graph():
    """The buffer and the graph do not hold each other."""
    leaf = torch.ones(2, 3, requires_grad=True)
    rows = NodeRows(leaf, 3)
    rows.write(slice(2, 3), rows.read(torch.tensor([0])) + 1)
    everything, store = rows.all(), weakref.ref(rows._store)
    gc.disable()
    try:
        del rows, everything
        assert store() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("encoding", ["forced", "chart"])
@pytest.mark.parametrize("training", [False, True])
def test_functional_transforms_differentiate_an_encoding(tiny_config, encoding, training):
    """Levels of more compositions than are built apart, in training with dropout."""
    tiny_config.hidden_dropout_prob = 0.3 if training else 0.0
    model, weight = FastR2D2Model(tiny_config).train(training), "composition.blend.weight"
    batch = {"input_ids": torch.randint(20, 100, (8, 30)), "encoding": encoding}

    def loss(value):
        torch.manual_seed(0)
        output = torch.func.functional_call(model, {weight: value}, kwargs=batch)
        return output.pooler_output.square().sum()

    given = model.get_parameter(weight)
    found = torch.func.grad(loss)(given.detach())
    if training:  # the masks of dropout differ
        assert found.isfinite().all() and found.any()
    else:
        torch.testing.assert_close(found, *torch.autograd.grad(loss(given), given))
