"""Systems that give trees to sentences: models, baselines without one, and the best that a binary tree could do."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from ..parsing.tree_parser import TreeParser
from ..words import replace_dropped_words, tokenize_sentences
from .labelled_trees import PUNCTUATION_TAGS, LabelledTree, Span, from_spans, parse_brackets

BASELINES = ("left", "right", "balanced", "random")


def baseline_trees(sentences: Sequence[LabelledTree], name: str, seed: int = 0) -> list[LabelledTree]:
    """Binary trees that look at nothing but the number of leaves.

    Args:
        name: ``"left"`` or ``"right"`` branching, ``"balanced"`` (halved again and again, the left half larger), or
            ``"random"``, where every span splits at a point drawn uniformly.

    Raises:
        ValueError: for another name.
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
    """Binary trees with all gold constituents: no binary tree has a higher F1. What a gold tree leaves open branches
    to the right."""
    return [_with_spans(tree, _binarised(tree)) for tree in gold]


def model_trees(
    parser: TreeParser,
    sentences: Sequence[LabelledTree],
    chunk: int = 1000,
    progress: Callable[[int], object] = lambda count: None,
    written: Sequence[LabelledTree] | None = None,
) -> list[LabelledTree]:
    """Trees by a model over the words of the sentences, or over their pieces if it parses those.

    Args:
        written: the same sentences with their punctuation, which the parser is to see; it is left out of the trees.
        chunk: sentences given to the parser at once.
        progress: called with the number of sentences after every chunk.
    """
    if written is not None:
        trees = model_trees(parser, written, chunk, progress)
        return [without_punctuation(tree, shown.tags) for tree, shown in zip(trees, written, strict=True)]
    trees: list[LabelledTree] = []
    for start in range(0, len(sentences), chunk):
        part = sentences[start : start + chunk]
        parsed_part = parser([tree.words for tree in part], is_split_into_words=True)
        for sentence, parsed in zip(part, parsed_part, strict=True):
            trees.append(from_spans(parsed.leaves, parsed.tree.spans, sentence.place, parsed.word_ids))
        progress(len(part))
    return trees


def without_punctuation(tree: LabelledTree, tags: Sequence[str]) -> LabelledTree:
    """A predicted tree without the leaves that treebanks tag as punctuation.

    Args:
        tags: of its leaves, or of its words where its leaves are pieces.
    """
    tags = tuple(tags if tree.word_ids is None else [tags[word] for word in tree.word_ids])
    left = parse_brackets(replace(tree, tags=tags).brackets(), PUNCTUATION_TAGS, place=tree.place)
    words = tuple(word for word, tag in zip(tree.words, tags, strict=True) if tag not in PUNCTUATION_TAGS)
    return replace(left, words=words, word_ids=None)


def over_pieces(sentences: Sequence[LabelledTree], tokenizer: PreTrainedTokenizerBase) -> list[LabelledTree]:
    """The same trees with every word expanded to its pieces."""
    shown = replace_dropped_words(tokenizer, [tree.words for tree in sentences])
    encoded = tokenize_sentences(tokenizer, shown, is_split_into_words=True)
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
    spans, stack = [], [(0, num_leaves - 1)]
    while stack:
        first, last = stack.pop()
        if first < last:
            split = choose(first, last)
            spans.append((first, last))
            stack += [(first, split), (split + 1, last)]
    return spans


def _binarised(tree: LabelledTree) -> list[Span]:
    """Children of a gold constituent are joined from the right."""
    spans = sorted(tree.spans | {(0, tree.num_leaves - 1)}, key=lambda span: (span[1] - span[0], span))
    nodes = {leaf: leaf for leaf in range(tree.num_leaves)}  # first leaf to last leaf of what is joined so far
    binary: list[Span] = []
    for first, last in spans:
        children, start = [], first
        while start <= last:
            children.append(start)
            start = nodes[start] + 1
        binary += [(child, last) for child in children[:-1]]
        for child in children[1:]:
            del nodes[child]
        nodes[first] = last
    return [span for span in binary if span[0] < span[1]]
