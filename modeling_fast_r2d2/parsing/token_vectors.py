"""The vectors of the constituents over given tokens."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ..embedding import evaluation
from ..reading import ReadSentence, pad_batch, raise_at_bounds
from ..words import Span, batches_by_length, tokens_with_pieces
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
    """For each sentence the vectors of its words and constituents, by first and last word."""
    found: dict[int, dict[Span, np.ndarray]] = {}
    for rows in batches_by_length(
        [len(sentence.input_ids) for sentence in sentences], batch_tokens=parser.batch_tokens
    ):
        batch = pad_batch([sentences[row] for row in rows])
        batch = {name: tensor.to(parser.model.device) for name, tensor in batch.items()}
        with evaluation(parser.model):
            batch = raise_at_bounds(parser.model, batch, parser.bounds_bonus)
            output = parser.model.base_model(**batch, encoding="forced", return_dict=True)
        for row, spans, nodes in zip(rows, output.spans.cpu(), output.last_hidden_state.float().cpu(), strict=True):
            found[row] = _by_words(sentences[row].word_ids, spans, nodes)
    return [found[row] for row in range(len(sentences))]


def _by_words(word_ids: list[int], spans: Tensor, nodes: Tensor) -> dict[Span, np.ndarray]:
    """A word of several pieces is a constituent over them."""
    begins = [True, *(first != second for first, second in zip(word_ids, word_ids[1:], strict=False)), True]
    pieces = [(piece, piece) for piece in range(len(word_ids))]
    padded_leaves = (len(nodes) + 1) // 2
    constituents = [(tuple(span), padded_leaves + k) for k, span in enumerate(spans[: len(word_ids) - 1].tolist())]
    located = [*zip(pieces, range(len(word_ids)), strict=True), *constituents]
    return {
        (word_ids[first], word_ids[last]): nodes[node].numpy()
        for (first, last), node in located
        if begins[first] and begins[last + 1]
    }


__all__ = ["token_vectors"]
