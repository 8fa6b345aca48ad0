"""Systems that give trees to sentences: models, baselines without a model, and the best possible binary trees."""

import random
from collections.abc import Callable, Sequence
from itertools import accumulate

from transformers import PreTrainedTokenizerBase

from tokenization_fast_r2d2.words import tokenize_all_words

from ..parsing.tree_parser import TreeParser
from .labelled_trees import LabelledTree, Span, from_spans

BASELINES = ("left", "right", "balanced", "random")
SENTENCES_AT_ONCE = 1000


def baseline_trees(sentences: Sequence[LabelledTree], name: str, seed: int = 0) -> list[LabelledTree]:
    """Binary trees that depend only on the number of leaves.

    Args:
        sentences: trees whose leaves are used.
        name: ``"left"`` or ``"right"`` branching, ``"balanced"`` (every span splits in the middle; if that is not
            possible, the left half is larger), or ``"random"`` (every span splits at a point drawn uniformly).
        seed: of the random trees.

    Raises:
        ValueError: if the name is unknown.
    """
    generator = random.Random(seed)
    choose: dict[str, Callable[[int, int], int]] = {
        "left": lambda first, last: last - 1,
        "right": lambda first, last: first,
        "balanced": lambda first, last: (first + last) // 2,
        "random": lambda first, last: generator.randrange(first, last),
    }
    if name not in choose:
        raise ValueError(f"a baseline must be one of {', '.join(BASELINES)}, got {name!r}")
    return [_with_spans(tree, _split_all(tree.num_leaves, choose[name])) for tree in sentences]


def best_binary_trees(gold: Sequence[LabelledTree]) -> list[LabelledTree]:
    """Binary trees with all gold constituents; no binary tree has a higher F1. A gold constituent with more than two
    children branches to the right."""
    return [_with_spans(tree, _binarised(tree)) for tree in gold]


def model_trees(
    parser: TreeParser, sentences: Sequence[LabelledTree], progress: Callable[[int], object] = lambda count: None
) -> list[LabelledTree]:
    """Trees of a model over the words of the sentences, or over their pieces if the parser has ``pieces``.

    Args:
        parser: the model's parser.
        sentences: trees whose words are parsed.
        progress: called now and then with the number of sentences that were parsed since.
    """
    found: list[LabelledTree] = []
    for start in range(0, len(sentences), SENTENCES_AT_ONCE):
        part = sentences[start : start + SENTENCES_AT_ONCE]
        parsed_part = parser([tree.words for tree in part], is_split_into_words=True)
        for sentence, parsed in zip(part, parsed_part, strict=True):
            found.append(from_spans(parsed.leaves, parsed.tree.spans, sentence.place, parsed.word_ids))
        progress(len(part))
    return found


def without_punctuation(
    tree: LabelledTree, written: LabelledTree, punctuation_tags: frozenset[str] | None = None
) -> LabelledTree:
    """A predicted tree without the leaves that are punctuation in the treebank.

    Args:
        tree: the predicted tree, over the words or the pieces of ``written``.
        written: the gold tree with its punctuation.
        punctuation_tags: as for `LabelledTree.are_punctuation`.
    """
    if not written.num_leaves:  # the model read an unknown word
        return written
    are_removed = written.are_punctuation(punctuation_tags)
    of_leaves = are_removed if tree.word_ids is None else [are_removed[word] for word in tree.word_ids]
    kept = tree.without(of_leaves)
    before = list(accumulate((not removed for removed in are_removed), initial=0))  # words that stay
    word_ids = kept.word_ids and [before[word] for word in kept.word_ids]
    return from_spans(kept.words, kept.spans, kept.place, word_ids)  # a constituent and its marks may have been two


def over_pieces(sentences: Sequence[LabelledTree], tokenizer: PreTrainedTokenizerBase) -> list[LabelledTree]:
    """The same trees with every word expanded to its pieces, as by `LabelledTree.expand`."""
    encoded = tokenize_all_words(tokenizer, [tree.words for tree in sentences])
    expanded = []
    for tree, ids, word_ids in zip(sentences, encoded["input_ids"], encoded["word_ids"], strict=True):
        pieces: list[list[str]] = [[] for _ in tree.words or [""]]
        for word, piece in zip(word_ids, tokenizer.convert_ids_to_tokens(ids), strict=True):
            pieces[word].append(piece)
        expanded.append(tree.expand(pieces) if tree.words else tree)
    return expanded


def _with_spans(tree: LabelledTree, spans: list[Span]) -> LabelledTree:
    return from_spans(tree.words, spans, tree.place, tree.word_ids)


def _split_all(num_leaves: int, choose: Callable[[int, int], int]) -> list[Span]:
    """The spans of the tree in which every span ``(first, last)`` splits at ``choose(first, last)``."""
    spans, stack = [], [(0, num_leaves - 1)]
    while stack:
        first, last = stack.pop()
        if first < last:
            split = choose(first, last)
            spans.append((first, last))
            stack += [(first, split), (split + 1, last)]
    return spans


def _binarised(tree: LabelledTree) -> list[Span]:
    """The spans of a binary tree with all constituents; the children of each constituent are joined from the right."""
    spans = sorted(tree.spans | {(0, tree.num_leaves - 1)}, key=lambda span: (span[1] - span[0], span))
    last_of = {leaf: leaf for leaf in range(tree.num_leaves)}  # the first and last leaf of each node without a parent
    binary: list[Span] = []
    for first, last in spans:
        children, start = [], first
        while start <= last:
            children.append(start)
            start = last_of[start] + 1
        binary += [(child, last) for child in children[:-1]]
        for child in children[1:]:
            del last_of[child]
        last_of[first] = last
    return [span for span in binary if span[0] < span[1]]
