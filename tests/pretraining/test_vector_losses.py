"""The losses that vectors learn from, against slow ones."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from pretraining.counts import CountVectors
from pretraining.losses import COMPARED_LENGTH, LOSSES, Guidance, MemoryLoss, Objective, whiten

FEATURES = 8
OF = {loss.name: loss for loss in LOSSES}


@pytest.fixture
def vectors(tiny_config):
    chance = torch.Generator().manual_seed(0)
    draw = (torch.randn(tiny_config.vocab_size, FEATURES, generator=chance),
            torch.rand(tiny_config.vocab_size, generator=chance), torch.randn(FEATURES, generator=chance))  # fmt: skip
    return CountVectors(*draw, torch.linalg.qr(torch.randn(FEATURES, 3, generator=chance))[0].T)


@pytest.fixture
def encode(tiny_model, vectors, a_batch):
    """From an encoding to the batch and the loss of a name."""
    config = type(tiny_model.config).from_dict(tiny_model.config.to_dict() | {"pooler": True})
    model = FastR2D2ForPreTraining(config).eval()
    model.load_state_dict(tiny_model.state_dict(), strict=False)
    guide = SimpleNamespace(count_vectors=vectors, given=tiny_model)
    objective = Objective(model, guide)

    def run(name, encoding="forced"):
        of = objective.encode(a_batch, Guidance(encoding=encoding))
        function = OF[name].of
        return of, (function(model, guide) if isinstance(function, type) else function)

    return run


def pooled_and_wanted(of, vectors, node):
    vector = (of.model.model.pooler.weight @ of.encoded.nodes[node])[:FEATURES]
    return vector, vectors.of_spans(of.batch.token_ids.long(), of.chart.spans[node : node + 1])[0]


@pytest.mark.parametrize("encoding", ["forced", "chart"])
@pytest.mark.parametrize("name", ["meaning", "topic"])
def test_vectors_are_compared_with_those_of_counts(encode, vectors, name, encoding):
    of, loss = encode(name, encoding)
    nodes = of.chart.roots.tolist() if name == "topic" else range(of.chart.num_tokens, of.chart.num_nodes)
    slow = [1 - F.cosine_similarity(*pooled_and_wanted(of, vectors, node), dim=0) for node in nodes]
    torch.testing.assert_close(loss(of), torch.stack(slow).mean())


def test_similarities_follow_those_of_counts(encode, vectors):
    of, loss = encode("similarity")
    spans = of.chart.spans.tolist()
    long = [n for n in range(of.chart.num_tokens, len(spans)) if spans[n][1] - spans[n][0] + 1 >= COMPARED_LENGTH]
    rows = [pooled_and_wanted(of, vectors, node) for node in (*of.chart.roots.tolist(), *long)]
    total = 0
    for i, (vector, wanted) in enumerate(rows):
        others = [row for j, row in enumerate(rows) if j != i]
        found = torch.stack([F.cosine_similarity(vector, other, dim=0) for other, _ in others]) / 0.1
        target = torch.stack([wanted @ other for _, other in others]) / 0.1
        total -= (target.softmax(0) * found.log_softmax(0)).sum()
    torch.testing.assert_close(loss(of), total / len(rows))


@pytest.mark.parametrize("encoding", ["forced", "chart"])
def test_what_the_given_model_knew_is_remembered_and_it_learns_nothing(encode, tiny_model, encoding):
    of, loss = encode("memory", encoding)
    inner = slice(of.chart.num_tokens, None)
    wanted = of.encoded.nodes[inner].detach()  # the model is still the given one
    torch.testing.assert_close(loss.known(of), wanted)
    slow = 1 - F.cosine_similarity(of.encoded.nodes[inner], whiten(wanted), dim=-1).mean()
    torch.testing.assert_close(loss(of), slow)
    loss(of).backward()
    assert all(parameter.grad is None for parameter in tiny_model.parameters())
    assert [name for name, _ in loss.named_parameters()] == ["map.weight", "map.bias"]


def test_whitened_rows_have_no_mean_and_features_that_differ_alike():
    mixed = torch.tensor([[9.0, 0, 0], [3, 1, 0], [0, 2, 5]])
    rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) @ mixed
    white = whiten(rows)
    torch.testing.assert_close(white.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cov(white.T), torch.eye(3), atol=0.02, rtol=0)


@pytest.mark.parametrize("name", ["meaning", "topic", "similarity", "memory"])
def test_every_loss_teaches_embeddings_and_composition(encode, name):
    of, loss = encode(name)
    loss(of).backward()
    taught = {name for name, parameter in of.model.named_parameters() if parameter.grad is not None}
    assert {"model.embeddings.weight", "model.composition.blend.weight"} <= taught
    assert ("model.pooler.weight" in taught) == (name != "memory")
    if name != "memory":  # what a model knew before it was made wider stands behind these features
        gradient = of.model.model.pooler.weight.grad
        assert gradient[:FEATURES].any() and not gradient[FEATURES:].any()


@pytest.mark.parametrize("name", ["meaning", "topic", "similarity", "memory"])
@pytest.mark.parametrize("rows", [[1], [1, 1]])
def test_sentences_of_one_token_have_finite_losses(tiny_model, vectors, a_batch, name, rows):
    guide, batch = SimpleNamespace(count_vectors=vectors, given=tiny_model), {k: v[rows] for k, v in a_batch.items()}
    of = Objective(tiny_model, guide).encode(batch, Guidance(encoding="forced"))
    function = OF[name].of
    loss = function(tiny_model, guide) if isinstance(function, type) else function
    value = loss(of)
    value.backward()
    assert value.isfinite()
    assert name != "memory" or all(weight.grad is not None for weight in loss.parameters())  # processes wait for it


def test_the_map_of_the_memory_begins_with_the_old_features(tiny_model):
    wide = SimpleNamespace(config=SimpleNamespace(hidden_size=tiny_model.config.hidden_size + 4))
    loss = MemoryLoss(wide, SimpleNamespace(given=tiny_model))
    nodes = torch.randn(3, wide.config.hidden_size)
    assert torch.equal(loss.map(nodes), nodes[:, :-4]) and isinstance(loss.map, nn.Linear)
