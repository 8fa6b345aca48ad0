"""How sure a model is of its constituents: their probabilities in the chart."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.trees import Span

from ..embedding import evaluation, model_inputs, over_words
from .tree_parser import TreeParser, check_encoder


class ChartProbabilities(NamedTuple):
    """The chart of a sentence.

    Attributes:
        words: the words, without the punctuation that the model does not see.
        probabilities: for each span of two or more words that the pruned chart has, the probability that a tree drawn
            from the chart has it as a constituent. The whole sentence has 1.
    """

    words: list[str]
    probabilities: dict[Span, float]


def chart_probabilities(
    parser: TreeParser, sentence: str | Sequence[str], is_split_into_words: bool = False
) -> ChartProbabilities:
    """The probabilities of the constituents of a sentence (paper, Section 2.1).

    Punctuation and names raise and lower the encoder's choices as they do for the tree of minimum risk.

    Args:
        parser: a parser whose model has an encoder; its method does not matter.
        sentence: a text, or a list of words if ``is_split_into_words``.

    Raises:
        ValueError: if the model has no encoder.
    """
    [read] = parser.read([sentence], is_split_into_words)  # type: ignore[list-item]  # a text or words, as it says
    return ChartProbabilities(read.words, probabilities_of_batch(parser, [read])[0])


def probabilities_of_batch(parser: TreeParser, sentences: list[ReadSentence]) -> list[dict[Span, float]]:
    """The probabilities of the constituents of each sentence of one batch, as in `ChartProbabilities`."""
    check_encoder(parser.model, "a chart")
    model: Any = parser.model.base_model
    with evaluation(model):
        embedded = model.read_batch(
            **model_inputs(model, parser.processor, sentences, parser.bounds_bonus, parser.keep_words)
        )
        chart, encoded = model.encode_batch(embedded, "chart", reachable_only=True)
        probabilities = model.encoder_trees(embedded, chart, encoded).marginals().cpu()
    spans, offsets = chart.spans[chart.num_tokens :].cpu(), chart.offsets.cpu()
    rows = torch.searchsorted(offsets, spans[:, 0].contiguous(), right=True) - 1
    spans = spans - offsets[rows, None]
    of_rows = [(rows == row).nonzero()[:, 0] for row in range(len(sentences))]
    found = (
        over_words(sentence.word_ids, spans[cells].tolist(), probabilities[cells].tolist())
        for sentence, cells in zip(sentences, of_rows, strict=True)
    )
    return [{span: value for span, value in of_words.items() if span[0] < span[1]} for of_words in found]


__all__ = ["ChartProbabilities", "chart_probabilities", "probabilities_of_batch"]
