"""A tree as an SVG that needs nothing else: no fonts, no style sheet, no script."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..grammar_induction.labelled_trees import Constituent, Span
from .layout import Nodes, bar_heights, nodes_of, place, text_width

# Colours of Okabe and Ito that stand out from white and black alike; the lines differ without them, too.
MARKS = {
    "matched": ("#0072B2", 'stroke-width="2"'),
    "missed": ("#D55E00", 'stroke-width="2" stroke-dasharray="7 4"'),
    "wrong": ("#CC79A7", 'stroke-width="2.5" stroke-dasharray="0 5" stroke-linecap="round"'),
}
UNMARKED = ("currentColor", 'stroke-width="1.5"')
BAR_COLOUR = "#0072B2"
FORBIDDEN_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

FONT, LABEL_FONT, GAP = 14, 12, 12  # sizes of words and labels; room between two texts
LEVEL, PLAIN_LEVEL = 38, 24  # from a node down to its highest child, with and without labels
HALF_WORD, HALF_LABEL, TO_BAR = 11, 8, 16  # from the middle of a text to the lines that end at it or leave it
MARGIN, BAR_AREA, BAR_WIDTH = 10, 44, 8


def draw_tree(
    words: Sequence[str],
    constituents: Iterable[Constituent],
    split_scores: Sequence[float] | None = None,
    *,
    marks: Mapping[Span, str] | None = None,
    title: str = "",
) -> str:
    """A stand-alone SVG of a tree of any arity: its words in a row, every constituent above what it is made of.

    Args:
        words: the leaves, at least one.
        constituents: such as ``LabelledTree.constituents``, or any ``(first, last, label)``; labels may be empty.
            Several of one span, the inner one first, are one node.
        split_scores: ``(words - 1,)``, may be infinite: below the words, bars between them, the higher the earlier the
            parser splits there (paper, Figure 3), scaled to the sentence's own range.
        marks: for some of the spans ``"matched"``, ``"missed"`` or ``"wrong"``: shown by colour, by line and in the
            text that a browser shows above the node.
        title: by default the words.

    Raises:
        ValueError: naming the spans that cross or lie outside the words, or marks of no node; for no words, or for
            scores of another number or that are NaN.
    """
    scores = None if split_scores is None else [float(score) for score in split_scores]
    if scores is not None and len(scores) != len(words) - 1:
        raise ValueError(f"split_scores must be {len(words) - 1}, one between two words, got {len(scores)}")
    return Drawing(words, constituents, marks or {}).svg(title, scores or ())


class Drawing:
    """A tree with its words in row 0, so that what is above them has the same numbers in all drawings.

    Args:
        words, constituents, marks: as for `draw_tree`, and as it raises.
        columns: those of another drawing of the same words, to be looked at together; here they are no narrower.
    """

    def __init__(
        self,
        words: Sequence[str],
        constituents: Iterable[Constituent],
        marks: Mapping[Span, str],
        columns: Sequence[float] | None = None,
    ):
        if not words:
            raise ValueError("a drawing needs at least one word, got none")
        self.words, self.marks = [visible(word) for word in words], marks
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
        """``(words,)`` pixels, how wide the column of each word is."""
        return [right - left for left, right in zip(self.edges, self.edges[1:], strict=False)]

    def svg(self, title: str = "", scores: Sequence[float] = ()) -> str:
        """The drawing; the arguments are those of `draw_tree`."""
        top, bottom = min(self.rows) - HALF_WORD - MARGIN, HALF_WORD + MARGIN
        bars = self.bars(scores, bottom) if scores else ()
        bottom += BAR_AREA + MARGIN if scores else 0
        width, height = number(self.edges[-1]), bottom - top
        size = f'width="{width}" height="{height}" viewBox="0 {top} {width} {height}"'
        font = f'font-family="system-ui, sans-serif" font-size="{FONT}" text-anchor="middle" fill="currentColor"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {font}>',
            f"<title>{as_xml(visible(title or ' '.join(self.words)))}</title>",
            *(text(word, x, 0, FONT) for word, x in zip(self.words, self.middles, strict=False)),
            f'<g font-size="{LABEL_FONT}" stroke-linejoin="round">',
            *map(self.node, reversed(range(len(self.words), len(self.rows)))),  # children cover the ends of lines
            *("</g>", *bars, "</svg>"),
        ]
        return "".join(parts)

    def node(self, node: int) -> str:
        span, label, x, y = self.nodes.spans[node], self.labels[node], self.middles[node], self.rows[node]
        mark = self.marks.get(span, "")
        colour, line = MARKS[mark] if mark else UNMARKED
        name = f"{label}{': ' * bool(label)}{spell(self.words, *span)}{f' ({mark})' * bool(mark)}"
        knob = f'<circle cx="{number(x)}" cy="{number(y)}" r="3" fill="{colour}"/>'
        return (
            f'<g data-span="{span[0]} {span[1]}"><title>{as_xml(name)}</title>'
            f'<path d="{self.lines(node)}" fill="none" stroke="{colour}" {line}/>'
            f"{text(label, x, y, LABEL_FONT) if label else knob}</g>"
        )

    def lines(self, node: int) -> str:
        """Down to a bar, and from the bar down to each child; with the outer children, the bar is one line."""
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
        """Where the line from the parent ends."""
        if node < len(self.words):
            return self.rows[node] - HALF_WORD
        return self.rows[node] - (HALF_LABEL if self.labels[node] else 0)

    def bars(self, scores: Sequence[float], top: float) -> Iterator[str]:
        base = top + BAR_AREA
        yield f'<g fill="{BAR_COLOUR}">'
        for split, height in enumerate(bar_heights(scores)):
            corner = f'x="{number(self.edges[split + 1] - BAR_WIDTH / 2)}" y="{number(base - height * BAR_AREA)}"'
            between = f"{clip(self.words[split])} | {clip(self.words[split + 1])}: {scores[split]:.4g}"
            yield f'<rect {corner} width="{BAR_WIDTH}" height="{number(height * BAR_AREA)}">'
            yield f"<title>{as_xml(between)}</title></rect>"
        yield f'</g><path d="M0 {number(base)}H{number(self.edges[-1])}" stroke="currentColor" opacity=".5"/>'


def visible(word: str) -> str:
    """The word on one line; a dash below for one without a character."""
    return " ".join(word.split()) or "_"


def spell(words: Sequence[str], first: int, last: int) -> str:
    """The words of a span, of long ones the first and the last."""
    if last - first > 5:
        return " ".join([*map(clip, words[first : first + 3]), "…", *map(clip, words[last - 1 : last + 1])])
    return " ".join(map(clip, words[first : last + 1]))


def clip(word: str) -> str:
    return word if len(word) <= 30 else f"{word[:29]}…"


def as_xml(text: str) -> str:
    """Escaped, for XML, HTML and attributes; what XML forbids becomes U+FFFD."""
    return html.escape(FORBIDDEN_IN_XML.sub("\ufffd", text))


def text(content: str, x: float, y: float, size: int) -> str:
    """Its middle at a point, in any viewer: not all know other baselines."""
    return f'<text x="{number(x)}" y="{number(y + 0.35 * size)}">{as_xml(content)}</text>'


def number(value: float) -> str:
    return str(round(value))  # whole pixels: a fraction shows nowhere and makes long drawings a third longer


def _check_marks(marks: Mapping[Span, str], nodes: Nodes) -> None:
    constituents = {span for span, children in zip(nodes.spans, nodes.children, strict=True) if children}
    for span, mark in marks.items():
        if mark not in MARKS:
            raise ValueError(f"marks must be of {', '.join(MARKS)}, got {mark!r} for {span}")
        if span not in constituents:
            raise ValueError(f"marks has {span}, which is no constituent of the tree")
