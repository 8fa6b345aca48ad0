"""Unlabeled F1 of trees against gold trees, in the convention of the field and strictly, and recall by label."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .alignment import align
from .labelled_trees import LabelledTree, Span

PROPER_NOUN_TAGS = frozenset({"NNP", "NR"})  # of the Penn and the Chinese Treebank
LENGTHS = (10, 20, 30, 40)


@dataclass(frozen=True)
class Scores:
    """Of the sentences of two or more words; the span of the whole sentence never counts.

    ``sentence_f1`` and ``corpus_f1`` are in the convention of ``compare_trees.py`` of harvardnlp's compound-pcfg
    (Kim et al., 2019): where no gold span is left recall is 1, and precision too if none was predicted. Strictly,
    such sentences, in which there is nothing to find, are not averaged. The script itself, of a unary chain around
    the whole sentence, leaves out the outermost constituent alone, so that a binary tree misses the others: the
    ``script_`` figures do that too.

    Attributes:
        rows: ``(sentences,)`` long, the places of these sentences among those given.
        lengths: ``(sentences,)`` long, in gold words.
        counts: ``(sentences, 3)`` long: spans shared, predicted and gold.
        script_counts: the same, as the script counts.
        labels: for each label, how many of its gold constituents were predicted, and how many there are; ``WD`` words
            of several pieces, ``NNP chunk`` adjacent proper nouns (paper, Table 2).
    """

    rows: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    script_counts: np.ndarray
    labels: dict[str, tuple[int, int]]

    @cached_property
    def sentence_f1s(self) -> np.ndarray:
        """``(sentences,)`` float, 0 ... 100."""
        return _f1_of_each(self.counts)

    @property
    def sentence_f1(self) -> float:
        """Mean over sentences, 0 ... 100: the figure that papers give."""
        return float(self.sentence_f1s.mean())

    @property
    def corpus_f1(self) -> float:
        """Of all spans together, 0 ... 100."""
        return _f1_of_all(self.counts)

    @property
    def strict_sentence_f1(self) -> float:
        """Mean over the sentences that have a gold span; NaN if none has."""
        scored = self.sentence_f1s[self.counts[:, 2] > 0]
        return float(scored.mean()) if len(scored) else float("nan")

    @property
    def script_sentence_f1(self) -> float:
        return float(_f1_of_each(self.script_counts).mean())

    @property
    def script_corpus_f1(self) -> float:
        return _f1_of_all(self.script_counts)

    def recall(self, label: str) -> float:
        """Of the gold constituents of a label, 0 ... 100; NaN where there is none."""
        found, total = self.labels.get(label, (0, 0))
        return 100 * found / total if total else float("nan")

    def by_length(self, upper: Sequence[int] = LENGTHS) -> dict[str, tuple[float, int]]:
        """Sentence F1 and number of sentences of up to each number of words, such as ``11-20``; empty ones are left
        out."""
        edges = [1, *upper, np.iinfo(np.int64).max]
        buckets = {}
        for low, high in zip(edges, edges[1:], strict=False):
            inside = (self.lengths > low) & (self.lengths <= high)
            name = f"{low + 1}-{high}" if high != edges[-1] else f"over {low}"
            if inside.any():
                buckets[name] = float(self.sentence_f1s[inside].mean()), int(inside.sum())
        return buckets

    def confidence_interval(self, level: float = 0.95, samples: int = 1000, seed: int = 0) -> tuple[float, float]:
        """Of sentence F1, by bootstrap: sentences drawn with replacement, percentiles of the means."""
        random = np.random.default_rng(seed)
        count = len(self.rows)
        means = [self.sentence_f1s[random.integers(count, size=count)].mean() for _ in range(samples)]
        low, high = np.percentile(means, [50 * (1 - level), 50 * (1 + level)])
        return float(low), float(high)


def score_trees(
    predicted: Sequence[LabelledTree],
    gold: Sequence[LabelledTree],
    granularity: str = "words",
    max_length: int | None = None,
    proper_noun_tags: frozenset[str] = PROPER_NOUN_TAGS,
) -> Scores:
    """Compare trees, which need not be binary.

    Args:
        predicted, gold, granularity: as for `align`.
        max_length: leave out sentences of more gold words.

    Raises:
        ValueError: as `align`; and if no sentence of two or more words is left.
    """
    predicted, expected = align(predicted, gold, granularity)
    if max_length is not None and max_length < 2:
        raise ValueError(f"max_length must be >= 2 words, got {max_length}")
    longest = max_length or max((tree.num_leaves for tree in gold), default=0)
    rows = [row for row, tree in enumerate(gold) if 1 < tree.num_leaves <= longest]
    if not rows:
        raise ValueError("no gold tree of two or more words to score")
    pairs = [(predicted[row], expected[row]) for row in rows]
    labels = [_label_hits(tree, gold_tree, proper_noun_tags) for tree, gold_tree in pairs]
    found, total = (sum((hits[part] for hits in labels), Counter()) for part in (0, 1))
    return Scores(
        rows=np.array(rows),
        lengths=np.array([gold[row].num_leaves for row in rows]),
        counts=np.array([_counts(inner_spans(tree), inner_spans(gold_tree)) for tree, gold_tree in pairs]),
        script_counts=np.array([_counts(_but_last(tree), _but_last(gold_tree)) for tree, gold_tree in pairs]),
        labels={label: (found[label], count) for label, count in total.most_common()},
    )


def inner_spans(tree: LabelledTree) -> frozenset[Span]:
    """All spans but that of the whole sentence."""
    return tree.spans - {(0, tree.num_leaves - 1)}


def chain_shares(trees: Iterable[LabelledTree]) -> tuple[float, float]:
    """How much of some trees is a chain: of all spans but single words and whole sentences, taken together, the share
    that ends with a sentence's last word, and the share that begins with its first.

    A chain to the right has ``(1.0, 0.0)``, one to the left ``(0.0, 1.0)``. Binary trees split uniformly at random have
    about as much of both. Neither says whether trees are good, but a model on its way into a chain shows it here first.

    Returns:
        Right and left share, 0 ... 1; NaN twice where no tree has such a span.
    """
    spans = [(first, last == tree.num_leaves - 1) for tree in trees for first, last in inner_spans(tree)]
    if not spans:
        return float("nan"), float("nan")
    return sum(is_last for _, is_last in spans) / len(spans), sum(first == 0 for first, _ in spans) / len(spans)


def proper_noun_chunks(tree: LabelledTree, tags: frozenset[str] = PROPER_NOUN_TAGS) -> set[Span]:
    """Two or more adjacent leaves with such a tag below the same bracket, as far as they reach (paper, Table 2)."""
    chunks, start = set(), 0
    keys = [parent if tag in tags else -1 for tag, parent in zip(tree.tags, tree.parents, strict=True)]
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[start]:
            if keys[start] != -1 and end - start > 1:
                chunks.add((start, end - 1))
            start = end
    return chunks


def _but_last(tree: LabelledTree) -> frozenset[Span]:
    return frozenset((first, last) for first, last, _ in tree.constituents[:-1])  # the outermost is the last


def _counts(predicted: frozenset[Span], gold: frozenset[Span]) -> tuple[int, int, int]:
    return len(predicted & gold), len(predicted), len(gold)


def _label_hits(tree: LabelledTree, gold: LabelledTree, tags: frozenset[str]) -> tuple[Counter, Counter]:
    whole = (0, gold.num_leaves - 1)
    wanted = {(label, (first, last)) for first, last, label in gold.constituents}
    wanted |= {("NNP chunk", chunk) for chunk in proper_noun_chunks(gold, tags)}
    wanted = {(label, span) for label, span in wanted if span != whole}
    predicted = tree.spans
    hits = Counter(label for label, span in wanted if span in predicted)
    return hits, Counter(label for label, _ in wanted)


def _f1_of_each(counts: np.ndarray) -> np.ndarray:
    shared, predicted, gold = counts.T
    precision = np.where(predicted + gold == 0, 1.0, shared / np.maximum(predicted, 1))
    recall = np.where(gold == 0, 1.0, shared / np.maximum(gold, 1))
    return 200 * precision * recall / np.maximum(precision + recall, 1e-8)


def _f1_of_all(counts: np.ndarray) -> float:
    shared, predicted, gold = counts.sum(0).tolist()
    return 200 * shared / (predicted + gold) if predicted + gold else 0.0
