"""Predicted trees against gold trees in HTML: two of them, and a report, which a browser opens without a network."""

import base64
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

from ..grammar_induction.alignment import align
from ..grammar_induction.comparison import number
from ..grammar_induction.labelled_trees import LabelledTree, Span
from ..grammar_induction.metrics import Scores, inner_spans, score_trees
from ..text_files import write_text
from .svg import MARKS, Drawing, as_xml, clip, spell, visible

SENTENCES_PER_CHUNK = 100  # the browser unpacks a chunk when it shows one of its sentences
SENTENCES_PER_PAGE = 10
VISIBLE_ROWS = 20  # of a table; the others are folded, since some treebanks have a hundred labels

# The trees stand side by side if there is room, else one above the other. A picture wider than the page scrolls.
ROW = "display:flex;flex-wrap:wrap;gap:1em 2em;align-items:flex-end"
FIGURE = "margin:0;max-width:100%;overflow-x:auto"
NAMES = {"matched": "matched", "missed": "missed", "wrong": "not in gold"}


def draw_comparison(words: Sequence[str], gold: LabelledTree, predicted: LabelledTree) -> str:
    """A stand-alone ``<div>`` with both trees and lists of the matched, the missed and the wrong constituents.

    The span of the whole sentence does not count.

    Args:
        words: the leaves of both trees, at least one.
        gold, predicted: the trees, over the same words.

    Raises:
        ValueError: if a tree has another number of leaves, or as `draw_tree` raises it.
    """
    for name, tree in {"gold": gold, "predicted": predicted}.items():
        if tree.num_leaves != len(words):
            raise ValueError(
                f"the {name} tree has {tree.num_leaves} leaves, got {len(words)} words; align the two first"
            )
    wanted, found = inner_spans(gold), inner_spans(predicted)
    groups = {"matched": wanted & found, "missed": wanted - found, "wrong": found - wanted}
    marks = {span: mark for mark, spans in groups.items() for span in spans}
    gold_drawing = Drawing(words, gold.constituents, {span: marks[span] for span in wanted})
    drawing = Drawing(words, predicted.constituents, {span: marks[span] for span in found}, gold_drawing.columns)
    figures = _figure("gold", gold_drawing) + _figure("predicted", drawing)
    lines = "".join(_line(mark, drawing.words, spans) for mark, spans in groups.items())
    return f'<div class="comparison"><div style="{ROW}">{figures}</div><p>{lines}</p></div>'


def _figure(name: str, drawing: Drawing) -> str:
    picture = drawing.svg(f"{name} tree of: {' '.join(drawing.words)}")
    return f'<figure style="{FIGURE}" tabindex="0"><figcaption>{name}</figcaption>{picture}</figure>'


def _line(mark: str, words: Sequence[str], spans: Iterable[Span]) -> str:
    """A list such as ``missed 2: the cat; on the mat``, after a sample of the line that marks these constituents."""
    colour, style = MARKS[mark]
    sample = f'<path d="M2 4H30" fill="none" stroke="{colour}" {style}/>'
    # <bdi> keeps a right-to-left text from reordering its neighbours.
    texts = [f"<bdi>{as_xml(spell(words, *span))}</bdi>" for span in sorted(spans)]
    return (
        f'<span style="display:block"><svg width="32" height="8" aria-hidden="true">{sample}</svg> '
        f"<b>{NAMES[mark]} {len(texts)}</b>{': ' * bool(texts)}{'; '.join(texts)}</span>"
    )


class _Sentence(NamedTuple):
    number: int  # among all given sentences, from 1
    f1: float  # from 0 to 100
    unit: str  # of its length: words or pieces
    gold: LabelledTree
    predicted: LabelledTree


def write_report(
    path: str | Path,
    gold: Sequence[LabelledTree],
    predicted: Sequence[LabelledTree],
    *,
    title: str,
    granularity: str = "words",
    max_length: int | None = None,
) -> Scores:
    """Write an HTML report with scores, F1 by length, recall by label, and both trees of every sentence.

    Readers can sort the sentences by F1, shuffle them, and search for words. The file is written completely or not at
    all (see `write_aside`).

    Args:
        path: the file to write.
        gold, predicted, granularity, max_length: as for `score_trees`, with the same errors. Sentences that are not
            scored, such as sentences of one word, are not in the report.
        title: the title of the page.

    Returns:
        The scores.
    """
    scores = score_trees(predicted, gold, granularity, max_length)
    rows = scores.rows.tolist()
    predicted, gold = align(predicted, gold, granularity)
    f1s = scores.sentence_f1s.tolist()
    sentences = [
        _Sentence(row + 1, f1, granularity, gold[row], predicted[row]) for row, f1 in zip(rows, f1s, strict=True)
    ]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(Path(path), _page(title, scores, sentences, left_out=len(gold) - len(rows)))
    return scores


