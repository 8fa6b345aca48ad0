"""Binary trees to look at and to compare: spans, brackets, nltk trees, words from pieces, drawings.

Everything here walks with a stack, not by recursion: a tree over 5,000 tokens may be 5,000 deep.
"""

import re
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

Span = tuple[int, int]

UNSAFE_IN_BRACKETS = re.compile(r"[\s()]")
DEEPEST_DRAWING = 200  # a deeper one is wider than anyone scrolls


@dataclass(frozen=True)
class BinaryTree:
    """A binary tree over leaves 0 ... n-1, its constituents named by where they split (paper, Section 3.1).

    Iterating gives all constituents ``(i, j, k)``, parents before children and left before right.

    Args:
        spans: for split point ``k``, between leaves ``k`` and ``k + 1``, the first and last leaf, inclusive,
            of the constituent that splits there; ``n - 1`` of them, none for a single leaf.

    Raises:
        ValueError: if the spans are no binary tree.
    """

    spans: tuple[Span, ...]

    def __post_init__(self):
        owner = {span: split for split, span in enumerate(self.spans)}
        stack = [(0, self.num_leaves - 1)]
        while stack:  # a walk that gets through has split at every split point once
            i, j = stack.pop()
            split = owner.get((i, j), -1)
            if i < j and not i <= split < j:
                raise ValueError(
                    f"not a binary tree: one of the split points {i} ... {j - 1} must have the constituent "
                    f"({i}, {j}), got {', '.join(map(str, self.spans[i:j][:5]))}{', ...' * (j - i > 5)}; "
                    "give one span for each of the n - 1 split points, as a row of a model's output.spans"
                )
            stack += [(i, split), (split + 1, j)] if i < j else []

    @classmethod
    def from_spans(cls, row) -> "BinaryTree":
        """From a row of ``output.spans``, ``(seq_len - 1, 2)``; what is -1 past the sentence is left out."""
        spans = [(int(i), int(j)) for i, j in (row.tolist() if hasattr(row, "tolist") else row)]
        while spans and spans[-1] == (-1, -1):
            spans.pop()
        return cls(tuple(spans))

    @classmethod
    def from_order(cls, order: Sequence) -> "BinaryTree":
        """The tree whose spans each split where ``order``, one entry a split point, is least; ties go to the left."""
        return cls(_spans_by_order(order))

    @property
    def num_leaves(self) -> int:
        return len(self.spans) + 1

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self.triples)

    @cached_property
    def triples(self) -> tuple[tuple[int, int, int], ...]:
        """All constituents ``(i, j, k)``, ``k`` the split point, in the order of iteration."""
        triples = ((i, j, k) for k, (i, j) in enumerate(self.spans))
        return tuple(sorted(triples, key=lambda triple: (triple[0], -triple[1])))

    def constituents(self, trivial: bool = False) -> set[Span]:
        """The spans to score a tree by; those of every tree, the sentence and its leaves, only if trivial."""
        if trivial:
            return {*self.spans, *((leaf, leaf) for leaf in range(self.num_leaves))}
        return set(self.spans) - {(0, self.num_leaves - 1)}

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
        """Such as ``((the cat) (sat down))``; a single leaf is just its word.

        Args:
            words: one a leaf, by default their numbers. Brackets in them become ``-LRB-`` and ``-RRB-``,
                spaces (and an empty word) ``_``.

        Raises:
            ValueError: if there are not ``num_leaves`` words.
        """
        words = [escaped(word) for word in self._words(words)]
        opened, closed = [0] * self.num_leaves, [0] * self.num_leaves
        for i, j in self.spans:
            opened[i] += 1
            closed[j] += 1
        return " ".join("(" * o + word + ")" * c for o, word, c in zip(opened, words, closed, strict=True))

    @classmethod
    def from_brackets(cls, text: str) -> tuple["BinaryTree", list[str]]:
        """A tree and its leaves, still escaped, from what `brackets` wrote; ValueError if it is not that."""
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
        """An `nltk.Tree` whose constituents all have the label. Its own methods recurse: mind deep trees."""
        from nltk import Tree

        words = self._words(words)
        built: dict[Span, object] = {(t, t): word for t, word in enumerate(words)}
        for i, j, k in reversed(self.triples):  # children before parents
            built[i, j] = Tree(label, [built.pop((i, k)), built.pop((k + 1, j))])
        return built[0, self.num_leaves - 1] if self.spans else Tree(label, [words[0]])

    def to_words(self, word_ids: Sequence[int]) -> "BinaryTree":
        """The tree over words of a tree over their pieces.

        Words that are constituents become leaves. Where a constituent crosses a word, the split points
        between words still tell a tree: of those in a span, the one nearest to the root of this tree splits
        it; if two are as near, the wider constituent's, then the left one.

        Args:
            word_ids: the word of each leaf, never decreasing, as ``BatchEncoding.word_ids()`` has them;
                numbers left out are no words.

        Raises:
            ValueError: if ``word_ids`` is of another length, decreases or has None, as special tokens do.
        """
        word_ids = word_ids.tolist() if hasattr(word_ids, "tolist") else list(word_ids)
        if len(word_ids) != self.num_leaves:
            raise ValueError(f"word_ids must have one entry a leaf, {self.num_leaves}, got {len(word_ids)}")
        if None in word_ids or word_ids != sorted(word_ids):
            raise ValueError(f"word_ids must not decrease, nor be None (special tokens), got {word_ids[:20]}")
        between = [k for k in range(len(self.spans)) if word_ids[k] != word_ids[k + 1]]
        first = {0: 0} | {k + 1: word for word, k in enumerate(between, start=1)}
        last = {k: word for word, k in enumerate(between)} | {self.num_leaves - 1: len(between)}
        spans = [(first.get(i), last.get(j)) for i, j in (self.spans[k] for k in between)]
        if all(i is not None and j is not None for i, j in spans):  # no constituent ends within a word
            return self if len(spans) == len(self.spans) else BinaryTree(tuple(spans))
        order = [(self.depths[k], self.spans[k][0] - self.spans[k][1], k) for k in between]
        return BinaryTree.from_order(order)

    def draw(self, words: Sequence[str] | None = None, width: int | None = None) -> str:
        """A drawing for the terminal, its words in the order of the sentence.

        From the top down if that fits into ``width`` columns, else from left to right, a leaf a line.
        A tree deeper than 200 is written in brackets, below a line that says so.

        Args:
            words: one a leaf, by default their numbers.
            width: in columns; by default the terminal's, 80 where there is none, as in a pipe.

        Raises:
            ValueError: if there are not ``num_leaves`` words.
        """
        words = [" ".join(word.split()) or "_" for word in self._words(words)]
        width = shutil.get_terminal_size().columns if width is None else width
        if self.height > DEEPEST_DRAWING:
            return f"[{self.height} levels deep, in brackets instead of drawn]\n{self.brackets(words)}"
        if sum(map(_columns, words)) + len(words) - 1 <= width:  # else no need to try
            drawing = _draw_top_down(self, words)
            if max(map(_columns, drawing.splitlines())) <= width:
                return drawing
        return _draw_sideways(self, words)

    def _words(self, words: Sequence | None) -> list:
        words = list(map(str, range(self.num_leaves))) if words is None else list(words)
        if len(words) != self.num_leaves:
            raise ValueError(f"the tree has {self.num_leaves} leaves, got {len(words)} words")
        return words


