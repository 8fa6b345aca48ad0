"""The models as transformers models: contract, batching, span constraints, gradients, memory, torch's compiler."""

import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import set_seed

from modeling_fast_r2d2 import (
    FastR2D2Config,
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
)
from modeling_fast_r2d2.configuration_fast_r2d2 import ENCODINGS

# The last bit of a product of few rows depends on where in memory its weights lie, and loaded ones lie elsewhere.
ROUNDING = {"rtol": 1e-6, "atol": 1e-6}
# Merge by merge, long sentences take seconds.
LONG_ENCODINGS = [pytest.param(name, marks=pytest.mark.slow) if name == "heuristic" else name for name in ENCODINGS]


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


@pytest.mark.parametrize("encoding", ["chart", "heuristic"])
def test_a_window_beyond_the_sentence_is_the_whole_chart(tiny_config, a_batch, encoding):
    """It takes no memory either: 10^9 candidates per cell would be terabytes."""
    found = []
    for window_size in (a_batch["input_ids"].shape[1] - 1, 10**9):
        set_seed(0)
        model = FastR2D2ForPreTraining(FastR2D2Config(**{**tiny_config.to_dict(), "window_size": window_size})).eval()
        found.append(model.model(**a_batch, encoding=encoding))
    torch.testing.assert_close(found[0].pooler_output, found[1].pooler_output)
    assert torch.equal(found[0].spans, found[1].spans)


@given(length=st.integers(2, 12), window=st.integers(1, 5), seed=st.integers(0, 99), data=st.data())
def test_trees_keep_spans_whole_on_request_also_one_within_another(tiny_config, length, window, seed, data):
    set_seed(seed)
    changes = {"window_size": window, "nested_spans": True}
    model = FastR2D2ForPreTraining(FastR2D2Config(**{**tiny_config.to_dict(), **changes}))
    cuts = sorted(data.draw(st.sets(st.integers(0, length), min_size=2, max_size=5)))
    spans = [[i, j - 1] for i, j in zip(cuts[::2], cuts[1::2], strict=False)]
    spans += [[spans[0][0], spans[0][1] - 1]] if spans[0][1] > spans[0][0] else []  # and one within another
    ids = torch.randint(20, 100, (1, length))
    for mode in (True, False):
        output = model.train(mode)(ids, atom_spans=torch.tensor([spans]))
        found = model.model(ids, atom_spans=torch.tensor([spans])).spans[0].tolist()
        assert all([i, j] in found for i, j in spans if i < j) and output.loss.isfinite()
    output.loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


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


@pytest.mark.parametrize("encoding", [*ENCODINGS, "minimum_risk"])
def test_torchs_default_device_does_not_matter(tiny_model, a_batch, encoding):
    # Padded on the left, and a sentence of no token.
    inputs = {name: torch.cat([tensor.flip(1), tensor[:1] * 0]) for name, tensor in a_batch.items()}
    expected = tiny_model.model(**inputs, encoding=encoding)
    with torch.device("meta"):  # what is made there has no values
        output = tiny_model.model(**inputs, encoding=encoding)
    for name, value in expected.items():
        torch.testing.assert_close(output[name], value, **ROUNDING)


def test_what_stands_in_padding_does_not_matter(tiny_model, a_batch):
    ids = a_batch["input_ids"].masked_fill(a_batch["attention_mask"] == 0, -100)
    out = tiny_model(ids, a_batch["attention_mask"])
    assert torch.equal(out.loss, tiny_model(**a_batch).loss)


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


def test_sampled_tree_objective_trains(tiny_config, a_batch):
    config = FastR2D2Config(**{**tiny_config.to_dict(), "tree_objective": "sampled", "num_tree_samples": 8})
    model = FastR2D2ForPreTraining(config).train()
    model(**a_batch).tree_loss.backward()
    assert model.model.parser.score.weight.grad.abs().sum() > 0
    assert model.model.embeddings.weight.grad is None  # the encoder is the teacher


@pytest.mark.parametrize("encoding", LONG_ENCODINGS)
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


@pytest.mark.parametrize("encoding", LONG_ENCODINGS)
def test_five_thousand_tokens_and_one_token_are_encoded(tiny_model, encoding):
    length = 500 if encoding == "heuristic" else 5000  # the heuristic is sequential by nature
    ids = torch.randint(20, 100, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert tiny_model.model(ids, encoding=encoding).pooler_output.isfinite().all()
        assert tiny_model.model(ids[:, :1], encoding=encoding).spans.shape == (1, 0, 2)


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
        remedy = r"compile its encoder's .* model.base_model.composition.compile\(dynamic=True\)"
        with pytest.warns(UserWarning, match=remedy):
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
