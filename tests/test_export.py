"""The exported parser gives the parser's trees."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modeling_fast_r2d2 import BinaryTree, FastR2D2ForConstituencyParsing, FastR2D2Model, bundled_checkpoint
from modeling_fast_r2d2.checkpoints.export import export_parser, export_parser_to_onnx, exportable_parser
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from tokenization_fast_r2d2.words import word_spans

SENTENCES = ["The old man bought a new car", "Yes", "Dogs bark", "The unbelievably old bridge was built in a week " * 4]
SHAPES = [(1, 3), (3, 9), (2, 40), (7, 5)]


@pytest.fixture(params=["lstm", "transformer"])
def parser_model(request, tiny_config) -> FastR2D2ForConstituencyParsing:
    tiny_config.parser_type = request.param
    return FastR2D2ForConstituencyParsing(tiny_config).eval()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_trees_follow_from_scores_as_in_the_model(tiny_model, scores, data):
    """Equal scores and words of several pieces among them."""
    new_word = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    word_ids = np.cumsum([0, *new_word]).tolist()
    spans = torch.tensor(word_spans(word_ids), dtype=torch.long).view(1, -1, 2)
    ids, given_scores = torch.full((1, len(scores) + 1), 20), torch.tensor([scores], dtype=torch.float32)
    for atoms, words in ((None, None), (spans, word_ids)):
        [found] = tiny_model.parse(ids, atom_spans=atoms, split_scores=given_scores).spans
        assert BinaryTree.from_split_scores(scores, words) == BinaryTree.from_spans(found)


def batch_of(rows: int, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.randint(1, seq_len + 1, (rows,))
    lengths[-1] = seq_len
    return torch.randint(20, 100, (rows, seq_len)), lengths


def test_the_copy_for_export_scores_as_the_parser(parser_model):
    parser = parser_model.base_model.parser
    ids, lengths = batch_of(6, 11)
    torch.testing.assert_close(exportable_parser(parser_model)(ids, lengths), parser(ids, lengths))


@pytest.mark.slow
def test_a_saved_program_scores_any_batch_of_any_length(parser_model, tmp_path):
    torch.export.save(export_parser(parser_model), tmp_path / "parser.pt2")
    program = torch.export.load(tmp_path / "parser.pt2").module()
    for shape in SHAPES:
        ids, lengths = batch_of(*shape)
        torch.testing.assert_close(program(ids, lengths), parser_model.base_model.parser(ids, lengths))


@pytest.mark.slow
def test_an_onnx_file_scores_any_batch_of_any_length(parser_model, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    export_parser_to_onnx(parser_model, tmp_path / "parser.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "parser.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["parser.onnx"]
    for shape in [(1, 2), *SHAPES]:
        ids, lengths = batch_of(*shape)
        [scores] = session.run(None, {"input_ids": ids.numpy(), "lengths": lengths.numpy()})
        torch.testing.assert_close(torch.from_numpy(scores), parser_model.base_model.parser(ids, lengths))


@pytest.mark.parametrize("layers", [{nn.Linear}, {nn.LSTM}, {nn.Linear, nn.LSTM}])
@pytest.mark.filterwarnings("ignore:torch.ao.quantization")
def test_quantised_models_parse_and_encode(tokenizer, layers):
    """Rounding to int8 changes scores and vectors by some per cent."""
    whole = FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(whole), layers, dtype=torch.qint8)
    parsers = [TreeParser(net, tokenizer) for net in (whole, quantised)]
    scores = [np.concatenate([parsed.split_scores for parsed in parser(SENTENCES)]) for parser in parsers]
    assert np.corrcoef(*scores)[0, 1] > 0.99
    ids = tokenizer(SENTENCES[0], return_tensors="pt", add_special_tokens=False)["input_ids"]
    scores = whole.parse(ids).split_scores
    for encoding in ("forced", "chart"):
        vectors = [net(ids, split_scores=scores, encoding=encoding).pooler_output for net in (whole, quantised)]
        assert nn.functional.cosine_similarity(*vectors).item() > 0.99
