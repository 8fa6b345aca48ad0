"""The picture of a chart, and the probabilities in it."""

import json
from xml.etree import ElementTree

import pytest
import torch

from modeling_fast_r2d2 import FastR2D2ForConstituencyParsing, bundled_checkpoint
from modeling_fast_r2d2.parsing.chart_probabilities import chart_probabilities
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.pictures import draw_chart

SVG = "{http://www.w3.org/2000/svg}"
SENTENCE = "The unbelievably old man, who sleeps, bought a new car"


@pytest.fixture
def parser(model, tokenizer) -> TreeParser:
    return TreeParser(model, tokenizer)


def test_probabilities_are_shares_of_trees_drawn_from_the_chart(parser):
    words, probabilities = chart_probabilities(parser, SENTENCE)
    assert words == SENTENCE.replace(",", "").split() and probabilities[0, len(words) - 1] == pytest.approx(1)
    assert all(0 <= probability <= 1 + 1e-6 for probability in probabilities.values())
    # every binary tree over n words has n - 1 constituents, and the parser keeps words whole
    assert sum(probabilities.values()) == pytest.approx(len(words) - 1, abs=0.05)


def test_a_sharp_chart_has_its_best_tree(parser, model):
    with torch.no_grad():
        model.base_model.composition.score.weight.mul_(1e4)
    _, probabilities = chart_probabilities(parser, "the old man saw a cat".split(), is_split_into_words=True)
    [best] = TreeParser(model, parser.tokenizer, "chart")(["the old man saw a cat"])
    assert {span for span, probability in probabilities.items() if probability > 0.5} == set(best.tree.spans)


def test_a_parser_alone_has_no_chart(tokenizer):
    alone = TreeParser(FastR2D2ForConstituencyParsing.from_pretrained(bundled_checkpoint()), tokenizer)
    with pytest.raises(ValueError, match="FastR2D2ForConstituencyParsing has no encoder"):
        chart_probabilities(alone, "a b")


def test_every_cell_stands_above_its_words():
    words, probabilities = ["a", "<b>", "c"], {(0, 2): 1.0, (0, 1): 0.25, (1, 2): 0.001}
    picture = ElementTree.fromstring(draw_chart(words, probabilities))
    leaves = [float(text.get("x")) for text in picture.findall(f"{SVG}text")]
    cells = {tuple(json.loads(f"[{cell.get('data-span').replace(' ', ',')}]")): cell for cell in picture.iter(f"{SVG}g")
             if cell.get("data-span")}  # fmt: skip
    assert set(cells) == set(probabilities)
    for (first, last), cell in cells.items():
        rect, numbers = cell.find(f"{SVG}rect"), [text.text for text in cell.findall(f"{SVG}text")]
        middle = float(rect.get("x")) + float(rect.get("width")) / 2
        assert middle == pytest.approx((leaves[first] + leaves[last]) / 2, abs=1)
        assert numbers == ({1.0: ["100"], 0.25: ["25"], 0.001: []}[probabilities[first, last]])
    assert cells[0, 1].find(f"{SVG}title").text == "a <b>: 0.250"


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="at least one word"):
        draw_chart([], {})
    for span in ((0, 2), (0, 0), (1, 0)):
        with pytest.raises(ValueError, match="is not of two or more of the words; give first and last, from 0 to 1"):
            draw_chart(["a", "b"], {span: 1.0})
    assert "svg" in draw_chart(["a"], {})