def escaped(word: str) -> str:
    """The word as it can stand in a bracketed tree."""
    if word and not UNSAFE_IN_BRACKETS.search(word):
        return word
    return re.sub(r"\s", "_", word).replace("(", "-LRB-").replace(")", "-RRB-") or "_"


def _columns(text: str) -> int:
    """Columns in a terminal: wide characters take two; combining marks and joiners none."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def _spans_by_order(order: Sequence) -> tuple[Span, ...]:
    """Split every span where ``order`` is least: each reaches to the nearest smaller ones on either side."""
    first, last, stack = [0] * len(order), [len(order)] * len(order), []
    for k, key in enumerate(order):
        while stack and order[stack[-1]] > key:
            last[stack.pop()] = k
        first[k] = stack[-1] + 1 if stack else 0
        stack.append(k)
    return tuple(zip(first, last, strict=True))


def _draw_top_down(tree: BinaryTree, words: list[str]) -> str:
    from nltk.tree.prettyprinter import TreePrettyPrinter

    # The printer counts characters, not columns: it gets an x for each column, replaced afterwards.
    # Numbers as leaves, since it takes words of different depth in another order.
    places = ["x" * max(1, _columns(word)) for word in words]
    printer = TreePrettyPrinter(tree.to_nltk(range(len(words)), label="•"), sentence=places)
    *branches, leaves = printer.text(unicodelines=True, maxwidth=None).rstrip().splitlines()
    in_order = iter(words)
    return "\n".join([line.rstrip() for line in branches] + [re.sub("x+", lambda _: next(in_order), leaves)])


def _draw_sideways(tree: BinaryTree, words: list[str]) -> str:
    """Root at the left, a leaf a line; the line of a constituent's first leaf is its own."""
    opening: list[list[int]] = [[] for _ in words]  # constituents that begin at a leaf, outermost first
    for i, _, k in tree.triples:
        opening[i].append(k)
    lines, branches = [], []  # branches: the constituents whose line is above, outermost first
    for leaf, word in enumerate(words):
        line = ""
        if leaf:
            while branches[-1] != leaf - 1:
                branches.pop()
            line = "".join("│ " if k >= leaf else "  " for k in branches[:-1]) + "└─"
        branches += opening[leaf]
        lines.append(line + "┬─" * len(opening[leaf]) + " " + word)
    return "\n".join(lines)
