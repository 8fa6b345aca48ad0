"""The layout of a drawing: the positions of the words and constituents of a tree. It makes no mark-up.

Nothing here recurses, since a tree over 2,000 words may be 2,000 levels deep.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from ..grammar_induction.labelled_trees import LabelledSpan, Span, check_spans

BROAD_LETTERS = frozenset("mwMW@%—…")


@dataclass(frozen=True)
class Nodes:
    """The nodes of a tree: first the words, then the constituents, children before parents and left before right.

    Attributes:
        spans: the first and last word of each node.
        labels: the label of each node; ``S+VP`` for a unary chain, with the outer label first; empty for words.
        children: the numbers of the children of each node, from left to right; none for a word.
        heights: 0 for a word; for a constituent, one more than the greatest height of its children.
        roots: the nodes that have no parent, from left to right.
    """

    spans: list[Span]
    labels: list[str]
    children: list[list[int]]
    heights: list[int]
    roots: list[int]


def nodes_of(num_words: int, constituents: Iterable[LabelledSpan]) -> Nodes:
    """The nodes of a tree of any arity, or of several trees side by side.

    Args:
        num_words: the number of words.
        constituents: in any order. Constituents with the same span are a unary chain, the inner one first.

    Raises:
        ValueError: if a span lies outside the words, or if two spans cross. The message names the spans.
    """
    chains: dict[Span, list[str]] = {}  # the labels of each span
    for first, last, label in constituents:
        chains.setdefault((int(first), int(last)), []).append(label)
    check_spans(list(chains), num_words, "not a tree")
    spans = [(word, word) for word in range(num_words)]
    children: list[list[int]] = [[] for _ in spans]
    heights = [0] * num_words
    roots: list[int] = []
    next_word = 0
    for first, last in sorted(chains, key=lambda span: (span[1], -span[0])):
        roots += range(next_word, last + 1)
        next_word = last + 1
        start = len(roots)
        while start and spans[roots[start - 1]][0] >= first:
            start -= 1
        children.append(roots[start:])
        heights.append(1 + max(heights[child] for child in children[-1]))
        roots[start:] = [len(spans)]
        spans.append((first, last))
    labels = [""] * num_words + ["+".join(filter(None, reversed(chains[span]))) for span in spans[num_words:]]
    return Nodes(spans, labels, children, heights, [*roots, *range(next_word, num_words)])


def place(nodes: Nodes, widths: Sequence[float]) -> tuple[list[float], list[float]]:
    """Place words and constituents horizontally: columns are as narrow as possible, and no two texts overlap.

    Args:
        nodes: the nodes of the tree.
        widths: ``(nodes,)``, the width of the text of each node.

    Returns:
        The middle of the text of each node, ``(nodes,)``, and the edges of the words' columns, ``(words + 1,)``, both
        in the unit of the widths. The text of a node is above or below its own words.
    """
    lefts, boxes = _boxes(nodes, widths)
    middles: list[float] = []
    for children, left, box, width in zip(nodes.children, lefts, boxes, widths, strict=True):
        middle = (middles[children[0]] + middles[children[-1]]) / 2 if children else left + box / 2
        middles.append(min(max(middle, left + width / 2), left + box - width / 2))
    num_words = nodes.spans[nodes.roots[-1]][1] + 1
    return middles, [*lefts[:num_words], lefts[num_words - 1] + boxes[num_words - 1]]


def _boxes(nodes: Nodes, widths: Sequence[float]) -> tuple[list[float], list[float]]:
    """The left edge and the width of the strip of the drawing that belongs to each node."""
    boxes = list(widths)
    for node, children in enumerate(nodes.children):
        boxes[node] = max(boxes[node], sum(boxes[child] for child in children))
    lefts, right = [0.0] * len(boxes), 0.0
    for root in nodes.roots:
        lefts[root], right = right, right + boxes[root]
    for node in reversed(range(len(boxes))):  # parents before children
        children, left = nodes.children[node], lefts[node]
        surplus = boxes[node] - sum(boxes[child] for child in children)
        for child in children:
            boxes[child] += surplus / len(children)
            lefts[child], left = left, left + boxes[child]
    return lefts, boxes


def bar_heights(scores: Sequence[float]) -> list[float]:
    """The heights of bars for scores, linear from 0.1 for the smallest score to 1 for the greatest.

    An infinite score is drawn as if it were a quarter of the range beyond the finite ones. If all scores are equal, the
    bars have height 1.

    Raises:
        ValueError: if a score is NaN.
    """
    if any(score != score for score in scores):
        raise ValueError(f"split_scores must not be NaN, got {list(scores)[:8]}")
    infinite = float("inf")
    finite = [score for score in scores if abs(score) != infinite]
    unit = max(map(abs, finite), default=0) or 1.0  # the difference of two large scores may be infinite
    low, high = min(finite, default=0) / unit, max(finite, default=0) / unit
    beyond = (high - low) / 4 or 1.0
    values = [min(max(score / unit, low - beyond), high + beyond) for score in scores]
    least, span = min(values, default=0), max(values, default=0) - min(values, default=0)
    return [0.1 + 0.9 * (value - least) / span if span else 1.0 for value in values]


def text_width(text: str) -> float:
    """The approximate width of a text, in units of its font size. The fonts of the reader are not known here."""
    return sum(map(_character_width, text))


@cache
def _character_width(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.1
    return 0.95 if character in BROAD_LETTERS else 0.7 if character.isupper() else 0.58
