"""What the app shows: sentences, trees, the chart, and the nearest constituents. Nothing here knows Gradio."""

import os
from functools import cache
from pathlib import Path

import numpy as np

from fast_r2d2_entry_points.command_line.formats import as_json
from modeling_fast_r2d2 import TreeParser
from modeling_fast_r2d2.parsing.chart_probabilities import chart_probabilities
from modeling_fast_r2d2.parsing.phrases import PhraseIndex
from modeling_fast_r2d2.parsing.running_text import split_texts
from modeling_fast_r2d2.parsing.tree_parser import ParsedSentence
from modeling_fast_r2d2.pictures import draw_chart

METHODS = {"parser": "Parser", "chart": "Chart", "minimum_risk": "Minimum risk"}
FORMATS = ("brackets", "JSON", "SVG")
LONGEST = 60  # words; the chart of a longer sentence is wider than anyone scrolls
FRAME = "overflow-x:auto;max-width:100%"

Sentence = tuple[list[str], list[tuple[int, int]]]  # words, and their offsets in the text


@cache
def parsers() -> dict[str, TreeParser]:
    """A parser for each method; they share one model."""
    checkpoint = os.environ.get("FAST_R2D2_CHECKPOINT") or "fast-r2d2-tiny"
    loaded = TreeParser.from_pretrained(checkpoint, "chart")
    return {method: TreeParser(loaded.model, loaded.tokenizer, method) for method in METHODS}


def sentences_of(text: str) -> list[Sentence]:
    """The sentences of a text; a long one is cut."""
    [sentences] = split_texts([text], parsers()["parser"].tokenizer)
    return [(words[:LONGEST], offsets[:LONGEST]) for words, offsets in sentences]


def parse(sentence: Sentence, method: str) -> ParsedSentence:
    words, offsets = sentence
    return parsers()[method]([words], is_split_into_words=True, word_offsets=[offsets])[0]


def trees_view(sentence: Sentence) -> str:
    """The trees of all methods side by side, as HTML. Captions say which trees equal the parser's."""
    parsed, figures = {method: parse(sentence, method) for method in METHODS}, []
    for method, name in METHODS.items():
        is_same = method != "parser" and parsed[method].tree == parsed["parser"].tree
        caption = f"{name}{' (the same tree)' * is_same}"
        picture = parsed[method]._repr_svg_()
        figures.append(f'<figure style="margin:0;{FRAME}"><figcaption>{caption}</figcaption>{picture}</figure>')
    note = (
        "The thinner a line, the less sure is the parser. "
        "The bars below its tree are its split scores: each span splits at its highest bar."
        f"{f' A sentence is cut after {LONGEST} words.' * (len(sentence[0]) == LONGEST)}"
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:1.5em">{"".join(figures)}</div><p>{note}</p>'


def chart_view(sentence: Sentence) -> str:
    """The chart with its probabilities, as HTML."""
    chart = chart_probabilities(parsers()["chart"], sentence[0], is_split_into_words=True)
    note = "Each cell is a span of words; its number is the probability, in per cent, that it is a constituent."
    return f'<div style="{FRAME}">{draw_chart(chart.words, chart.probabilities)}</div><p>{note}</p>'


def copy_view(sentence: Sentence, method: str, form: str) -> str:
    """The tree of one method as text to copy."""
    parsed = parse(sentence, method)
    if form == "SVG":
        return parsed._repr_svg_()
    return as_json(parsed, {}) if form == "JSON" else parsed.brackets()


def constituents(sentence: Sentence) -> list[tuple[str, np.ndarray]]:
    """The constituents of the parser's tree, or the only word; the widest first."""
    parser = parsers()["parser"]
    [read] = parser.read([sentence[0]], is_split_into_words=True)
    [vectors] = parser.node_vectors([read])
    widest_first = sorted(vectors, key=lambda span: span[0] - span[1])
    shown = [span for span in widest_first if span[0] < span[1]] or widest_first
    return [(" ".join(read.words[i : j + 1]), vectors[i, j]) for i, j in shown]


@cache
def corpus() -> PhraseIndex:
    """The constituents of the corpus."""
    lines = (Path(__file__).parent / "corpus.txt").read_text(encoding="utf-8").splitlines()
    return PhraseIndex.build(parsers()["parser"], lines, LONGEST)


def nearest_view(sentence: Sentence, chosen: str) -> list[list[str]]:
    """The constituents of the corpus whose vectors have the highest cosine with the chosen one: a row for each."""
    vector = dict(constituents(sentence)).get(chosen)
    if vector is None:
        return []
    return [[f"{found.cosine:.3f}", found.phrase, " ".join(found.words)] for found in corpus().nearest(vector)]
