"""A gold and a predicted tree side by side, as a piece of HTML."""

from collections.abc import Iterable, Sequence

from ..grammar_induction.labelled_trees import LabelledTree, Span
from ..grammar_induction.metrics import inner_spans
from .svg import MARKS, Drawing, as_xml, spell

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
