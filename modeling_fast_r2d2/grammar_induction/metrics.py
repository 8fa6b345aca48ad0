"""Unlabeled F1 of trees against gold trees, by three conventions, and recall by label."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenization_fast_r2d2.words import word_spans

from .alignment import align
from .labelled_trees import LabelledTree, Span

PROPER_NOUN_TAGS = frozenset({"NNP", "NR"})  # in the Penn and the Chinese Treebank
LENGTHS = (10, 20, 30, 40)  # words; the upper ends of the ranges for F1 by length


@dataclass(frozen=True)
class Scores:
    """Scores over the sentences of two or more words. The span of a whole sentence never counts.

    ``sentence_f1`` and ``corpus_f1`` follow the convention of ``compare_trees.py`` in harvardnlp's compound-pcfg (Kim
    et al., 2019): if a sentence has no other gold span, its recall is 1, and its precision is 1 if no other span was
    predicted. ``strict_sentence_f1`` leaves such sentences out of the mean. The ``script_`` figures count exactly as
    the script does: of a unary chain around the whole sentence, it removes only the outermost constituent, so that a
    binary tree misses the others.

    Attributes:
        rows: ``(sentences,)`` long, the numbers of these sentences among the given ones.
        lengths: ``(sentences,)`` long, the number of gold words.
        counts: ``(sentences, 3)`` long, the numbers of shared, predicted and gold spans.
        script_counts: the same numbers as the script counts them.
        labels: for each label, how many of its gold constituents were predicted, and how many there are. The label
            ``WD`` stands for words of several pieces, ``NNP chunk`` for adjacent proper nouns (paper, Table 2).
    """

    rows: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    script_counts: np.ndarray
    labels: dict[str, tuple[int, int]]

    @cached_property
    def sentence_f1s(self) -> np.ndarray:
        """``(sentences,)`` float64, F1 of each sentence, from 0 to 100."""
        return _f1_of_each(self.counts)

    @property
    def sentence_f1(self) -> float:
        """Mean F1 over sentences, from 0 to 100: the figure that papers report."""
        return float(self.sentence_f1s.mean())

    @property
    def corpus_f1(self) -> float:
        """F1 over all spans of all sentences together, from 0 to 100."""
        return _f1_of_all(self.counts)

    @property
    def strict_sentence_f1(self) -> float:
        """Mean F1 over the sentences that have a gold span, from 0 to 100; NaN if there is none."""
        scored = self.sentence_f1s[self.counts[:, 2] > 0]
        return float(scored.mean()) if len(scored) else float("nan")

    @property
    def script_sentence_f1(self) -> float:
        """Mean F1 over sentences as the script counts, from 0 to 100."""
        return float(_f1_of_each(self.script_counts).mean())

    @property
    def script_corpus_f1(self) -> float:
        """F1 over all spans together as the script counts, from 0 to 100."""
        return _f1_of_all(self.script_counts)

    def recall(self, label: str) -> float:
        """Recall of the gold constituents with a label, from 0 to 100; NaN if there is none."""
        found, total = self.labels.get(label, (0, 0))
        return 100 * found / total if total else float("nan")

    def by_length(self) -> dict[str, tuple[float, int]]:
        """Sentence F1, from 0 to 100, and the number of sentences for each range of lengths that has sentences, by the
        names of the ranges, such as ``11-20`` and ``over 40``."""
        edges = [1, *LENGTHS, np.iinfo(np.int64).max]
        buckets = {}
        for low, high in zip(edges, edges[1:], strict=False):
            inside = (self.lengths > low) & (self.lengths <= high)
            name = f"{low + 1}-{high}" if high != edges[-1] else f"over {low}"
            if inside.any():
                buckets[name] = float(self.sentence_f1s[inside].mean()), int(inside.sum())
        return buckets

    def confidence_interval(self, samples: int = 1000) -> tuple[float, float]:
        """A bootstrap interval for sentence F1, both ends from 0 to 100: its 2.5th and 97.5th percentile on samples of
        the sentences, drawn with replacement."""
        random = np.random.default_rng(0)
        count = len(self.rows)
        means = [self.sentence_f1s[random.integers(count, size=count)].mean() for _ in range(samples)]
        low, high = np.percentile(means, [2.5, 97.5])
        return float(low), float(high)


def score_trees(
    predicted: Sequence[LabelledTree],
    gold: Sequence[LabelledTree],
    granularity: str = "words",
    max_length: int | None = None,
) -> Scores:
    """Score predicted trees against gold trees. Neither need be binary.

    Args:
        predicted, gold, granularity: as for `align`, with the same errors.
        max_length: score only sentences of at most this number of gold words; None scores all.

    Raises:
        ValueError: if ``max_length`` is below 2, or if there is no sentence of two or more words, and of at most that
            many, to score.
    """
    predicted, expected = align(predicted, gold, granularity)
    if max_length is not None and max_length < 2:
        raise ValueError(f"max_length must be >= 2 words, got {max_length}")
    longest = max_length or max((tree.num_leaves for tree in gold), default=0)
    rows = [row for row, tree in enumerate(gold) if 1 < tree.num_leaves <= longest]
    if not rows:
        at_most = f", and at most {max_length}," if max_length else ""
        raise ValueError(f"no gold tree of two or more words{at_most} to score")
    pairs = [(predicted[row], expected[row]) for row in rows]
    found: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for tree, gold_tree in pairs:
        wanted, spans = _labelled_spans(gold_tree), tree.spans
        total.update(label for label, _ in wanted)
        found.update(label for label, span in wanted if span in spans)
    return Scores(
        rows=np.array(rows),
        lengths=np.array([gold[row].num_leaves for row in rows]),
        counts=np.array([_counts(inner_spans(tree), inner_spans(gold_tree)) for tree, gold_tree in pairs]),
        script_counts=np.array(
            [_counts(_without_outermost(tree), _without_outermost(gold_tree)) for tree, gold_tree in pairs]
        ),
        labels={label: (found[label], count) for label, count in total.most_common()},
    )


def inner_spans(tree: LabelledTree) -> frozenset[Span]:
    """All spans except that of the whole sentence."""
    return tree.spans - {(0, tree.num_leaves - 1)}


def chain_shares(trees: Iterable[LabelledTree]) -> tuple[float, float]:
    """Measure how close trees are to chains.

    The spans of all trees count together, except single words and whole sentences. The right share is the share of
    spans that end with the last word of their sentence, the left share that of spans that begin with the first word. A
    right-branching tree has ``(1.0, 0.0)``, a left-branching one ``(0.0, 1.0)``; for random binary trees both shares
    are about equal. The shares do not tell whether trees are good, but they show early that a model collapses into a
    chain.

    Returns:
        The right and the left share, from 0 to 1; both are NaN if no tree has such a span.
    """
    spans = [(first, last == tree.num_leaves - 1) for tree in trees for first, last in inner_spans(tree)]
    if not spans:
        return float("nan"), float("nan")
    return sum(is_last for _, is_last in spans) / len(spans), sum(first == 0 for first, _ in spans) / len(spans)


def proper_noun_chunks(tree: LabelledTree) -> set[Span]:
    """Maximal spans of two or more adjacent proper nouns below the same bracket (paper, Table 2)."""
    keys = [parent if tag in PROPER_NOUN_TAGS else None for tag, parent in zip(tree.tags, tree.parents, strict=True)]
    return set(word_spans(keys))


def _without_outermost(tree: LabelledTree) -> frozenset[Span]:
    spans = [(first, last) for first, last, _ in tree.constituents]
    has_root = spans[-1:] == [(0, tree.num_leaves - 1)]  # the outermost is the last
    return frozenset(spans[:-1] if has_root else spans)


def _counts(predicted: frozenset[Span], gold: frozenset[Span]) -> tuple[int, int, int]:
    return len(predicted & gold), len(predicted), len(gold)


def _labelled_spans(gold: LabelledTree) -> list[tuple[str, Span]]:
    """The different gold constituents whose recall counts, in a fixed order."""
    wanted = {(label, (first, last)) for first, last, label in gold.constituents}
    wanted |= {("NNP chunk", chunk) for chunk in proper_noun_chunks(gold)}
    return sorted((label, span) for label, span in wanted if span != (0, gold.num_leaves - 1))


def _f1_of_each(counts: np.ndarray) -> np.ndarray:
    shared, predicted, gold = counts.T
    precision = np.where(predicted + gold == 0, 1.0, shared / np.maximum(predicted, 1))
    recall = np.where(gold == 0, 1.0, shared / np.maximum(gold, 1))
    return 200 * precision * recall / np.maximum(precision + recall, 1e-8)


def _f1_of_all(counts: np.ndarray) -> float:
    shared, predicted, gold = counts.sum(0).tolist()
    return 200 * shared / (predicted + gold) if predicted + gold else 0.0
