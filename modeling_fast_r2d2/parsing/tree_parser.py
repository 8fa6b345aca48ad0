"""Sentences to trees: the one way from texts to `BinaryTree`s that scripts, the command line and adaptors share."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..checkpoints import find_checkpoint
from ..configuration_fast_r2d2 import check_punctuation
from ..decoding import METHODS, check_method
from ..embedding import evaluation
from ..modeling_fast_r2d2 import FastR2D2ForConstituencyParsing, FastR2D2Model, FastR2D2PreTrainedModel
from ..reading import ReadSentence, pad_batch, raise_at_bounds, sentences_to_parse
from ..trees import BinaryTree
from ..words import batches_by_length


class ParsedSentence(NamedTuple):
    """A tree and its leaves.

    ``split_scores`` ``(leaves - 1,)`` float32 are the parser's, of the split points between leaves. ``word_ids`` has
    the number of each leaf's word. ``vector`` is the root's, ``(hidden_size,)`` float32, where vectors were asked for.
    """

    tree: BinaryTree
    leaves: list[str]
    split_scores: np.ndarray
    word_ids: list[int]
    vector: np.ndarray | None = None

    def draw(self) -> str:
        """The tree as text, for a terminal."""
        return self.tree.draw(self.leaves)

    def _repr_svg_(self) -> str:
        """What a notebook shows: the tree, and the parser's scores as bars."""
        from ..pictures import draw_tree

        return draw_tree(self.leaves, [(first, last, "") for first, last in self.tree.spans], self.split_scores)


class TreeParser:
    """Parses texts by a model and its tokenizer.

    Args:
        method: whose trees: ``"parser"``, the best of the ``"chart"``, of ``"minimum_risk"`` under the chart, or
            R2D2's by ``"heuristic"`` pruning.
        pieces: trees over word pieces, not words.
        keep_words: constrain the parser to trees in which every word is a constituent.
        punctuation: ``"aside"`` takes the punctuation between words out before the model sees them, as it learnt to
            read, and puts it back into the tree (`put_back`); ``"keep"`` shows it. None is as ``config.punctuation``.
        bounds_bonus: nats by which split scores are higher where punctuation was set aside, quotes apart; None is
            ``config.bounds_bonus``.
        with_vectors: also give the roots' vectors, along the tree of ``"parser"``, else of the chart.
        batch_tokens: tokens parsed at once, padding included; at least one sentence.

    Raises:
        ValueError: for another method or ``punctuation``, a ``batch_tokens`` below 1, a bonus that is negative, or a
            model without the encoder it needs.
    """

    def __init__(
        self,
        model: FastR2D2PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        method: str = "parser",
        *,
        pieces: bool = False,
        keep_words: bool = True,
        punctuation: str | None = None,
        bounds_bonus: float | None = None,
        with_vectors: bool = False,
        batch_tokens: int = 8192,
    ):
        check_method(method)
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens must be >= 1, got {batch_tokens}")
        self.arguments = {"encoding": "forced"} if with_vectors and method == "parser" else METHODS[method]
        if self.arguments is not None and not isinstance(model.base_model, FastR2D2Model):
            raise ValueError(f"{type(model).__name__} has no encoder for method={method!r}; load a FastR2D2Model")
        self.model, self.tokenizer = model, tokenizer
        self.pieces, self.keep_words, self.with_vectors = pieces, keep_words, with_vectors
        self.batch_tokens = batch_tokens
        self.punctuation = model.config.punctuation if punctuation is None else punctuation
        self.bounds_bonus = model.config.bounds_bonus if bounds_bonus is None else bounds_bonus
        check_punctuation(self.punctuation, self.bounds_bonus)

    @classmethod
    def from_pretrained(
        cls, checkpoint: str = "fast-r2d2-tiny", method: str = "parser", device: str = "cpu", **options
    ) -> "TreeParser":
        """From a folder, a Hub name or the name of a bundled checkpoint; reads the encoder's weights only if the method
        needs them. Options as above."""
        checkpoint = find_checkpoint(checkpoint)
        needs_encoder = METHODS.get(method) is not None or options.get("with_vectors")
        model_class = FastR2D2Model if needs_encoder else FastR2D2ForConstituencyParsing
        model = model_class.from_pretrained(checkpoint).eval().to(device)
        return cls(model, AutoTokenizer.from_pretrained(checkpoint), method, **options)

    def __call__(
        self, sentences: Sequence[str] | Sequence[Sequence[str]], is_split_into_words: bool = False
    ) -> list[ParsedSentence]:
        """Trees in the order of the sentences; like lengths are parsed together.

        Args:
            sentences: texts, or lists of words if ``is_split_into_words``. One without text is one ``[UNK]``. Given
                words that the tokenizer would drop are shown to the model as unknown, so that each is a leaf.
        """
        read = self.read(sentences, is_split_into_words)
        results: list[ParsedSentence | None] = [None] * len(sentences)
        lengths = [len(sentence.input_ids) for sentence in read]
        for rows in batches_by_length(lengths, batch_tokens=self.batch_tokens):
            batch = [read[row] for row in rows]
            for row, sentence, *output in zip(rows, batch, *self.run(batch), strict=True):
                results[row] = self._result(sentence, *output)
        return results

    def read(self, sentences: Sequence, is_split_into_words: bool = False) -> list[ReadSentence]:
        """The first step of a call: what the model will see."""
        return sentences_to_parse(
            self.tokenizer, sentences, is_split_into_words=is_split_into_words,
            set_marks_aside=self.punctuation == "aside",
        )  # fmt: skip

    def run(self, sentences: list[ReadSentence]) -> tuple[np.ndarray, np.ndarray, Sequence]:
        """The second, for sentences of one batch: spans and split scores over pieces, and vectors."""
        batch = pad_batch(sentences, self.keep_words)
        batch = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
        with evaluation(self.model):
            batch = raise_at_bounds(self.model, batch, self.bounds_bonus)
            is_parser = self.arguments is None
            output = self.model.parse(**batch) if is_parser else self.model.base_model(**batch, **self.arguments)
        vectors = output.pooler_output.float().cpu().numpy() if self.with_vectors else [None] * len(sentences)
        return output.spans.cpu().numpy(), output.split_scores.float().cpu().numpy(), vectors

    def _result(self, sentence: ReadSentence, spans: np.ndarray, scores: np.ndarray, vector) -> ParsedSentence:
        word_ids = sentence.piece_word_ids
        if self.pieces:
            sentence = sentence.with_pieces_as_words(self.tokenizer.convert_ids_to_tokens(sentence.input_ids))
        else:
            word_ids = sorted(set(word_ids))
        return ParsedSentence(sentence.tree(spans), sentence.leaves, sentence.scores(scores), word_ids, vector)


__all__ = ["METHODS", "ParsedSentence", "TreeParser"]
