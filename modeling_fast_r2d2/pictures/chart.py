"""A chart as a stand-alone SVG: a triangle of cells, darker where a constituent is more probable."""

from collections.abc import Mapping, Sequence

from tokenization_fast_r2d2.trees import Span

from .layout import text_width
from .svg import (
    BAR_COLOUR,
    FONT,
    FONT_FAMILY,
    GAP,
    HALF_WORD,
    LABEL_FONT,
    MARGIN,
    as_xml,
    number,
    picture_size,
    spell,
    text,
    visible,
)

ROW, NARROWEST, LONGEST_WORD = 26, 36, 10  # pixels per row, pixels per column at least, characters
DARKEST = 0.75  # opacity of a cell of probability 1, under its number


def draw_chart(words: Sequence[str], probabilities: Mapping[Span, float], title: str = "") -> str:
    """Draw a chart. The words stand in a row; the cell of a span is above the middle of its words, wider spans higher.

    Args:
        words: the leaves, at least one. Long words are cut.
        probabilities: of spans of two or more words, first and last word inclusive, in 0 ... 1. Other cells stay empty.
        title: the title of the picture; by default the words.

    Returns:
        The SVG as a string.

    Raises:
        ValueError: if there are no words, or if a span lies outside them.
    """
    if not words:
        raise ValueError("a drawing needs at least one word, got none")
    shown = [visible(word) for word in words]
    cut = [word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 1]}…" for word in shown]
    column = max(NARROWEST, *(FONT * text_width(word) + GAP for word in cut))
    cells = [_cell(shown, span, probability, column) for span, probability in sorted(probabilities.items())]
    height = max((last - first for first, last in probabilities), default=0)
    top, bottom = -ROW * height - HALF_WORD - MARGIN, HALF_WORD + MARGIN
    size = picture_size(column * len(words), top, bottom)
    leaves = [text(word, column * (place + 0.5), 0, FONT) for place, word in enumerate(cut)]
    name = f"<title>{as_xml(title or ' '.join(shown))}</title>"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-size="{FONT}" {FONT_FAMILY}>'
    return "".join([start, name, *leaves, f'<g font-size="{LABEL_FONT}">', *cells, "</g></svg>"])


def _cell(words: Sequence[str], span: Span, probability: float, column: float) -> str:
    first, last = span
    if not 0 <= first < last < len(words):
        raise ValueError(
            f"the span {span} lies outside the words; give first and last word, from 0 to {len(words) - 1}"
        )
    x, y = column * (first + last + 1) / 2, -ROW * (last - first)
    corner = f'x="{number(x - column / 2 + 2)}" y="{number(y - ROW / 2 + 2)}"'
    size = f'width="{number(column - 4)}" height="{ROW - 4}" rx="3"'
    paint = f'fill="{BAR_COLOUR}" fill-opacity="{DARKEST * probability:.3f}" stroke="currentColor" stroke-opacity=".25"'
    percent = text(f"{100 * probability:.0f}", x, y, LABEL_FONT) if probability >= 0.005 else ""
    tooltip = f"{spell(words, first, last)}: {probability:.3f}"
    return f'<g data-span="{first} {last}"><title>{as_xml(tooltip)}</title><rect {corner} {size} {paint}/>{percent}</g>'
