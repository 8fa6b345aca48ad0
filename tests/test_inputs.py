"""What a model, a parser and a classifier refuse before any work."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import (
    FastR2D2Config,
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
)
from modeling_fast_r2d2.configuration_fast_r2d2 import ENCODINGS

IDS = torch.tensor([[30, 31, 32], [33, 34, 35]])
NAN = float("nan")
LISTS = {name: [[1, 2, 3], [1, 2, 3]] for name in ("input_ids", "attention_mask", "atom_spans", "split_scores")}
OF_PARSER = {"input_ids", "attention_mask", "atom_spans", "split_scores", "split_bonus", "split_signs"}
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)
TYPES = st.sampled_from([torch.int64, torch.int32, torch.bool, torch.float32, torch.float16, torch.complex64])
VALUES = st.integers(-2, 120)


def with_labels(config: FastR2D2Config, num_labels: int, problem_type: str | None = None) -> FastR2D2Config:
    labels = {"id2label": None, "label2id": None, "num_labels": num_labels, "problem_type": problem_type}
    return FastR2D2Config(**config.to_dict() | labels)


BAD_INPUTS = [
    ("row 1 .* no token",
     dict(input_ids=None, inputs_embeds=torch.zeros(2, 3, 16), attention_mask=torch.tensor([[1, 1, 1], [0, 0, 0]]))),
    ("row 1 .* padding between its tokens; pad on one side", dict(attention_mask=torch.tensor([[1, 1, 1], [1, 0, 1]]))),
    ("row 0 .* padding between", dict(input_ids=torch.tensor([[0, 5, 0, 5], [0, 5, 5, 0]]))),
    (r"row 0 .* outside the vocabulary; use ids in 0 \.\.\. 99", dict(input_ids=IDS + torch.tensor([[70], [0]]))),
    ("row 1 .* outside the vocabulary", dict(input_ids=torch.tensor([[1, 5, 2], [1, -1, 3]]))),
    (r"input_ids must be \(batch, seq_len\)", dict(input_ids=torch.tensor([1, 2, 3]))),
    (r"attention_mask must be \(2, 3\) of 0 and 1, got \(2, 4\)", dict(attention_mask=torch.ones(2, 4))),
    ("row 1 .* outside the sentence", dict(atom_spans=torch.tensor([[[0, 1]], [[1, 3]]]))),
    ("row 0 .* outside the sentence", dict(atom_spans=torch.tensor([[[-1, 1]], [[1, 2]]]))),
    ("row 1 .* reversed span", dict(atom_spans=torch.tensor([[[0, 1]], [[2, 1]]]))),
    (r"atom_spans must be \(2, max_spans, 2\) long, got \(2, 2\)", dict(atom_spans=torch.tensor([[0, 1], [1, 2]]))),
    (r"atom_spans must be .* long, got \(2, 1, 2\) torch.float32", dict(atom_spans=torch.ones(2, 1, 2))),
    (r"split_scores must be \(2, 2\)", dict(split_scores=torch.zeros(2, 3))),
    ("split_scores must be .* floating point, got .* torch.int64", dict(split_scores=torch.zeros(2, 2).long())),
    ("row 1 .* NaN in split_scores", dict(split_scores=torch.tensor([[0.0, 1.0], [float("nan"), 0.0]]))),
    ("encoding must be one of forced, chart, heuristic, minimum_risk, got 'cky'", dict(encoding="cky")),
    ("either input_ids or inputs_embeds", dict(inputs_embeds=torch.zeros(2, 3, 16))),
    ("inputs_embeds must end in 16", dict(input_ids=None, inputs_embeds=torch.zeros(2, 3, 8))),
    ("give split_scores with inputs_embeds", dict(input_ids=None, inputs_embeds=torch.zeros(2, 3, 16))),
    (r"inputs_embeds must be a floating-point tensor, got \(2, 3\) torch.int64",
     dict(input_ids=None, inputs_embeds=IDS, split_scores=torch.zeros(2, 2))),
    *(("row 1 of the batch has an attention_mask of other values than 0 and 1",
       dict(attention_mask=torch.tensor([[1, 1, 1], [1, value, 1]]))) for value in (2, -1, 0.5, NAN)),
    *((f"{name} must be .* got list", {name: listed}) for name, listed in LISTS.items()),
    *((f"input_ids must be a tensor of int64 or int32, got .* {dtype}", dict(input_ids=IDS.to(dtype)))
      for dtype in (torch.int16, torch.uint8, torch.bool, torch.float16, torch.float32, torch.complex64)),
    *((r"split_bonus must be \(2, 2\) floating point, got ", dict(split_bonus=bonus))
      for bonus in ([[1.0, 2.0]] * 2, torch.zeros(2, 3), torch.zeros(2, 2).long())),
    *((r"split_signs must be \(2, 2\) of 1, -1 and 0, got ", dict(split_signs=signs))
      for signs in ([[1, 0]] * 2, torch.zeros(2, 3, dtype=torch.int8), torch.zeros(2, 2))),
]  # fmt: skip


@pytest.mark.parametrize(("message", "inputs"), BAD_INPUTS, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_input_is_refused_with_row_and_remedy(tiny_model, message, inputs):
    """By the encoder, and by the parser alone where it takes the input."""
    for run in [tiny_model.model, tiny_model.parse] if inputs.keys() <= OF_PARSER else [tiny_model.model]:
        with pytest.raises(ValueError, match=message):
            run(**{"input_ids": IDS} | inputs)


BAD_PAIRS = [
    (r"input_ids must be \(batch, 2, ...\).* got \(2, 3\)", {}),
    (r"must be \(batch, seq_len\), got \(2, 3\) and \(1, 3\)", dict(token_type_ids=torch.tensor([[0, 0, 1]]))),
    ("without atom_spans", dict(token_type_ids=IDS % 2, atom_spans=torch.tensor([[[0, 1]], [[0, 1]]]))),
    ("row 1 .* token_type_ids other than 0 and 1", dict(token_type_ids=torch.tensor([[0, 1, 1], [0, 2, 1]]))),
    (r"must have at least one pair, got \(0, 3\)", dict(input_ids=IDS[:0], token_type_ids=IDS[:0])),
    *((f"{name} must be .* got list", {"input_ids": IDS[None]} | {name: listed}) for name, listed in LISTS.items()),
]


@pytest.mark.parametrize(("message", "inputs"), BAD_PAIRS)
def test_what_is_no_batch_of_pairs_is_refused(tiny_config, message, inputs):
    with pytest.raises(ValueError, match=message):
        FastR2D2ForPairClassification(tiny_config).eval()(**{"input_ids": IDS} | inputs)


@pytest.mark.parametrize("training", [True, False])
def test_ids_may_be_int32(tiny_model, training):
    tiny_model.train(training)
    losses = []
    for dtype in (torch.int64, torch.int32):
        torch.manual_seed(0)
        losses.append(tiny_model(IDS.to(dtype)).loss)
    assert torch.equal(*losses)


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_vectors_that_are_not_finite_are_refused_by_row_unless_they_are_padding(tiny_model, value):
    vectors, scores = torch.zeros(2, 3, 16), torch.zeros(2, 2)
    vectors[1, 2, 5] = value
    with pytest.raises(ValueError, match="row 1 of the batch has NaN or infinity in inputs_embeds"):
        tiny_model.model(inputs_embeds=vectors, split_scores=scores)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert tiny_model.model(None, mask, inputs_embeds=vectors, split_scores=scores).pooler_output.isfinite().all()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")])
def test_encoder_weights_that_are_not_finite_are_refused_by_name(tiny_model, encoding, value):
    """Also where they leave the vectors finite, as an infinite bias of the blend does."""
    names = [name for name, _ in tiny_model.model.named_parameters() if not name.startswith("parser.")]
    assert len(names) > 16
    for name in names:
        last = tiny_model.model.get_parameter(name).data[:31].view(-1)[-1]  # of the embeddings, token 30's
        before = last.clone()
        last.fill_(value)
        with pytest.raises(ValueError, match=f"NaN or infinity in the weight {name} "):
            tiny_model(IDS, encoding=encoding) if encoding != "forced" else tiny_model.model(IDS)
        last.copy_(before)


def test_a_weight_that_spoils_the_vectors_later_is_named(tiny_model):
    assert tiny_model.model(IDS).pooler_output.isfinite().all()
    with torch.no_grad():
        tiny_model.model.embeddings.weight[35, 0] = NAN
    with pytest.raises(ValueError, match="NaN or infinity in the weight embeddings.weight "):
        tiny_model.model(IDS)
    assert tiny_model.train()(IDS).loss.isnan()  # a training loop looks for it there


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_vectors_too_large_for_half_precision_are_refused_by_row(tiny_model, encoding):
    model = tiny_model.model
    with torch.no_grad():
        model.embeddings.weight[34] = 60_000 * model.embeddings.weight[34].sign()
    assert model(IDS, encoding=encoding).pooler_output.isfinite().all()
    message = r"row 1 of the batch has NaN or infinity in its vectors \(torch.float16\); all weights are finite"
    with pytest.raises(ValueError, match=message):
        model.half()(IDS, encoding=encoding)
    with pytest.raises(ValueError, match="row 1 of the batch has NaN or infinity"), torch.autocast("cpu", torch.half):
        model.float()(IDS, encoding=encoding)


def test_a_row_without_a_token_is_one_unknown_token_in_every_model(tiny_config, tiny_model):
    ids, mask = torch.tensor([[30, 31], [0, 0]]), torch.tensor([[1, 1], [0, 0]])
    unknown = torch.tensor([[30, 31], [1, 0]])
    nothing = torch.tensor([[]])  # floating point
    classifier = FastR2D2ForSequenceClassification(tiny_config).eval()
    pairs = FastR2D2ForPairClassification(tiny_config).eval()
    for run in (
        lambda *inputs: tiny_model.model(*inputs).pooler_output,
        lambda *inputs: tiny_model(*inputs).loss,
        lambda *inputs: tiny_model.parse(*inputs).spans,
        lambda *inputs: classifier(*inputs).logits,
        lambda ids, *rest: pairs(ids, *rest, token_type_ids=torch.ones_like(ids)).logits,
    ):
        with torch.no_grad():
            expected = run(unknown, torch.tensor([[1, 1], [1, 0]]))
            assert torch.equal(run(ids, mask), expected) and torch.equal(run(ids), expected)
            assert torch.equal(run(nothing, nothing), run(torch.tensor([[1]])))


def test_a_sentence_of_a_pair_without_a_token_is_one_unknown_token(tiny_config):
    model = FastR2D2ForPairClassification(with_labels(tiny_config, 2)).eval()
    ids, types = torch.tensor([[30, 31, 32], [33, 34, 35]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
    expected = model(torch.tensor([[[30, 0, 0], [31, 32, 0]], [[1, 0, 0], [33, 34, 35]]])).logits
    assert torch.equal(model(ids, token_type_ids=types).logits, expected)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), width=st.integers(6, 8), data=st.data())
def test_padding_on_the_left_gives_what_padding_on_the_right_does(tiny_config, tiny_model, lengths, width, data):
    rows = [torch.randint(20, 100, (length,)) for length in lengths]
    shifts = [data.draw(st.integers(0, width - length)) for length in lengths]  # each row its own
    right, left = torch.zeros(2, len(rows), width, dtype=torch.long).unbind()
    for row, (ids, shift) in enumerate(zip(rows, shifts, strict=True)):
        right[row, : len(ids)] = left[row, shift : shift + len(ids)] = ids
    scores = torch.randn(len(rows), width - 1)
    spans = torch.tensor([[[0, min(1, length - 1)]] for length in lengths])
    classifier = FastR2D2ForSequenceClassification(tiny_config).eval()
    embed = tiny_model.model.embeddings
    for run in (
        lambda ids: tiny_model.model(ids, atom_spans=spans, encoding="chart", output_hidden_states=True),
        lambda ids: tiny_model.model(ids, (ids > 0).float(), split_scores=scores),
        lambda ids: tiny_model.model(None, ids > 0, inputs_embeds=embed(ids), split_scores=scores),
        lambda ids: tiny_model.parse(ids, atom_spans=spans, split_bonus=scores),
        lambda ids: tiny_model(ids, split_scores=scores),
        lambda ids: classifier(ids, labels=torch.tensor([n % 2 for n in lengths])),
    ):
        with torch.no_grad():
            torch.testing.assert_close(run(left), run(right), rtol=0, atol=0)


BAD_LABELS = [  # num_labels, problem_type, labels, message
    (2, None, torch.tensor(1), r"labels must be \(2,\) long, .* got \(\) torch.int64"),
    (2, None, torch.tensor([0, 1, 0]), r"\(2,\) long, .* got \(3,\)"),
    (2, None, torch.tensor([[0, 1], [1, 0]]), r"\(2,\) long, .* got \(2, 2\)"),
    (2, None, torch.tensor([0, 1], dtype=torch.int32), "long, .* got .* torch.int32"),
    (2, None, torch.tensor([[0], [2]]), "row 1 of the batch has a label outside the classes"),
    (2, None, torch.tensor([0, -100]), "row 1 of the batch has a label outside the classes"),
    (2, None, torch.tensor([0.0, 1.0]), r"\(2, 2\) floating point, .* got \(2,\) torch.float32"),
    (2, "single_label_classification", torch.zeros(2), r"\(2,\) long"),
    (2, "regression", torch.tensor([0, 1]), r"\(2, 2\) floating point"),
    (1, None, torch.zeros(2, 2), r"\(2,\) floating point, .* got \(2, 2\)"),
    (1, None, torch.tensor(0.5), r"\(2,\) floating point, .* got \(\)"),
    (1, None, torch.tensor([0, 1]), r"\(2,\) floating point, .* torch.int64"),
    (1, "multi_label_classification", torch.zeros(2), r"\(2, 1\) floating point, .* got \(2,\)"),
    (1, None, [0.0, 1.0], "labels must be a tensor, got list"),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bad", BAD_LABELS, ids=lambda bad: bad[-1])
def test_labels_that_fit_no_task_are_refused(tiny_config, bad, training):
    num_labels, problem_type, labels, message = bad
    config = with_labels(tiny_config, num_labels, problem_type)
    for model, ids in (
        (FastR2D2ForSequenceClassification(config), IDS),
        (FastR2D2ForPairClassification(config), IDS[:, None].repeat(1, 2, 1)),
    ):
        with pytest.raises(ValueError, match=message):
            model.train(training)(ids, labels=labels)


@pytest.mark.parametrize(("num_labels", "labels"), [
    (1, torch.rand(2)), (1, torch.rand(2, 1)), (2, torch.tensor([0, 1])), (2, torch.tensor([[0], [1]])),
    (3, torch.rand(2, 3)),
])  # fmt: skip
def test_labels_that_fit_their_task_train(tiny_config, num_labels, labels):
    model = FastR2D2ForSequenceClassification(with_labels(tiny_config, num_labels))
    loss = model.train()(IDS, labels=labels).loss
    loss.backward()
    assert loss.shape == () and loss.isfinite()


@pytest.mark.parametrize("wrong", [[2, 4], [0, 0], [0, 5], [-1, 4]])
def test_labels_that_are_no_tree_are_refused(tiny_config, wrong):
    parser, ids = FastR2D2ForConstituencyParsing(tiny_config), torch.full((2, 5), 20)
    labels = torch.tensor([[0, 4], [1, 4], [2, 4], [3, 4]]).repeat(2, 1, 1)
    labels[1, 1] = torch.tensor(wrong)
    with pytest.raises(ValueError, match="row 1 of the batch has labels that are no spans around their split points"):
        parser(ids, labels=labels)
    with pytest.raises(ValueError, match=r"labels must be \(2, 4, 2\) long, got \(2, 4\) torch.int64"):
        parser(ids, labels=labels[..., 0])
    with pytest.raises(ValueError, match=r"labels must be \(2, 4, 2\) long, got list"):
        parser(ids, labels=labels.tolist())


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


@pytest.mark.parametrize("value", [float("inf"), -float("inf")])
def test_the_tree_loss_refuses_infinite_scores(tiny_config, value):
    scores, labels = torch.tensor([[0.0, 1.0], [value, 0.0]]), torch.tensor([0, 1])
    pretrained, classifier = FastR2D2ForPreTraining(tiny_config), FastR2D2ForSequenceClassification(tiny_config)
    for train in (pretrained, lambda ids, **inputs: classifier.train()(ids, labels=labels, **inputs)):
        with pytest.raises(ValueError, match="row 1 of the batch has infinity in split_scores; the tree loss needs"):
            train(IDS, split_scores=scores)
    assert classifier.eval()(IDS, split_scores=scores, labels=labels).loss.isfinite()
    in_padding = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert pretrained(IDS, in_padding, split_scores=scores).loss.isfinite()


def tensors(shapes, dtypes, values):
    return st.builds(lambda shape, dtype, value: torch.full(shape, value).to(dtype), shapes, dtypes, values)


def any_inputs():
    names = "attention_mask", "atom_spans", "split_scores", "split_bonus", "split_signs", "labels", "token_type_ids"
    drawn = tensors(SHAPES, TYPES, VALUES)
    return st.fixed_dictionaries({"input_ids": drawn}, optional=dict.fromkeys(names, drawn))


def inputs_that_fit(is_pair, num_labels):
    """Tensors for two rows, or two pairs of rows, of three tokens each; nothing but their values may be wrong."""
    rows = (2, 2) if is_pair else (2,)
    whole, real = st.just(torch.int64), st.just(torch.float32)
    ids = tensors(st.just((*rows, 3)), whole, st.integers(0, 101))
    others = {
        "attention_mask": tensors(st.just((*rows, 3)), whole, st.integers(0, 1)),
        "atom_spans": tensors(st.just((*rows, 1, 2)), whole, st.integers(-1, 2)),
        "split_scores": tensors(st.just((*rows, 2)), real, VALUES),
        "split_bonus": tensors(st.just((*rows, 2)), real, VALUES),
        "split_signs": tensors(st.just((*rows, 2)), st.sampled_from([torch.int8, torch.int64]), st.integers(-1, 1)),
        "labels": tensors(st.just((2,)), whole if num_labels > 1 else real, st.integers(0, 2)),
    }
    return st.fixed_dictionaries({"input_ids": ids}, optional=others)


@given(data=st.data(), fits=st.booleans(), is_pair=st.booleans(), num_labels=st.integers(1, 3))
def test_any_tensors_are_used_or_refused(tiny_config, data, fits, is_pair, num_labels):
    inputs = data.draw(inputs_that_fit(is_pair, num_labels) if fits else any_inputs())
    config = with_labels(tiny_config, num_labels)
    model = (FastR2D2ForPairClassification if is_pair else FastR2D2ForSequenceClassification)(config).eval()
    try:
        output = model(**inputs)
    except ValueError as error:
        assert str(error)
    else:
        assert output.logits.isfinite().all() and (output.loss is None or output.loss.isfinite())
