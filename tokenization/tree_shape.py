"""What all trees can do: brackets, NLTK trees and drawings. And trees that are flat where nothing was decided.

Nothing here recurses, since a tree over 5,000 tokens may be 5,000 levels deep.
"""

import re
import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nltk import Tree

Span = tuple[int, int]

DEEPEST_DRAWING = 200  # levels; the drawing of a deeper tree is wider than anyone scrolls


class TreeShape:
    """A tree over the leaves 0 ... n-1, of any arity.

    Methods that show a tree take ``words``, one per leaf, by default the numbers of the leaves. They raise ValueError
    if there are not ``num_leaves`` words.

    Attributes:
        spans: the first and last leaf, inclusive, of each constituent of two or more leaves, in any order. The whole
            sentence is one of them.
    """

    spans: tuple[Span, ...]
    num_leaves: int

    def brackets(self, words: Sequence[str] | None = None) -> str:
        """The tree as a string, such as ``((the cat) (sat down))``. A tree of a single leaf is just its word.

        Args:
            words: brackets in them become ``-LRB-`` and ``-RRB-``, blanks become ``_``, and so does an empty word.
        """
        words = [escaped(word) for word in self._words(words)]
        rows = zip(self._opening(), words, self._closing(), strict=True)
        return " ".join("(" * len(opening) + word + ")" * closing for opening, word, closing in rows)

    def to_nltk(self, words: Sequence[Any] | None = None, label: str = "X") -> "Tree":
        """The tree as an `nltk.Tree`. The methods of NLTK recurse, so they may fail on very deep trees.

        Args:
            label: the label of every constituent.
        """
        from nltk import Tree

        around = [Tree(label, [])]  # the constituents around the next leaf, outermost first
        for opening, word, closing in zip(self._opening(), self._words(words), self._closing(), strict=True):
            for _ in opening:
                around[-1].append(Tree(label, []))
                around.append(around[-1][-1])
            around[-1].append(word)
            del around[len(around) - closing :]
        return around[0][0] if self.spans else around[0]

    def draw(self, words: Sequence[str] | None = None, width: int | None = None) -> str:
        """A drawing for the terminal, with the words in the order of the sentence.

        The root is at the top if the drawing fits into ``width`` columns; otherwise it is at the left, with one leaf
        per line. A tree of more than 200 levels is not drawn but written in brackets, below a line that says so.

        Args:
            width: in columns; by default the width of the terminal, or 80 if there is no terminal.
        """
        words = [" ".join(word.split()) or "_" for word in self._words(words)]
        width = shutil.get_terminal_size().columns if width is None else width
        if self.height > DEEPEST_DRAWING:
            return f"[{self.height} levels deep: in brackets, not drawn]\n{self.brackets(words)}"
        if sum(map(_columns, words)) + len(words) - 1 <= width:  # otherwise it cannot fit
            drawing = self._top_down(words)
            if max(map(_columns, drawing.splitlines())) <= width:
                return drawing
        return self._sideways(words)

    @property
    def height(self) -> int:
        """The number of constituents on the longest path from the root to a leaf; 0 for a single leaf."""
        height = highest = 0
        for opening, closing in zip(self._opening(), self._closing(), strict=True):
            highest = max(highest, height := height + len(opening))
            height -= closing
        return highest

    def _opening(self) -> list[list[Span]]:
        """For each leaf the constituents that begin there, outermost first."""
        opening: list[list[Span]] = [[] for _ in range(self.num_leaves)]
        for span in sorted(self.spans, key=lambda span: -span[1]):
            opening[span[0]].append(span)
        return opening

    def _closing(self) -> list[int]:
        """For each leaf the number of constituents that end there."""
        closing = [0] * self.num_leaves
        for _, last in self.spans:
            closing[last] += 1
        return closing

    def _words(self, words: Sequence[Any] | None) -> list[Any]:
        words = list(map(str, range(self.num_leaves))) if words is None else list(words)
        if len(words) != self.num_leaves:
            raise ValueError(f"the tree has {self.num_leaves} leaves, got {len(words)} words")
        return words

    def _top_down(self, words: list[str]) -> str:
        from nltk.tree.prettyprinter import TreePrettyPrinter

        # The printer counts characters, not columns, so each word is printed as one x per column and filled in
        # afterwards. The leaves are numbers, since the printer sorts other leaves of different depths in another order.
        places = ["x" * max(1, _columns(word)) for word in words]
        printer = TreePrettyPrinter(self.to_nltk(range(len(words)), label="•"), sentence=places)
        *branches, leaves = printer.text(unicodelines=True, maxwidth=None).rstrip().splitlines()
        in_order = iter(words)
        return "\n".join([line.rstrip() for line in branches] + [re.sub("x+", lambda _: next(in_order), leaves)])

    def _sideways(self, words: list[str]) -> str:
        """The root at the left and one leaf per line. A constituent stands on the line of its first leaf."""
        lines: list[str] = []
        ends: list[int] = []  # where the constituents end that began on an earlier line and go on, outermost first
        for leaf, (word, opening) in enumerate(zip(words, self._opening(), strict=True)):
            line = ""
            if leaf:
                while ends[-1] < leaf:
                    ends.pop()
                line = "".join("│ " if inner < outer else "  " for outer, inner in pairwise(ends))
                line += "└─" if ends[-1] == (opening[0][1] if opening else leaf) else "├─"
            ends += [last for _, last in opening]
            lines.append(line + "┬─" * len(opening) + " " + word)
        return "\n".join(lines)


@dataclass(frozen=True)
class FlatTree(TreeShape):
    """A tree of any arity, such as a binary one without the constituents that a parser is not sure of.

    Args:
        num_leaves: at least 1.
        spans: of the constituents, among them the whole sentence if it has two or more leaves; no two may cross.
    """

    num_leaves: int
    spans: tuple[Span, ...]


def escaped(word: str) -> str:
    """The word in the form for a bracketed tree: without blanks and brackets, and never empty."""
    return re.sub(r"\s", "_", word).replace("(", "-LRB-").replace(")", "-RRB-") or "_"


def _columns(text: str) -> int:
    """The columns that a text takes in a terminal: two per wide character, none per combining mark or joiner."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )
