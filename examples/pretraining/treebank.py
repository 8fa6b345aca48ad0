"""Gold trees for a look at F1 while training: words without traces and punctuation, unlabeled spans."""

import os
from dataclasses import dataclass

import nltk

from tokenization_fast_r2d2 import read_sentences

# Tags of traces, punctuation and currency signs, which grammar induction leaves out (Kim et al., 2019).
LEFT_OUT = {"-NONE-", ",", ".", ":", "-LRB-", "-RRB-", "''", "``", "$", "#"}

Span = tuple[int, int]


@dataclass(frozen=True)
class GoldTree:
    """``words`` and the inclusive ``spans`` of two or more words, without labels."""

    words: list[str]
    spans: frozenset[Span]


def read_treebank(path: str, half: str | None = None) -> list[GoldTree]:
    """Trees of two or more words from a file of bracketed trees, one a line.

    Args:
        half: ``"even"`` or ``"odd"`` takes every other tree of the file, counted from 0; None takes all.

    Raises:
        ValueError: naming file and line, for a missing file or a line that is no tree, or if no tree is left.
    """
    if not os.path.isfile(path):
        raise ValueError(f"no treebank at {path!r}; give a file of bracketed trees, one a line")
    trees = [_read(line, path, number) for number, line in enumerate(read_sentences(path), start=1) if line]
    trees = trees[{None: 0, "even": 0, "odd": 1}[half] :: 1 if half is None else 2]
    trees = [tree for tree in trees if len(tree.words) > 1]
    if not trees:
        raise ValueError(f"{path} has no tree of two or more words")
    return trees


def _read(line: str, path: str, number: int) -> GoldTree:
    try:
        tree = nltk.Tree.fromstring(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: no bracketed tree ({' '.join(str(error).split())})") from error
    words: list[str] = []
    spans: set[Span] = set()
    _collect(tree, words, spans)
    return GoldTree(words, frozenset(spans))


def _collect(tree: nltk.Tree, words: list[str], spans: set[Span]) -> None:
    first = len(words)
    for child in tree:
        if isinstance(child, nltk.Tree):
            _collect(child, words, spans)
        elif tree.label() not in LEFT_OUT:
            words.append(child)
    if len(words) - first > 1:
        spans.add((first, len(words) - 1))


def sentence_f1(predicted: set[Span], gold: GoldTree) -> float:
    """Unlabeled F1 of one sentence, 0 ... 1, in the convention of Kim et al. (2019).

    The span of the whole sentence does not count. Without gold spans recall is 1; without predicted ones precision is.
    """
    whole = (0, len(gold.words) - 1)
    predicted, expected = predicted - {whole}, gold.spans - {whole}
    shared = len(predicted & expected)
    precision = shared / len(predicted) if predicted else 1.0
    recall = shared / len(expected) if expected else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
