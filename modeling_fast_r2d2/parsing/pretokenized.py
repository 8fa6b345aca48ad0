"""Trees over tokens as they are given, none of which is changed, split or lost."""

from collections.abc import Sequence

from ..trees import BinaryTree
from ..words import tokens_with_pieces
from .tree_parser import TreeParser


def parse_tokens(parser: TreeParser, sentences: Sequence[Sequence[str]]) -> list[BinaryTree]:
    """Trees over tokens as they are given, each a leaf, also one that the tokenizer splits.

    The model does not see blank tokens, nor those that the tokenizer drops, such as control characters. They go with
    the token to their left, or at the beginning of a sentence with the first that is seen: ``a _ b`` becomes
    ``((a _) b)``. A sentence of such tokens only branches to the left.

    Raises:
        ValueError: for a parser of word pieces, and for a sentence that is empty or not a list of strings.
    """
    check_takes_tokens(parser)
    for tokens in sentences:
        if isinstance(tokens, str) or not len(tokens) or not all(isinstance(token, str) for token in tokens):
            raise ValueError(f"a sentence must be a list of one or more strings, its tokens, got {tokens!r:.80}")
    visible = tokens_with_pieces(parser.tokenizer, sentences)
    seen = [[place for place, token in enumerate(tokens) if token in visible] for tokens in sentences]
    rows = [row for row, places in enumerate(seen) if places]
    parsed = parser([[sentences[row][place] for place in seen[row]] for row in rows], is_split_into_words=True)
    trees = [BinaryTree(())] * len(sentences)
    for row, sentence in zip(rows, parsed, strict=True):
        trees[row] = sentence.tree
    return [with_unseen(tree, seen[row], len(sentences[row])) for row, tree in enumerate(trees)]


def with_unseen(tree: BinaryTree, seen: Sequence[int], num_tokens: int) -> BinaryTree:
    """The tree over all tokens of a tree over those seen, by the rule of `parse_tokens`.

    Args:
        tree: over the tokens seen, or a single leaf if none is.
        seen: their places in the sentence, increasing.
    """
    starts = [0, *seen[1:]]  # each leaf of the tree becomes the tokens from its start to its end
    ends = [*(place - 1 for place in seen[1:]), num_tokens - 1]
    spans = {ends[k]: (starts[i], ends[j]) for k, (i, j) in enumerate(tree.spans)}
    for start, end in zip(starts, ends, strict=True):
        spans |= {k: (start, k + 1) for k in range(start, end)}
    return BinaryTree(tuple(spans[k] for k in range(num_tokens - 1)))


def check_takes_tokens(parser: TreeParser) -> None:
    """Raise ValueError for a parser of word pieces."""
    if parser.pieces:
        raise ValueError("trees over tokens need a TreeParser with pieces=False, got pieces=True")


__all__ = ["check_takes_tokens", "parse_tokens", "with_unseen"]
