"""Binary trees to look at and to compare: spans, brackets, nltk trees, words from pieces, drawings.

Everything here walks with a stack, not by recursion: a tree over 5,000 tokens may be 5,000 deep.
"""

import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Span = tuple[int, int]

ESCAPES = {"(": "-LRB-", ")": "-RRB-", " ": "_"}
DEEPEST_DRAWING = 200  # a deeper one is wider than anyone scrolls


@dataclass(frozen=True)
class BinaryTree:
    """A binary tree over leaves 0 ... n-1, its constituents named by where they split (paper, Section 3.1).

    Args:
        spans: for split point ``k``, between leaves ``k`` and ``k + 1``, the first and last leaf, inclusive, of the
            constituent that splits there; ``n - 1`` of them.

    Raises:
        ValueError: if the spans are no binary tree.
    """

    spans: tuple[Span, ...]

    def __post_init__(self):
        n, seen = self.num_leaves, 0
        owner = {span: split for split, span in enumerate(self.spans)}
        stack = [(0, n - 1)] if n > 1 else []
        while stack:
            i, j = stack.pop()
            split = owner.get((i, j))
            if split is None or not i <= split < j:
                raise ValueError(
                    f"not a binary tree: no split point has the constituent ({i}, {j}); give one span for "
                    "each of the n - 1 split points, as a row of a model's output.spans"
                )
            seen += 1
            stack += [child for child in ((i, split), (split + 1, j)) if child[0] < child[1]]
        if seen != len(self.spans):
            raise ValueError(f"not a binary tree: {len(self.spans)} spans, of which the root reaches {seen}")

    @classmethod
    def from_spans(cls, row) -> "BinaryTree":
        """From a row of ``output.spans``, ``(seq_len - 1, 2)``; what is -1 past the sentence is left out."""
        row = row.tolist() if hasattr(row, "tolist") else row
        return cls(tuple((i, j) for i, j in row if i >= 0))

    @property
    def num_leaves(self) -> int:
        return len(self.spans) + 1

    @cached_property
    def triples(self) -> tuple[tuple[int, int, int], ...]:
        """All constituents ``(i, j, k)``, ``k`` the split point, parents before children and left before right."""
        return tuple(sorted(((i, j, k) for k, (i, j) in enumerate(self.spans)), key=lambda t: (t[0], -t[1])))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """For each split point how many constituents lie above its own."""
        depths, open_ends = [0] * len(self.spans), []
        for i, j, k in self.triples:
            while open_ends and open_ends[-1] < i:
                open_ends.pop()
            depths[k] = len(open_ends)
            open_ends.append(j)
        return tuple(depths)

    @property
    def height(self) -> int:
        """Constituents on the longest way from the root to a leaf; 0 for a single leaf."""
        return max(self.depths, default=-1) + 1

    def brackets(self, words: Sequence[str] | None = None) -> str:
        """Such as ``((the cat) (sat down))``; leaves are numbers without ``words``, brackets in words ``-LRB-``."""
        words = [_escaped(word) for word in self._words(words)]
        opened, closed = [0] * self.num_leaves, [0] * self.num_leaves
        for i, j in self.spans:
            opened[i] += 1
            closed[j] += 1
        return " ".join("(" * o + word + ")" * c for o, word, c in zip(opened, words, closed, strict=True))

    @classmethod
    def from_brackets(cls, text: str) -> tuple["BinaryTree", list[str]]:
        """A tree and its leaves from what `brackets` wrote. Raises ValueError if ``text`` is not that."""
        words, starts, ends, spans = [], [], [], {}
        for token in text.replace("(", " ( ").replace(")", " ) ").split():
            if token == "(":
                starts.append((len(words), len(ends)))
            elif token == ")":
                if not starts or len(ends) - starts[-1][1] != 2:
                    raise ValueError(f"not a binary bracketing, at leaf {len(words)} of {text[:60]!r}")
                start, children = starts.pop()
                spans[ends[children]] = (start, len(words) - 1)
                ends[children:] = [len(words) - 1]
            else:
                ends.append(len(words))
                words.append(token)
        if starts or len(ends) != 1:
            raise ValueError(f"not one binary bracketing: {text[:60]!r}")
        return cls(tuple(spans[k] for k in sorted(spans))), words

    def to_nltk(self, words: Sequence | None = None, label: str = "X"):
        """An `nltk.Tree` whose constituents all have the label. Its own methods recurse: mind very deep trees."""
        from nltk import Tree

        words = self._words(words)
        built: dict[Span, object] = {(t, t): word for t, word in enumerate(words)}
        for i, j, k in reversed(self.triples):  # children before parents
            built[i, j] = Tree(label, [built.pop((i, k)), built.pop((k + 1, j))])
        return built[0, self.num_leaves - 1] if self.spans else Tree(label, [words[0]])

    def to_words(self, word_ids: Sequence[int]) -> "BinaryTree":
        """The tree over words of a tree over their pieces.

        Words that are constituents become leaves. Where a constituent crosses a word, the split points between words
        still tell a tree: of those in a span, the one nearest to the root of this tree splits it; if two are as near,
        the wider constituent's, then the left one.

        Args:
            word_ids: the word of each leaf, never decreasing, as ``BatchEncoding.word_ids()`` has them.
        """
        if len(word_ids) != self.num_leaves:
            raise ValueError(f"word_ids must have one entry a leaf, {self.num_leaves}, got {len(word_ids)}")
        between = [k for k in range(len(self.spans)) if word_ids[k] != word_ids[k + 1]]
        order = [(self.depths[k], self.spans[k][0] - self.spans[k][1], k) for k in between]
        return BinaryTree(_spans_by_order(order))

    def draw(self, words: Sequence[str] | None = None, width: int | None = None) -> str:
        """A drawing for the terminal: from the top down if it fits into ``width`` columns (by default the terminal's),
        else from left to right, a leaf a line; brackets if it is deeper than 200."""
        words = self._words(words)
        if self.height > DEEPEST_DRAWING:
            return self.brackets(words)
        if sum(map(_columns, words)) + len(words) <= (width := width or shutil.get_terminal_size().columns):
            from nltk.tree.prettyprinter import TreePrettyPrinter

            # Numbers as leaves, since the printer takes words of different depth in another order.
            tree = self.to_nltk(range(len(words)), label="•")
            drawing = TreePrettyPrinter(tree, sentence=words).text(unicodelines=True)
            if max(map(_columns, drawing.splitlines())) <= width:
                return "\n".join(line.rstrip() for line in drawing.rstrip().splitlines())
        return _draw_sideways(self, words)

    def _words(self, words: Sequence | None) -> list:
        words = list(map(str, range(self.num_leaves))) if words is None else list(words)
        if len(words) != self.num_leaves:
            raise ValueError(f"the tree has {self.num_leaves} leaves, got {len(words)} words")
        return words


