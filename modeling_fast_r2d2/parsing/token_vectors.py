"""The vectors of the constituents over given tokens."""

from collections.abc import Sequence

import numpy as np

from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.words import Span, tokens_with_pieces

from ..embedding import in_batches, node_vectors
from .pretokenized import parse_tokens
from .tree_parser import TreeParser


def token_vectors(parser: TreeParser, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """The vectors of the trees that `parse_tokens` makes.

    A constituent has the vector of the words in it that the model sees. Where it sees none, such as in punctuation that
    was set aside, the vector is zero.

    Args:
        parser: a parser of words with ``method="parser"`` and ``with_vectors``.
        sentences: lists of tokens.

    Returns:
        For each sentence ``(tokens, 2, hidden_size)`` float32: the vector of each token and that of the constituent
        that splits after it, zero after the last token.
    """
    visible = tokens_with_pieces(parser.tokenizer, sentences)
    seen = [[place for place, token in enumerate(tokens) if token in visible] for tokens in sentences]
    rows = [row for row, places in enumerate(seen) if places]
    read = parser.read([[sentences[row][place] for place in seen[row]] for row in rows], True)
    vectors = [np.zeros((len(tokens), 2, parser.model.config.hidden_size), np.float32) for tokens in sentences]
    trees = parse_tokens(parser, sentences)
    for row, sentence, nodes in zip(rows, read, _node_vectors(parser, read), strict=True):
        words_before = _words_before(sentence, seen[row], len(sentences[row]))
        tokens = [(token, token) for token in range(len(sentences[row]))]
        for column, spans in ((0, tokens), (1, list(trees[row].spans))):
            for place, (first, last) in enumerate(spans):
                words = (words_before[first], words_before[last + 1] - 1)
                vectors[row][place, column] = nodes.get(words, 0.0)
    return vectors


def _words_before(sentence: ReadSentence, seen: Sequence[int], num_tokens: int) -> list[int]:
    """``num_tokens + 1`` numbers: how many words of the model lie before each token, and before the end."""
    is_word = np.ones(len(seen), dtype=int)
    is_word[[place + number for number, place in enumerate(sentence.places)]] = 0  # marks that were set aside
    counts = np.zeros(num_tokens + 1, dtype=int)
    counts[np.array(seen) + 1] = is_word
    return counts.cumsum().tolist()


def _node_vectors(parser: TreeParser, sentences: Sequence[ReadSentence]) -> list[dict[Span, np.ndarray]]:
    """The `node_vectors` of sentences, in their order."""
    model = parser.model.base_model
    return in_batches(
        model, sentences, lambda batch: node_vectors(model, parser.processor, batch, parser.bounds_bonus),
        batch_tokens=parser.batch_tokens,
    )  # fmt: skip


__all__ = ["token_vectors"]
