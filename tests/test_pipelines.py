"""Pipelines give what the model gives for each sentence alone, however batched, and travel with a checkpoint."""

import json

import nltk
import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer, pipeline

from modeling_fast_r2d2 import (
    BinaryTree,
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    TreeParser,
    bundled_checkpoint,
)
from tokenization_fast_r2d2 import tokenize_sentences

SENTENCES = ["The cat sat on the unbelievably old mat", "Yes", "It rained all day", "Dogs bark", "a", "He left early"]
PAIRS = [{"text": first, "text_pair": second} for first, second in zip(SENTENCES, SENTENCES[::-1], strict=True)]


@pytest.fixture
def parse():
    return pipeline("constituency-parsing", model=bundled_checkpoint(), device="cpu")


def trees_of(results: list[dict]) -> list[dict]:
    """Results without their confidences, whose last digits depend on the batch."""
    return [{name: value for name, value in result.items() if name != "confidences"} for result in results]


def expected_trees(tokenizer, method: str) -> list[tuple[BinaryTree, list[str]]]:
    model = FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()
    encoding = "forced" if method == "parser" else method
    encoded, trees = tokenize_sentences(tokenizer, SENTENCES), []
    for row in range(len(SENTENCES)):
        spans = torch.tensor([encoded["atom_spans"][row]], dtype=torch.long).view(1, -1, 2)
        with torch.no_grad():
            [found] = model(torch.tensor([encoded["input_ids"][row]]), atom_spans=spans, encoding=encoding).spans
        trees.append((BinaryTree.from_spans(found).to_words(encoded["word_ids"][row]), encoded["words"][row]))
    return trees


@pytest.mark.parametrize("method", ["parser", "chart", "minimum_risk"])
@pytest.mark.parametrize("batch_size", [1, 2, 6])
def test_trees_are_the_models(parse, tokenizer, batch_size, method):
    results = parse(SENTENCES, batch_size=batch_size, method=method)
    for result, (tree, words) in zip(results, expected_trees(tokenizer, method), strict=True):
        assert result["brackets"] == tree.brackets(words)
        assert result["spans"] == list(tree.spans)
        assert result["words"] == result["tree"].leaves() == words
        assert isinstance(result["tree"], nltk.Tree)


@pytest.mark.parametrize("method", ["parser", "minimum_risk"])
@pytest.mark.parametrize("batch_size", [1, 6])
def test_trees_are_as_flat_as_those_of_a_tree_parser(parse, batch_size, method):
    texts = [*SENTENCES, 'Dogs ("they bark", he said) sleep.']
    parser = TreeParser.from_pretrained(bundled_checkpoint(), method)
    for result, parsed in zip(parse(texts, batch_size=batch_size, method=method), parser(texts), strict=True):
        assert result["confidences"] == pytest.approx(parsed.confidences.tolist(), abs=1e-5)
    for result, parsed in zip(parse(texts, method=method, min_confidence=0.5), parser(texts), strict=True):
        assert result["brackets"] == parsed.brackets(0.5) and result["tree"].leaves() == parsed.leaves
        kept = [(span, sure) for span, sure in zip(parsed.tree.spans, parsed.confidences, strict=True) if sure >= 0.5]
        assert result["spans"] == [span for span, _ in kept]
        assert result["confidences"] == pytest.approx([sure for _, sure in kept], abs=1e-5)


def test_without_a_model_the_bundled_one_parses(parse):
    assert trees_of(pipeline("constituency-parsing", device="cpu")(SENTENCES)) == trees_of(parse(SENTENCES))


def test_one_sentence_and_a_stream_are_parsed_too(parse):
    assert trees_of([parse(SENTENCES[2])]) == trees_of(parse(SENTENCES))[2:3]
    stream = (sentence for sentence in SENTENCES)
    assert [result["words"] for result in parse(stream, batch_size=4)] == [s.split() for s in SENTENCES]


@pytest.fixture
def sizes(parse, monkeypatch) -> list[torch.Size]:
    """The shapes of the batches that the pipeline runs."""
    found, forward = [], type(parse)._forward

    def spy(self, inputs, **given):
        found.append(inputs["input_ids"].shape)
        return forward(self, inputs, **given)

    monkeypatch.setattr(type(parse), "_forward", spy)
    return found


def test_columns_of_tables_are_lists(parse):
    expected = [result["brackets"] for result in parse(SENTENCES)]
    for column in (tuple(SENTENCES), np.array(SENTENCES), Dataset.from_dict({"text": SENTENCES})["text"]):
        assert [result["brackets"] for result in parse(column)] == expected
    assert [parse(text)["brackets"] for text in np.array(SENTENCES)] == expected  # each is a string of numpy's


def test_a_list_is_read_once(parse, monkeypatch):
    processor, lists = type(parse._reader), []
    read = processor.read
    monkeypatch.setattr(processor, "read", lambda self, texts: lists.append(list(texts)) or read(self, texts))
    parse(SENTENCES, batch_size=2)
    assert lists == [SENTENCES]


def test_a_list_is_parsed_in_batches_by_default(parse, sizes):
    by_default = parse(SENTENCES * 3)
    assert [rows for rows, _ in sizes] == [3 * len(SENTENCES)]
    sizes.clear()
    assert trees_of(parse(SENTENCES * 3, batch_size=1)) == trees_of(by_default) and {rows for rows, _ in sizes} == {1}


