"""Where the words and the constituents of a tree stand in a drawing: numbers alone, no mark-up.

Nothing here recurses: a tree over 2,000 words may be 2,000 deep.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from ..grammar_induction.labelled_trees import Constituent, Span

BROAD_LETTERS = frozenset("mwMW@%—…")


@dataclass(frozen=True)
class Nodes:
    """The words, numbered from 0, then the constituents, children before parents and left before right.

    Attributes:
        spans: first and last word of each node.
        labels: of each node, ``S+VP`` of a unary chain, the outer one first; empty for words.
        children: of each node, left to right; none of a word.
        heights: 0 of a word, else one more than the highest child's.
        roots: the nodes below no other, left to right.
    """

    spans: list[Span]
    labels: list[str]
    children: list[list[int]]
    heights: list[int]
    roots: list[int]


def nodes_of(num_words: int, constituents: Iterable[Constituent]) -> Nodes:
    """The nodes of a tree of any arity, or of several beside each other.

    Args:
        constituents: in any order; those of one span are a unary chain, the inner one first.

    Raises:
        ValueError: naming the spans, if one lies outside the words or two cross.
    """
    chains = _chains(num_words, constituents)
    spans = [(word, word) for word in range(num_words)]
    children: list[list[int]] = [[] for _ in spans]
    heights, roots = [0] * num_words, []
    next_word = 0
    for first, last in sorted(chains, key=lambda span: (span[1], -span[0])):
        roots += range(next_word, last + 1)
        next_word = last + 1
        start = len(roots)
        while start and spans[roots[start - 1]][0] >= first:
            start -= 1
        if spans[roots[start]][0] != first:  # a node that has already taken the first word has not taken the last
            raise ValueError(f"no tree: the spans {spans[roots[start - 1]]} and {(first, last)} cross")
        children.append(roots[start:])
        heights.append(1 + max(heights[child] for child in children[-1]))
        roots[start:] = [len(spans)]
        spans.append((first, last))
    labels = [""] * num_words + ["+".join(filter(None, reversed(chains[span]))) for span in spans[num_words:]]
    return Nodes(spans, labels, children, heights, [*roots, *range(next_word, num_words)])


def _chains(num_words: int, constituents: Iterable[Constituent]) -> dict[Span, list[str]]:
    """The labels of each span."""
    chains: dict[Span, list[str]] = {}
    for first, last, label in constituents:
        if not 0 <= first <= last < num_words:
            raise ValueError(
                f"the span {(int(first), int(last))} lies outside the words; "
                f"give first and last word, from 0 to {num_words - 1}"
            )
        chains.setdefault((int(first), int(last)), []).append(label)
    return chains


def place(nodes: Nodes, widths: Sequence[float]) -> tuple[list[float], list[float]]:
    """Columns as narrow as they can be while no two texts share room.

    Args:
        widths: ``(nodes,)`` what the text of each node takes.

    Returns:
        The middle of each node's text, ``(nodes,)``, over the node's own words; and ``(words + 1,)`` where the columns
        of words begin, and the last one ends.
    """
    lefts, boxes = _boxes(nodes, widths)
    middles: list[float] = []
    for children, left, box, width in zip(nodes.children, lefts, boxes, widths, strict=True):
        middle = (middles[children[0]] + middles[children[-1]]) / 2 if children else left + box / 2
        middles.append(min(max(middle, left + width / 2), left + box - width / 2))
    num_words = nodes.spans[nodes.roots[-1]][1] + 1
    return middles, [*lefts[:num_words], lefts[num_words - 1] + boxes[num_words - 1]]


def _boxes(nodes: Nodes, widths: Sequence[float]) -> tuple[list[float], list[float]]:
    """Left edge and width of what belongs to each node alone, from top to bottom."""
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
    """For every score a height, 0.1 for the least ... 1 for the greatest, by its distance from both.

    An infinite score is as if it were a quarter of the range beyond the finite ones; equal scores have height 1.

    Raises:
        ValueError: if one is NaN.
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
    """About how wide a text is, in units of its font's size; the drawing cannot measure what a reader's fonts make."""
    return sum(map(_character_width, text))


@cache
def _character_width(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.1
    return 0.95 if character in BROAD_LETTERS else 0.7 if character.isupper() else 0.58
