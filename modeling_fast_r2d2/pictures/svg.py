"""Trees and charts as stand-alone SVG pictures, without fonts, style sheets and scripts."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..grammar_induction.labelled_trees import LabelledSpan, Span
from .layout import Nodes, bar_heights, nodes_of, place, text_width

# Colours of Okabe and Ito that are visible on white and on black. The lines also differ without colour.
MARKS = {
    "matched": ("#0072B2", 'stroke-width="2"'),
    "missed": ("#D55E00", 'stroke-width="2" stroke-dasharray="7 4"'),
    "wrong": ("#CC79A7", 'stroke-width="2.5" stroke-dasharray="0 5" stroke-linecap="round"'),
}
UNMARKED = "currentColor"
THIN, THICK = 0.5, 3.5  # pixels, of the lines of constituents with confidences of 0 and 1
BAR_COLOUR = "#0072B2"
FORBIDDEN_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FONT_FAMILY = 'font-family="system-ui, sans-serif" text-anchor="middle" fill="currentColor"'

# All in pixels.
FONT, LABEL_FONT, GAP = 14, 12, 12  # font sizes of words and labels; space between two texts
LEVEL, PLAIN_LEVEL = 38, 24  # from a node down to its highest child, with and without labels
HALF_WORD, HALF_LABEL, TO_BAR = 11, 8, 16  # from the middle of a text to the ends of its lines
MARGIN, BAR_AREA, BAR_WIDTH = 10, 44, 8
SMALLEST = 0.6  # of the size above; words of 8 pixels can still be read

# Of a chart, a triangle of cells: pixels per row, pixels per column at least, characters.
ROW, NARROWEST, LONGEST_WORD = 26, 36, 10
DARKEST = 0.75  # opacity of a cell of probability 1, under its number


def draw_tree(
    words: Sequence[str],
    constituents: Iterable[LabelledSpan],
    split_scores: Sequence[float] | None = None,
    *,
    marks: Mapping[Span, str] | None = None,
    confidences: Mapping[Span, float] | None = None,
    title: str = "",
) -> str:
    """Draw a tree of any arity as a stand-alone SVG. The words stand in a row, with the constituents above them.

    The picture shrinks with the page, to six tenths of its size at least; on narrower pages it scrolls.

    Args:
        words: the leaves, at least one.
        constituents: such as ``LabelledTree.constituents``; labels may be empty. Constituents with the same span, the
            inner one first, are drawn as one node.
        split_scores: ``(words - 1,)``, drawn as bars between and below the words; None draws none. The parser's tree
            splits every span at its highest bar (paper, Figure 3), but scores closer than a pixel look equal. Bars are
            scaled to the range of the sentence; scores may be infinite.
        marks: ``"matched"``, ``"missed"`` or ``"wrong"`` for some of the spans. A mark decides the colour and the line
            of a node, and appears in its tooltip.
        confidences: from 0 to 1, for some of the spans without a mark. The higher one is, the thicker are the lines of
            the node, and it appears in its tooltip.
        title: the title of the picture; by default the words.

    Returns:
        The SVG as a string.

    Raises:
        ValueError: if there are no words, if spans cross or lie outside the words, if a mark is unknown or belongs to
            no constituent, or if scores are NaN or not ``words - 1`` in number.
    """
    scores = None if split_scores is None else [float(score) for score in split_scores]
    if scores is not None and len(scores) != len(words) - 1:
        raise ValueError(f"split_scores must be {len(words) - 1} numbers, one per split point, got {len(scores)}")
    return Drawing(words, constituents, marks or {}, confidences=confidences).svg(title, scores or ())


class Drawing:
    """The drawing of one tree. The words stand at height 0 in every drawing, and the constituents above them.

    Args:
        words, constituents, marks, confidences: as for `draw_tree`, with the same errors.
        columns: ``(words,)`` pixels, the least width of each word's column. With the ``columns`` of another drawing of
            the same words, the two drawings can be compared.
    """

    def __init__(
        self,
        words: Sequence[str],
        constituents: Iterable[LabelledSpan],
        marks: Mapping[Span, str],
        columns: Sequence[float] | None = None,
        confidences: Mapping[Span, float] | None = None,
    ):
        if not words:
            raise ValueError("a drawing needs at least one word, got none")
        self.words, self.marks, self.confidences = [visible(word) for word in words], marks, confidences or {}
        self.nodes = nodes_of(len(words), constituents)
        _check_marks(marks, self.nodes)
        self.labels = [visible(label) if label else "" for label in self.nodes.labels]
        self.middles, self.edges = place(self.nodes, self._widths(columns or [0] * len(words)))
        level = LEVEL if any(self.labels) else PLAIN_LEVEL
        self.rows = [-level * height for height in self.nodes.heights]

    def _widths(self, columns: Sequence[float]) -> list[float]:
        words = (FONT * text_width(word) + GAP for word in self.words)
        labels = (LABEL_FONT * text_width(label) + GAP * bool(label) for label in self.labels[len(self.words) :])
        return [*map(max, zip(words, columns, strict=True)), *labels]

    @property
    def columns(self) -> list[float]:
        """``(words,)`` pixels, the width of the column of each word."""
        return [right - left for left, right in zip(self.edges, self.edges[1:], strict=False)]

    def svg(self, title: str = "", scores: Sequence[float] = ()) -> str:
        """The drawing; the arguments are those of `draw_tree`."""
        top, bottom = min(self.rows) - HALF_WORD - MARGIN, HALF_WORD + MARGIN
        bars = self.bars(scores, bottom) if scores else ()
        bottom += BAR_AREA + MARGIN if scores else 0
        parts = [
            *(text(word, x, 0, FONT) for word, x in zip(self.words, self.middles, strict=False)),
            f'<g font-size="{LABEL_FONT}" stroke-linejoin="round">',
            *map(self.node, reversed(range(len(self.words), len(self.rows)))),  # children cover the ends of lines
            *("</g>", *bars),
        ]
        return picture(self.edges[-1], top, bottom, visible(title or " ".join(self.words)), parts)

    def node(self, node: int) -> str:
        """A constituent: its lines, its label or a dot, and its tooltip."""
        span, label, x, y = self.nodes.spans[node], self.labels[node], self.middles[node], self.rows[node]
        mark = self.marks.get(span, "")
        sure = self.confidences.get(span)
        width = 1.5 if sure is None else THIN + (THICK - THIN) * sure
        colour, line = MARKS[mark] if mark else (UNMARKED, f'stroke-width="{width:.2g}"')
        note = mark or (f"{sure:.0%}" if sure is not None else "")
        name = f"{label}{': ' * bool(label)}{spell(self.words, *span)}{f' ({note})' * bool(note)}"
        knob = f'<circle cx="{number(x)}" cy="{number(y)}" r="3" fill="{colour}"/>'
        return (
            f'<g data-span="{span[0]} {span[1]}"><title>{as_xml(name)}</title>'
            f'<path d="{self.lines(node)}" fill="none" stroke="{colour}" {line}/>'
            f"{text(label, x, y, LABEL_FONT) if label else knob}</g>"
        )

    def lines(self, node: int) -> str:
        """The path of the lines of a constituent: down to a horizontal bar, and from the bar down to each child."""
        children, x, y = self.nodes.children[node], self.middles[node], self.rows[node]
        bar = y + TO_BAR if self.labels[node] else y
        drops = [(number(self.middles[child]), number(self.top(child))) for child in children]
        (left, left_end), (right, right_end) = drops[0], drops[-1]
        path = f"M{left} {left_end}V{number(bar)}H{right}V{right_end}"
        path += "".join(f"M{middle} {number(bar)}V{end}" for middle, end in drops[1:-1])
        if self.labels[node]:
            path += f"M{number(x)} {number(y + HALF_LABEL)}V{number(bar)}"
        if not self.middles[children[0]] <= x <= self.middles[children[-1]]:  # a wide label beside its children
            path += f"M{number(x)} {number(bar)}H{left}"
        return path

    def top(self, node: int) -> float:
        """The height at which the line from the parent ends."""
        if node < len(self.words):
            return self.rows[node] - HALF_WORD
        return self.rows[node] - (HALF_LABEL if self.labels[node] else 0)

    def bars(self, scores: Sequence[float], top: float) -> Iterator[str]:
        """The bars of the split scores, in an area that begins at ``top``."""
        base = top + BAR_AREA
        yield f'<g fill="{BAR_COLOUR}">'
        for split, height in enumerate(bar_heights(scores)):
            corner = f'x="{number(self.edges[split + 1] - BAR_WIDTH / 2)}" y="{number(base - height * BAR_AREA)}"'
            between = f"{clip(self.words[split])} | {clip(self.words[split + 1])}: {round(scores[split], 2):g}"
            yield f'<rect {corner} width="{BAR_WIDTH}" height="{number(height * BAR_AREA)}">'
            yield f"<title>{as_xml(between)}</title></rect>"
        yield f'</g><path d="M0 {number(base)}H{number(self.edges[-1])}" stroke="currentColor" opacity=".5"/>'


def draw_chart(words: Sequence[str], probabilities: Mapping[Span, float], title: str = "") -> str:
    """Draw a chart. The words stand in a row; the cell of a span is above the middle of its words, wider spans higher.

    Args:
        words: the leaves, at least one. Long words are cut.
        probabilities: of spans of two or more words, first and last word inclusive, in 0 ... 1. Other cells stay empty.
        title: the title of the picture; by default the words.

    Returns:
        The SVG as a string.

    Raises:
        ValueError: if there are no words, or if a span is not of two or more of them.
    """
    if not words:
        raise ValueError("a drawing needs at least one word, got none")
    shown = [visible(word) for word in words]
    cut = [clip(word, LONGEST_WORD) for word in shown]
    column = max(NARROWEST, *(FONT * text_width(word) + GAP for word in cut))
    cells = [_cell(shown, span, probability, column) for span, probability in sorted(probabilities.items())]
    height = max((last - first for first, last in probabilities), default=0)
    top, bottom = -ROW * height - HALF_WORD - MARGIN, HALF_WORD + MARGIN
    leaves = [text(word, column * (place + 0.5), 0, FONT) for place, word in enumerate(cut)]
    parts = [*leaves, f'<g font-size="{LABEL_FONT}">', *cells, "</g>"]
    return picture(column * len(words), top, bottom, title or " ".join(shown), parts)


def _cell(words: Sequence[str], span: Span, probability: float, column: float) -> str:
    first, last = span
    if not 0 <= first < last < len(words):
        raise ValueError(
            f"the span {span} is not of two or more of the words; give first and last, from 0 to {len(words) - 1}"
        )
    x, y = column * (first + last + 1) / 2, -ROW * (last - first)
    corner = f'x="{number(x - column / 2 + 2)}" y="{number(y - ROW / 2 + 2)}"'
    size = f'width="{number(column - 4)}" height="{ROW - 4}" rx="3"'
    paint = f'fill="{BAR_COLOUR}" fill-opacity="{DARKEST * probability:.3f}" stroke="currentColor" stroke-opacity=".25"'
    percent = text(f"{100 * probability:.0f}", x, y, LABEL_FONT) if probability >= 0.005 else ""
    tooltip = f"{spell(words, first, last)}: {probability:.3f}"
    return f'<g data-span="{first} {last}"><title>{as_xml(tooltip)}</title><rect {corner} {size} {paint}/>{percent}</g>'


def picture(width: float, top: int, bottom: int, title: str, parts: Iterable[str]) -> str:
    """A picture that is as wide as the page at most. If it would become too small to read, it scrolls in its frame
    instead."""
    style = f"width:{number(width)}px;max-width:100%;min-width:{number(SMALLEST * width)}px;height:auto"
    size = f'viewBox="0 {top} {number(width)} {bottom - top}" style="{style}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="{FONT}" {FONT_FAMILY}>'
    return "".join([start, f"<title>{as_xml(title)}</title>", *parts, "</svg>"])


def visible(word: str) -> str:
    """The word on one line; ``_`` for a word without visible characters."""
    return " ".join(word.split()) or "_"


def spell(words: Sequence[str], first: int, last: int) -> str:
    """The words of a span; of a long span only the first three and the last two."""
    if last - first > 5:
        return " ".join([*map(clip, words[first : first + 3]), "…", *map(clip, words[last - 1 : last + 1])])
    return " ".join(map(clip, words[first : last + 1]))


def clip(word: str, most: int = 30) -> str:
    """The word, cut to at most this number of characters."""
    return word if len(word) <= most else f"{word[: most - 1]}…"


def as_xml(text: str) -> str:
    """The text escaped for XML and HTML, also in attributes. Characters that XML forbids become U+FFFD."""
    return html.escape(FORBIDDEN_IN_XML.sub("\ufffd", text))


def text(content: str, x: float, y: float, size: int) -> str:
    """A text element with its middle at a point. It does without `dominant-baseline`, which not all viewers know."""
    return f'<text x="{number(x)}" y="{number(y + 0.35 * size)}">{as_xml(content)}</text>'


def number(value: float) -> str:
    """A coordinate in whole pixels. Fractions would be invisible and make files a third longer."""
    return str(round(value))


def _check_marks(marks: Mapping[Span, str], nodes: Nodes) -> None:
    constituents = {span for span, children in zip(nodes.spans, nodes.children, strict=True) if children}
    for span, mark in marks.items():
        if mark not in MARKS:
            raise ValueError(f"marks must be one of {', '.join(MARKS)}, got {mark!r} for {span}")
        if span not in constituents:
            raise ValueError(f"marks has {span}, which is not a constituent of the tree")