def _page(title: str, scores: Scores, sentences: list[_Sentence], left_out: int) -> str:
    orders = _orders(scores)
    index = {"texts": [_text(sentence) for sentence in sentences], "orders": orders}
    template = Template(files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=as_xml(visible(title)),
        figures=_figures(scores, left_out),
        lengths=_bars("F1 by length", ("words", "F1", "sentences"), list(scores.by_length().items())),
        labels=_bars("Recall by label", ("label", "recall", "constituents"), _recalls(scores)),
        worst="\n".join(_article(sentences[row]) for row in orders["worst"][:SENTENCES_PER_PAGE]),
        index=_packed(index),
        chunks="\n".join(_chunks(sentences)),
        sentences_per_chunk=SENTENCES_PER_CHUNK,
        sentences_per_page=SENTENCES_PER_PAGE,
    )


def _orders(scores: Scores) -> dict[str, list[int]]:
    """The orders in which the page can show the sentences. Of sentences with equal F1, longer ones go first, since they
    tell more. Sentences without gold spans go last."""
    f1s, lengths, has_gold = scores.sentence_f1s, scores.lengths, scores.counts[:, 2] > 0
    rows = range(len(f1s))
    return {
        "worst": sorted(rows, key=lambda row: (not has_gold[row], f1s[row], -lengths[row])),
        "best": sorted(rows, key=lambda row: (not has_gold[row], -f1s[row], -lengths[row])),
        "random": random.Random(0).sample(rows, len(rows)),
        "given": list(rows),
    }


def _figures(scores: Scores, left_out: int) -> str:
    """A list of scores with their names and explanations."""
    low, high = scores.confidence_interval()
    empty = int((scores.counts[:, 2] == 0).sum())
    figures = [
        ("Sentence F1", number(scores.sentence_f1), f"95 % interval {low:.1f} to {high:.1f}"),
        ("Corpus F1", number(scores.corpus_f1), "over all constituents together"),
        ("Strict sentence F1", number(scores.strict_sentence_f1), f"without {empty:,} that have no gold span"),
        ("Script sentence F1", number(scores.script_sentence_f1), "as compare_trees.py counts"),
        ("Script corpus F1", number(scores.script_corpus_f1), "as compare_trees.py counts"),
        ("Sentences", f"{len(scores.rows):,}", f"{left_out:,} left out as too short or too long"),
    ]
    cells = (f"<dt>{name}</dt><dd><b>{value}</b> <small>{note}</small></dd>" for name, value, note in figures)
    return f"<dl>{''.join(f'<div>{cell}</div>' for cell in cells)}</dl>"


def _recalls(scores: Scores) -> list[tuple[str, tuple[float, int]]]:
    return [(clip(label) or "(none)", (scores.recall(label), total)) for label, (_, total) in scores.labels.items()]


def _bars(caption: str, head: tuple[str, str, str], rows: list[tuple[str, tuple[float, int]]]) -> str:
    """A table with a bar per row: name, bar, value from 0 to 100, and the count behind it. Later rows are folded."""
    shown, more = _table(caption, head, rows[:VISIBLE_ROWS]), rows[VISIBLE_ROWS:]
    if not more:
        return shown
    title = f"{len(more):,} more"
    return f"<div>{shown}<details><summary>{title}</summary>{_table('', head, more)}</details></div>"


def _table(caption: str, head: tuple[str, str, str], rows: list[tuple[str, tuple[float, int]]]) -> str:
    name, value, count = (f'<th scope="col">{text}</th>' for text in head)
    body = "".join(
        f'<tr><th scope="row">{as_xml(name)}</th><td class="bar"><div style="width:{value:.1f}%"></div></td>'
        f"<td>{number(value)}</td><td>{count:,}</td></tr>"
        for name, (value, count) in rows
    )
    head_row = f"<thead><tr>{name}<td></td>{value}{count}</tr></thead>"
    return f"<table>{f'<caption>{caption}</caption>' if caption else ''}{head_row}<tbody>{body}</tbody></table>"


def _article(sentence: _Sentence) -> str:
    comparison = draw_comparison(sentence.gold.words, sentence.gold, sentence.predicted)
    facts = f"F1 {number(sentence.f1)}, {sentence.gold.num_leaves} {sentence.unit}"
    text = as_xml(_text(sentence))
    return f'<article><h3>Sentence {sentence.number:,}: {facts}</h3><p dir="auto">{text}</p>{comparison}</article>'


def _text(sentence: _Sentence) -> str:
    return " ".join(map(visible, sentence.gold.words))


def _chunks(sentences: list[_Sentence]) -> Iterator[str]:
    """The articles in packed chunks, for the script of the page."""
    for start in range(0, len(sentences), SENTENCES_PER_CHUNK):
        articles = [_article(sentence) for sentence in sentences[start : start + SENTENCES_PER_CHUNK]]
        yield f'<script type="application/octet-stream" class="chunk">{_packed(articles)}</script>'


def _packed(value: object) -> str:
    """JSON, compressed, in base64, which needs no escaping in HTML. A lone surrogate becomes a question mark."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", errors="replace")
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")