@pytest.mark.parametrize("options", [{"batch_tokens": 1}, {"batch_tokens": 12}, {"batch_tokens": 99, "batch_size": 2}])
def test_batches_by_tokens_give_the_same_trees_in_order(parse, options, sizes):
    expected = trees_of(parse(SENTENCES))
    for given in (options, {}):  # in the call, and when the pipeline was made
        sizes.clear()
        assert trees_of(parse(SENTENCES, **given)) == expected
        assert all(rows == 1 or rows * tokens <= options["batch_tokens"] for rows, tokens in sizes)
        assert max(rows for rows, _ in sizes) <= options.get("batch_size", len(SENTENCES))
        parse._batch_size, parse._batch_tokens = options.get("batch_size"), options["batch_tokens"]
    parse._batch_size, parse._batch_tokens = None, None
    assert parse([], **options) == [] and trees_of([parse(SENTENCES[2], **options)]) == expected[2:3]
    with pytest.raises(ValueError, match="row 1: a text must be a string, got 3"):
        parse([SENTENCES[0], 3], **options)


def test_what_is_no_sentence_is_refused(parse):
    for given in (b"a cat", np.array("a cat")):
        with pytest.raises(ValueError, match="sentences must be a list of sentences, got one"):
            parse(given)
    with pytest.raises(ValueError, match="unknown arguments window"):
        parse("a cat", window=3)
    with pytest.raises(ValueError, match="method must be one of parser, chart, minimum_risk, heuristic, got 'forced'"):
        parse("a cat", method="forced")
    assert parse("")["words"] == ["[UNK]"]
    with pytest.raises(ValueError, match="min_confidence must be from 0 to 1, got 70"):
        parse("a cat", min_confidence=70)


def test_a_parser_alone_is_enough(parse, tokenizer, tmp_path):
    model = FastR2D2ForConstituencyParsing.from_pretrained(bundled_checkpoint())
    parse_alone = pipeline("constituency-parsing", model=model, tokenizer=tokenizer)
    assert trees_of(parse_alone(SENTENCES)) == trees_of(parse(SENTENCES))
    with pytest.raises(ValueError, match="FastR2D2ForConstituencyParsing has no encoder for method='chart'"):
        parse_alone(SENTENCES, method="chart")
    with pytest.raises(ValueError, match="FastR2D2ForConstituencyParsing has no encoder for vectors"):
        TreeParser(model, tokenizer, with_vectors=True)
    with pytest.raises(ValueError, match="could not be loaded again"):
        parse_alone.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_heads_and_tokenizers_that_pad_on_the_left_parse_too(parse):
    left = AutoTokenizer.from_pretrained(bundled_checkpoint(), padding_side="left")
    model = FastR2D2ForSequenceClassification.from_pretrained(bundled_checkpoint())
    parse_left = pipeline("constituency-parsing", model=model, tokenizer=left)
    for method in ("parser", "chart"):
        assert trees_of(parse_left(SENTENCES, batch_size=3, method=method)) == trees_of(parse(SENTENCES, method=method))
    assert left.padding_side == "left"


CLEAN_PROCESS = """
import sys, json
import transformers
pipe = transformers.pipeline(sys.argv[1], model=sys.argv[2], trust_remote_code=True)
assert "transformers_modules" in type(pipe.model).__module__, type(pipe.model)
results = pipe(json.loads(sys.argv[3]), batch_size=2, **json.loads(sys.argv[4]))
print(json.dumps([{key: str(value) for key, value in result.items()} for result in results]))
"""


@pytest.mark.slow
def test_a_saved_pipeline_parses_where_the_package_is_not_installed(parse, tmp_path, run_without_the_package):
    parse.save_pretrained(tmp_path / "saved")
    given = json.dumps(SENTENCES), json.dumps({"min_confidence": 0.5})
    results = run_without_the_package(CLEAN_PROCESS, "constituency-parsing", tmp_path / "saved", *given)
    expected = trees_of(parse(SENTENCES, min_confidence=0.5))
    assert trees_of(results) == [{key: str(value) for key, value in result.items()} for result in expected]
    again = pipeline("constituency-parsing", model=str(tmp_path / "saved"), trust_remote_code=True)
    assert trees_of(again(SENTENCES)) == trees_of(parse(SENTENCES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "inputs"), [(FastR2D2ForSequenceClassification, SENTENCES), (FastR2D2ForPairClassification, PAIRS)]
)
def test_a_saved_classifier_classifies(model_class, inputs, tokenizer, tmp_path, run_without_the_package):
    torch.manual_seed(0)
    model = model_class.from_pretrained(bundled_checkpoint(), num_labels=3).eval()
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        rows = [tokenizer(*(row.values() if isinstance(row, dict) else [row]), return_tensors="pt") for row in inputs]
        probabilities = [model(**row).logits.softmax(-1)[0] for row in rows]
    classify = pipeline("text-classification", model=str(tmp_path / "saved"))
    assert type(classify.model) is model_class
    for batch_size in (1, 4):
        for result, expected in zip(classify(inputs, batch_size=batch_size), probabilities, strict=True):
            assert result["label"] == f"LABEL_{expected.argmax()}"
            assert result["score"] == pytest.approx(expected.max().item(), abs=1e-5)
    given = json.dumps(inputs), "{}"
    remote = run_without_the_package(CLEAN_PROCESS, "text-classification", tmp_path / "saved", *given)
    assert [result["label"] for result in remote] == [f"LABEL_{expected.argmax()}" for expected in probabilities]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_feature_extraction_gives_the_last_hidden_state_and_rows_of_zeros(tokenizer, batch_size):
    extract = pipeline("feature-extraction", model=bundled_checkpoint(), device="cpu")
    model, texts = FastR2D2Model.from_pretrained(bundled_checkpoint()).eval(), [*SENTENCES, ""]
    for text, [vectors] in zip(texts, extract(texts, batch_size=batch_size, return_tensors=True), strict=True):
        with torch.no_grad():
            [expected] = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
        torch.testing.assert_close(vectors[vectors.any(dim=-1)], expected)
