"""Binary trees: from spans, scores and brackets, over words from trees over pieces, with marks put back.

Nothing here recurses, since a tree over 5,000 tokens may be 5,000 levels deep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from numbers import Real
from typing import TYPE_CHECKING, Any

from .tree_shape import FlatTree, Span, TreeShape

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True)
class BinaryTree(TreeShape):
    """A binary tree over the leaves 0 ... n-1 (paper, Section 3.1).

    Each constituent is named by the split point at which it splits; split point ``k`` lies between leaves ``k`` and
    ``k + 1``. Iteration gives all constituents ``(i, j, k)``, parents before children and left before right.

    Args:
        spans: for each of the ``n - 1`` split points, the first and last leaf, inclusive, of the constituent that
            splits there. A single leaf has no spans.

    Raises:
        ValueError: if the spans are not those of one binary tree.
    """

    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        split_of = {span: split for split, span in enumerate(self.spans)}
        stack = [(0, self.num_leaves - 1)]
        while stack:  # a complete walk has used every split point once
            i, j = stack.pop()
            split = split_of.get((i, j), -1)
            if i < j and not i <= split < j:
                raise ValueError(
                    f"not a binary tree: one of the split points {i} ... {j - 1} must have the constituent "
                    f"({i}, {j}), got {', '.join(map(str, self.spans[i:j][:5]))}{', ...' * (j - i > 5)}; "
                    "give one span for each of the n - 1 split points, like a row of a model's output.spans"
                )
            stack += [(i, split), (split + 1, j)] if i < j else []

    @classmethod
    def from_spans(cls, row: "Tensor | np.ndarray | Sequence[Span]") -> "BinaryTree":
        """The tree of one sentence of a model's output.

        Args:
            row: a row of ``output.spans``, ``(seq_len - 1, 2)``; the padding of -1 past the sentence is ignored.
        """
        spans = [(int(i), int(j)) for i, j in (row.tolist() if hasattr(row, "tolist") else row)]
        while spans and spans[-1] == (-1, -1):
            spans.pop()
        return cls(tuple(spans))

    @classmethod
    def from_order(cls, order: Sequence[Any]) -> "BinaryTree":
        """The tree in which every span splits at its smallest entry of ``order``.

        Args:
            order: one entry per split point; entries must be comparable. Of equal entries the left one splits first.
        """
        first, last = [0] * len(order), [len(order)] * len(order)  # a span reaches to smaller entries on both sides
        stack: list[int] = []
        for k, key in enumerate(order):
            while stack and order[stack[-1]] > key:
                last[stack.pop()] = k
            first[k] = stack[-1] + 1 if stack else 0
            stack.append(k)
        return cls(tuple(zip(first, last, strict=True)))

    @classmethod
    def from_split_scores(cls, scores: Sequence[float], word_ids: Sequence[int] | None = None) -> "BinaryTree":
        """The tree in which every span splits at its highest score, as a model does it (paper, Section 3.1).

        Args:
            scores: one per split point, of a sentence without padding. Of equal scores the right one splits first.
            word_ids: the word number of each leaf; split points within a word come after all others.
        """
        word_ids = range(len(scores) + 1) if word_ids is None else word_ids
        return cls.from_order([(word_ids[k] == word_ids[k + 1], -score, -k) for k, score in enumerate(scores)])

    @property
    def num_leaves(self) -> int:  # type: ignore[override]  # spans tell it
        return len(self.spans) + 1

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(self.triples)

    @cached_property
    def triples(self) -> tuple[tuple[int, int, int], ...]:
        """All constituents ``(i, j, k)`` with their split points ``k``, in the order of iteration."""
        triples = ((i, j, k) for k, (i, j) in enumerate(self.spans))
        return tuple(sorted(triples, key=lambda triple: (triple[0], -triple[1])))

    def flat(self, confidences: "np.ndarray", min_confidence: float) -> FlatTree:
        """The tree without constituents that are less sure, whose children go to the constituents around them.

        Args:
            confidences: ``(leaves - 1,)``, in the order of ``spans``; 1 for the whole sentence.
            min_confidence: from 0, which keeps all, to 1.

        Raises:
            ValueError: for another number.
        """
        are_kept = confidences >= check_min_confidence(min_confidence)
        return FlatTree(self.num_leaves, tuple(compress(self.spans, are_kept)))

    def constituents(self, trivial: bool = False) -> set[Span]:
        """The spans by which a tree is scored.

        Args:
            trivial: include the spans that every tree has: the whole sentence and the single leaves.
        """
        if trivial:
            return {*self.spans, *((leaf, leaf) for leaf in range(self.num_leaves))}
        return set(self.spans) - {(0, self.num_leaves - 1)}

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """For each split point, the one of the constituent right above; -1 for that of the root."""
        parents = [-1] * len(self.spans)
        around: list[int] = []  # the split points of the constituents around the current one, outermost first
        for i, _, k in self.triples:
            while around and self.spans[around[-1]][1] < i:
                around.pop()
            parents[k] = around[-1] if around else -1
            around.append(k)
        return tuple(parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """For each split point, the number of constituents above the one that splits there."""
        depths = {-1: -1}
        for _, _, k in self.triples:
            depths[k] = depths[self.parents[k]] + 1
        return tuple(depths[k] for k in range(len(self.spans)))

    @classmethod
    def from_brackets(cls, text: str) -> tuple["BinaryTree", list[str]]:
        """Read a string that `brackets` wrote.

        Returns:
            The tree, and its leaves. Brackets and blanks in them stay escaped.

        Raises:
            ValueError: if the string is not one binary bracketing.
        """
        words: list[str] = []
        depths: list[int] = []  # of the split points
        children = [0]  # their number so far in each open bracket; the first is that of the whole string
        for token in text.replace("(", " ( ").replace(")", " ) ").split():
            if token == ")":
                if children.pop() != 2 or not children:
                    raise ValueError(f"not a binary bracketing, at leaf {len(words)} of {text[:60]!r}")
                continue
            children[-1] += 1
            if children[-1] == 2:
                depths.append(len(children))
            if token == "(":
                children.append(0)
            else:
                words.append(token)
        if children != [1]:
            raise ValueError(f"not one binary bracketing: {text[:60]!r}")
        return cls.from_order(depths), words

    def to_words(self, word_ids: Sequence[int]) -> "BinaryTree":
        """The tree over words, from this tree over their pieces.

        A word that is a constituent becomes a leaf. Where a constituent crosses a word, the split points between words
        decide: every span splits at the one that is nearest to the root of this tree. If two are equally near, the
        split point of the wider constituent goes first, then the left one.

        Args:
            word_ids: the word number of each leaf, never decreasing, as ``BatchEncoding.word_ids()`` returns them.
                Numbers may be missing.

        Raises:
            ValueError: if ``word_ids`` has another length, decreases, or has None, which stands for special tokens.
        """
        word_ids = word_ids.tolist() if hasattr(word_ids, "tolist") else list(word_ids)
        if len(word_ids) != self.num_leaves:
            raise ValueError(f"word_ids must have one entry per leaf, {self.num_leaves}, got {len(word_ids)}")
        if None in word_ids or word_ids != sorted(word_ids):
            raise ValueError(f"word_ids must not decrease, nor be None (special tokens), got {word_ids[:20]}")
        between = [k for k in range(len(self.spans)) if word_ids[k] != word_ids[k + 1]]
        first = {0: 0} | {k + 1: word for word, k in enumerate(between, start=1)}
        last = {k: word for word, k in enumerate(between)} | {self.num_leaves - 1: len(between)}
        spans = [self.spans[k] for k in between]
        if any(i not in first or j not in last for i, j in spans):  # a constituent begins or ends within a word
            return BinaryTree.from_order([(self.depths[k], i - j, k) for k, (i, j) in zip(between, spans, strict=True)])
        return self if len(spans) == len(self.spans) else BinaryTree(tuple((first[i], last[j]) for i, j in spans))


def put_back(
    tree: BinaryTree, places: Sequence[int], opens: Sequence[bool], pairs: Sequence[tuple[int, int]] = ()
) -> BinaryTree:
    """Put marks back into a tree over the words. All constituents of the words remain.

    Two marks around a constituent, as in ``(so they say)``, are a constituent with it and the marks between them. Any
    other mark becomes the sister of the widest constituent that ends just before it; one that opens, of the widest that
    begins just after it. Those at the two ends of the sentence are attached to the whole sentence, first those at its
    beginning, then those at its end.

    Args:
        tree: the tree over the words.
        places: for each mark, in order, the number of words before it.
        opens: for each mark, whether it belongs to the words after it, as ``(`` does.
        pairs: the marks that open and close a passage, as two numbers; they may lie within one another.

    Returns:
        The tree over words and marks.
    """
    depths = (-1, *tree.depths, -1)  # of the split point at each place
    around = _keys_around_constituents(depths, places, pairs)
    closing = {mark for opening, mark in pairs if mark in around and places[opening] < places[mark]}
    marks: list[list[int]] = [[] for _ in depths]
    for mark, place in enumerate(places):
        marks[place].append(mark)
    # One entry per split point; the smallest splits first.
    order: list[tuple[float, ...]] = [around.get(mark, (-1, number)) for number, mark in enumerate(marks[0])]
    for depth, here in zip(depths[1:-1], marks[1:-1], strict=True):
        of_left = [number for number, mark in enumerate(here, start=1) if mark in closing]
        cut = max([next((number for number, mark in enumerate(here) if opens[mark]), len(here)), *of_left])
        here = [*here[:cut], -1, *here[cut:]]  # between the words
        order += [around.get(mark, (depth, abs(number - cut))) for number, mark in enumerate(here)]
    order += [around.get(mark, (-2, -number)) for number, mark in enumerate(marks[-1])]
    return BinaryTree.from_order(order)


def _keys_around_constituents(
    depths: Sequence[int], places: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> dict[int, tuple[float, ...]]:
    """The order of the split points at marks of pairs around constituents, and at marks between these and the words.

    They split after all constituents around, before the one within, and from the outer marks to the inner ones.
    """
    keys: dict[int, tuple[float, ...]] = {}
    for number, (opening, closing) in enumerate(sorted(pairs)):
        first, last = places[opening], places[closing]
        depth = max(depths[first], depths[last]) + 0.5
        if first < last and all(depth < inner for inner in depths[first + 1 : last]):
            within = [mark for mark in range(opening + 1, closing) if places[mark] in (first, last)]
            keys |= {closing: (depth, number, 0), opening: (depth, number, 1)}
            for mark in within:
                keys[mark] = (depth, number, 1 + (mark - opening if places[mark] == first else closing - mark))
    return keys


def check_min_confidence(value: float) -> float:
    """The value, if it is from 0 to 1; else a ValueError."""
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"min_confidence must be from 0 to 1, got {value!r}")
    return value
