"""The parser: its LSTM against a packed one, how likely it makes trees against sums over single spans."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from modeling_fast_r2d2 import BinaryTree, FastR2D2Config, FastR2D2ForConstituencyParsing
from modeling_fast_r2d2.parser import LSTMBackbone, range_logsumexp, tree_label_loss


@given(values=st.lists(st.floats(-50, 50), min_size=1, max_size=40))
def test_range_logsumexp_is_that_of_every_range(values):
    values = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    ranges = torch.combinations(torch.arange(len(values)), with_replacement=True)
    ours = range_logsumexp(values, *ranges.unbind(1))
    twin = torch.stack([values[first : last + 1].logsumexp(0) for first, last in ranges.tolist()])
    torch.testing.assert_close(ours, twin)
    gradients = [torch.autograd.grad(result.sin().sum(), values)[0] for result in (ours, twin)]
    torch.testing.assert_close(*gradients)


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
