"""Trees over given tokens: no token is changed, split or lost."""

from collections.abc import Sequence

from tokenization_fast_r2d2.trees import BinaryTree
from tokenization_fast_r2d2.words import checked_sentences, tokens_with_pieces

from .tree_parser import TreeParser


def parse_tokens(parser: TreeParser, sentences: Sequence[Sequence[str]]) -> list[BinaryTree]:
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
    for row, tokens in enumerate(checked_sentences(sentences, is_split_into_words=True)):
        if not len(tokens):
            raise ValueError(f"row {row} must be a list of one or more strings, its words, got none")
    visible = tokens_with_pieces(parser.tokenizer, sentences)
    seen = [[place for place, token in enumerate(tokens) if token in visible] for tokens in sentences]
    rows = [row for row, seen_places in enumerate(seen) if seen_places]
    parsed = parser([[sentences[row][place] for place in seen[row]] for row in rows], is_split_into_words=True)
    trees = [BinaryTree(())] * len(sentences)
    for row, sentence in zip(rows, parsed, strict=True):
        trees[row] = sentence.tree
    return [with_unseen(tree, seen[row], len(sentences[row])) for row, tree in enumerate(trees)]


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


def check_takes_tokens(parser: TreeParser) -> None:
    """Raise a ValueError if the parser works on word pieces."""
    if parser.pieces:
        raise ValueError("trees over tokens need a TreeParser with pieces=False, got pieces=True")


__all__ = ["check_takes_tokens", "parse_tokens", "with_unseen"]
