"""Trees over given tokens, of which none is changed, split or lost, and the vectors of their constituents."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.trees import BinaryTree
from tokenization_fast_r2d2.words import checked_sentences, tokens_with_pieces

from .tree_parser import TreeParser


class TokenTree(NamedTuple):
    """The tree over given tokens, and for each of its spans how sure the parser is of it (`ParsedSentence`)."""

    tree: BinaryTree
    confidences: np.ndarray


def parse_tokens(parser: TreeParser, sentences: Sequence[Sequence[str]]) -> list[TokenTree]:
    """Parse sentences of given tokens. Every token is a leaf, even if the tokenizer splits it.

    The model sees neither blank tokens nor tokens that the tokenizer drops, such as control characters. Each of them is
    attached to the seen token to its left, or to the first seen token if there is none to its left: with ``_`` unseen,
    ``a _ b`` becomes ``((a _) b)``. If the model sees no token of a sentence, the tree branches to the left.

    Args:
        parser: a parser of words.
        sentences: lists of tokens.

    Raises:
        ValueError: if the parser works on word pieces, if a sentence is empty, or as `checked_sentences` raises it.
    """
    check_takes_tokens(parser)
    sentences = list(checked_sentences(sentences, is_split_into_words=True))
    for row, tokens in enumerate(sentences):
        if not len(tokens):
            raise ValueError(f"row {row} must be a list of one or more strings, its words, got none")
    seen = _places_seen(parser, sentences)
    parsed = parser(_tokens_at(seen, sentences), is_split_into_words=True)
    rows = zip(parsed, seen, map(len, sentences), strict=True)
    return [
        TokenTree(with_unseen(found.tree, places, length), _with_unseen(found.confidences, places, length))
        for found, places, length in rows
    ]


def _places_seen(parser: TreeParser, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
    visible = tokens_with_pieces(parser.tokenizer, sentences)
    return [[place for place, token in enumerate(tokens) if token in visible] for tokens in sentences]


def _tokens_at(places: list[list[int]], sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[tokens[place] for place in here] for here, tokens in zip(places, sentences, strict=True)]


def with_unseen(tree: BinaryTree, seen: Sequence[int], num_tokens: int) -> BinaryTree:
    """Add the unseen tokens to a tree over the seen ones, by the rule of `parse_tokens`.

    Args:
        tree: the tree over the seen tokens; a single leaf if the model saw no token.
        seen: the places of the seen tokens in the sentence, increasing.
        num_tokens: the number of all tokens of the sentence.
    """
    starts = [0, *seen[1:]]  # each leaf of the tree becomes the tokens from its start to its end
    ends = [*(place - 1 for place in seen[1:]), num_tokens - 1]
    spans = {ends[k]: (starts[i], ends[j]) for k, (i, j) in enumerate(tree.spans)}
    for start, end in zip(starts, ends, strict=True):
        spans |= {k: (start, k + 1) for k in range(start, end)}
    return BinaryTree(tuple(spans[k] for k in range(num_tokens - 1)))


def _with_unseen(confidences: np.ndarray, seen: Sequence[int], num_tokens: int) -> np.ndarray:
    """The confidences of the tree that `with_unseen` makes; that an unseen token goes with a seen one is certain."""
    found = np.ones(num_tokens - 1, np.float32)
    found[[place - 1 for place in seen[1:]]] = confidences
    return found


def check_takes_tokens(parser: TreeParser) -> None:
    """Raise a ValueError if the parser works on word pieces."""
    if parser.pieces:
        raise ValueError("trees over tokens need a TreeParser with pieces=False, got pieces=True")


def token_vectors(
    parser: TreeParser, sentences: Sequence[Sequence[str]], trees: Sequence[TokenTree]
) -> Iterator[np.ndarray]:
    """The vectors of the trees that `parse_tokens` makes.

    A constituent has the vector of the words in it that the model sees. Where it sees none, such as in punctuation that
    was set aside, the vector is zero.

    Args:
        parser: a parser of words with ``method="parser"``, whose model has an encoder.
        sentences: lists of tokens.
        trees: theirs, from `parse_tokens`.

    Yields:
        For each sentence ``(tokens, 2, hidden_size)`` float32: the vector of each token and that of the constituent
        that splits after it, zero after the last token.
    """
    seen = _places_seen(parser, sentences)
    read = parser.read(_tokens_at(seen, sentences), is_split_into_words=True)
    vectors = parser.node_vectors(read)
    for (tree, _), places, sentence, by_words in zip(trees, seen, read, vectors, strict=True):
        rows = np.zeros((tree.num_leaves, 2, parser.model.config.hidden_size), np.float32)
        words_before = _words_before(sentence, places, tree.num_leaves)
        for column, spans in enumerate(([(token, token) for token in range(tree.num_leaves)], tree.spans)):
            for place, (first, last) in enumerate(spans):
                rows[place, column] = by_words.get((words_before[first], words_before[last + 1] - 1), 0.0)
        yield rows


def _words_before(sentence: ReadSentence, seen: Sequence[int], num_tokens: int) -> list[int]:
    """``num_tokens + 1`` numbers: how many words of the model lie before each token, and before the end."""
    is_word = np.ones(len(seen), dtype=int)
    is_word[[place + number for number, place in enumerate(sentence.places)]] = 0  # marks that were set aside
    counts = np.zeros(num_tokens + 1, dtype=int)
    counts[np.array(seen, dtype=int) + 1] = is_word
    return counts.cumsum().tolist()