def _escaped(word: str) -> str:
    return "".join(ESCAPES.get(character, character) for character in word) or "_"


def _columns(text: str) -> int:
    """Columns in a terminal: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _spans_by_order(order: list[tuple]) -> tuple[Span, ...]:
    """Split every span where ``order`` is least: each span reaches to the nearest smaller ones on either side."""
    first, last, stack = [0] * len(order), [len(order)] * len(order), []
    for k, key in enumerate(order):
        while stack and order[stack[-1]] > key:
            last[stack.pop()] = k
        first[k] = stack[-1] + 1 if stack else 0
        stack.append(k)
    return tuple(zip(first, last, strict=True))


def _draw_sideways(tree: BinaryTree, words: list[str]) -> str:
    """Root at the left, a leaf a line; the line of a constituent's first leaf is its own."""
    opening: list[list[int]] = [[] for _ in words]  # constituents that begin at a leaf, outermost first
    for i, _, k in tree.triples:
        opening[i].append(k)
    lines, branches = [], []  # branches: the constituents above this line, and whether their right child is to come
    for leaf, word in enumerate(words):
        line = ""
        if leaf:
            while branches[-1] != leaf - 1:
                branches.pop()
            line = "".join("│ " if k >= leaf else "  " for k in branches[:-1]) + "└─"
        branches += opening[leaf]
        lines.append(line + "┬─" * len(opening[leaf]) + " " + word)
    return "\n".join(lines)
