"""`TreeParser`: from texts to `BinaryTree`s, for scripts, the command line and the adaptors to other libraries."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.tree_shape import FlatTree
from tokenization_fast_r2d2.trees import BinaryTree, Span

from ..checkpoints import find_checkpoint, load_model, load_tokenizer
from ..configuration_fast_r2d2 import check_punctuation
from ..embedding import check_limit, evaluation, in_batches, model_inputs, node_vectors, on_device
from ..modeling_fast_r2d2 import FastR2D2ForConstituencyParsing, FastR2D2Model, FastR2D2PreTrainedModel
from ..parsing_pipeline import PARSER, check_method
from ..processor_code import processor_class
from .running_text import split_texts


class ParsedSentence(NamedTuple):
    """The tree of a sentence. Sentences are equal if all values are, and are not hashable, since lists may change.

    Attributes:
        tree: the tree over the leaves.
        leaves: the words, or the pieces, with the punctuation.
        split_scores: ``(leaves - 1,)`` float32, the parser's scores of the split points between leaves. Every span of
            ``tree`` splits at its highest score (see `ReadSentence.scores` for marks). None for another method's tree.
        word_ids: the word number of each leaf.
        offsets: the first character of each leaf in the text, and the one after its last.
        confidences: ``(leaves - 1,)`` float32, for each of ``tree.spans`` the probability that it is a constituent (see
            `tokenization_fast_r2d2.confidence`). All methods have that of the parser's scores.
        vector: ``(hidden_size,)`` float32, the root's vector; None unless the parser has ``with_vectors``.
    """

    tree: BinaryTree
    leaves: list[str]
    split_scores: np.ndarray | None
    word_ids: list[int]
    offsets: list[Span]
    confidences: np.ndarray
    vector: np.ndarray | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParsedSentence) and all(map(_are_equal, self, other))

    def __ne__(self, other: object) -> bool:  # a tuple has its own
        return not self == other

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'ParsedSentence', whose lists and arrays may change")

    @property
    def span_offsets(self) -> list[Span]:
        """The first character of each constituent in the text, and the one after its last, like ``tree.spans``."""
        return [(self.offsets[first][0], self.offsets[last][1]) for first, last in self.tree.spans]

    @property
    def confidence(self) -> float:
        """The mean confidence of the constituents that not every tree has: the share of them that is probably right. It
        is 1 if there are none."""
        unsure = self.confidences[self.confidences < 1]
        return float(unsure.mean()) if len(unsure) else 1.0

    def flat(self, min_confidence: float) -> FlatTree:
        """The tree without the constituents of which the parser is less sure: there it is flat.

        ``min_confidence`` is from 0, which keeps all, to 1, which keeps only what every tree has; else a ValueError.
        """
        return self.tree.flat(self.confidences, min_confidence)

    def brackets(self, min_confidence: float = 0.0) -> str:
        """The tree in brackets, without the constituents of which the parser is less sure."""
        return self.flat(min_confidence).brackets(self.leaves)

    def draw(self, min_confidence: float = 0.0) -> str:
        """The tree as text, for a terminal, without the constituents of which the parser is less sure."""
        return self.flat(min_confidence).draw(self.leaves)

    def svg(self, min_confidence: float = 0.0) -> str:
        """A picture of the tree, without the constituents of which the parser is less sure: the surer it is of a
        constituent, the thicker are its lines. The split scores are bars."""
        from ..grammar_induction.labelled_trees import LabelledSpan
        from ..pictures import draw_tree

        kept = self.flat(min_confidence).spans
        confidences = dict(zip(self.tree.spans, self.confidences.tolist(), strict=True))
        scores = None if self.split_scores is None else self.split_scores.tolist()
        constituents = [LabelledSpan(first, last, "") for first, last in kept]
        return draw_tree(self.leaves, constituents, scores, confidences={span: confidences[span] for span in kept})

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
        return self.svg()


def _are_equal(first: object, second: object) -> bool:
    """Whether two fields of a `ParsedSentence` are equal; of arrays, ``==`` is an array."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return type(first) is type(second) and first == second


class TreeParser:
    """Parses texts with a model and its tokenizer.

    Args:
        model: any of the models; methods other than ``"parser"``, and vectors, need one with an encoder.
        tokenizer: the fast tokenizer of the model.
        method: ``"parser"`` gives the parser's trees (Fast-R2D2* in the paper); ``"chart"`` the best trees of the
            pruned chart (Fast-R2D2); ``"minimum_risk"`` the trees on which chart and parser agree most; ``"heuristic"``
            the best trees of R2D2's chart.
        pieces: give trees over word pieces instead of words.
        keep_words: every word is a constituent of the parser's trees. A chart's may tear one, with a confidence of 0.
        punctuation: ``"aside"`` sets the punctuation between words aside before the model reads them, and puts it back
            into the tree (see `put_back`); ``"keep"`` lets the model read it. None stands for ``config.punctuation``,
            which is how the model was trained.
        bounds_bonus: added to split scores where a mark other than a quote was set aside, in nats. None stands for
            ``config.bounds_bonus``.
        with_vectors: also give the root vectors: of the parser's trees for ``"parser"``, else of the chart.
        batch_tokens: the maximum number of tokens per batch, padding included. A longer sentence is a batch of its own.

    Raises:
        ValueError: if ``method`` or ``punctuation`` is unknown, if ``batch_tokens`` is below 1, if the bonus is
            negative or not finite, or if the model lacks the encoder that the method or ``with_vectors`` needs.
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
        check_limit("batch_tokens", batch_tokens)
        if method != PARSER or with_vectors:
            check_encoder(model, f"method={method!r}" if method != PARSER else "vectors")
        self.model, self.tokenizer, self.method = model, tokenizer, method
        self.pieces, self.keep_words, self.with_vectors = pieces, keep_words, with_vectors
        self.batch_tokens = batch_tokens
        self.punctuation = model.config.punctuation if punctuation is None else punctuation
        self.bounds_bonus = model.config.bounds_bonus if bounds_bonus is None else bounds_bonus
        check_punctuation(self.punctuation, self.bounds_bonus)
        self.processor = processor_class(model.config)(tokenizer, punctuation=self.punctuation)

    @classmethod
    def from_pretrained(
        cls, checkpoint: str = "fast-r2d2-tiny", method: str = "parser", device: str = "cpu", **options: Any
    ) -> "TreeParser":
        """Load a model and its tokenizer. The encoder's weights are read only if the method or
        ``with_vectors`` needs them.

        Args:
            checkpoint: a folder, a Hub name or the name of a bundled checkpoint.
            method: as for the class.
            device: such as ``"cuda"``.
            options: the keyword arguments of the class.

        Raises:
            ValueError: for a path without a checkpoint, for one that is damaged, another model's or without the weights
                that the method needs, and as for the class.
            OSError: if the Hub has no such checkpoint, or a file cannot be read.
        """
        check_method(method)  # a wrong one would ask for an encoder
        checkpoint = find_checkpoint(checkpoint)
        needs_encoder = method != PARSER or options.get("with_vectors")
        model_class = FastR2D2Model if needs_encoder else FastR2D2ForConstituencyParsing
        model = load_model(model_class, checkpoint).eval().to(device)
        return cls(model, load_tokenizer(checkpoint), method, **options)

    def __call__(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        is_split_into_words: bool = False,
        word_offsets: Sequence[Sequence[Span]] | None = None,
    ) -> list[ParsedSentence]:
        """Parse sentences. Sentences of similar length are parsed together; the results are in the given order.

        Args:
            sentences: texts, or lists of words if ``is_split_into_words``. A sentence without text is one ``[UNK]``.
                The model sees ``[UNK]`` for a given word that the tokenizer would drop, so that each word is a leaf.
            word_offsets: for given words, the first character of each in a text, and the one after its last. By
                default the text is the words joined by single blanks.

        Raises:
            ValueError: if ``sentences`` is a single string or a table, or naming the row of a sentence that is no
                string (or no list of strings), has a lone surrogate, or has another number of words than of offsets.
        """
        return self._parse(self.read(sentences, is_split_into_words, word_offsets))

    def parse_texts(self, texts: Sequence[str]) -> list[list[ParsedSentence]]:
        """Parse texts of one or more sentences, such as paragraphs.

        Arguments and errors are those of `split_texts`, which finds the sentences. Their words are those of a call.

        Returns:
            For each text its sentences, whose ``offsets`` count the characters of the text. A text without words has
            none.
        """
        split = split_texts(texts, self.tokenizer)
        sentences = [sentence for of_text in split for sentence in of_text]
        read = self.read([words for words, _ in sentences], True, [offsets for _, offsets in sentences])
        parsed = iter(self._parse(read))
        return [[next(parsed) for _ in of_text] for of_text in split]

    def _parse(self, read: list[ReadSentence]) -> list[ParsedSentence]:
        return in_batches(self.model, read, self._parse_batch, batch_tokens=self.batch_tokens)

    def _parse_batch(self, sentences: list[ReadSentence]) -> list[ParsedSentence]:
        spans, scores, vectors = self.run(sentences)
        word_odds = np.split(self.word_odds(sentences), np.cumsum([len(row.input_ids) for row in sentences])[:-1])
        return [self._result(*row) for row in zip(sentences, spans, scores, vectors, word_odds, strict=True)]

    def read(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        is_split_into_words: bool = False,
        word_offsets: Sequence[Sequence[Span]] | None = None,
    ) -> list[ReadSentence]:
        """The first step of a call: tokenize sentences, and set punctuation aside if the model does not see it."""
        return self.processor.read(sentences, is_split_into_words, word_offsets)

    def run(self, sentences: list[ReadSentence]) -> tuple[np.ndarray, np.ndarray, Sequence[np.ndarray | None]]:
        """The second step of a call: run the model on one batch.

        Returns:
            Spans ``(batch, seq_len - 1, 2)`` long and split scores ``(batch, seq_len - 1)`` float32, both over pieces,
            and the root vectors ``(batch, hidden_size)`` float32, or a list of None without ``with_vectors``.
        """
        batch = model_inputs(self.model, self.processor, sentences, self.bounds_bonus, self.keep_words)
        with evaluation(self.model):
            output: Any  # of the parser or of the whole model
            if self.method == PARSER and not self.with_vectors:
                output = self.model.parse(**batch)
            else:
                encoding = "forced" if self.method == PARSER else self.method
                output = self.model.base_model(**batch, encoding=encoding, return_dict=True)
        vectors = output.pooler_output.float().cpu().numpy() if self.with_vectors else [None] * len(sentences)
        return output.spans.cpu().numpy(), output.split_scores.float().cpu().numpy(), vectors

    def word_odds(self, sentences: list[ReadSentence]) -> np.ndarray:
        """``(pieces, 4)`` float32, what `Calibration` takes, for the pieces of all sentences, end to end."""
        ids = torch.tensor([piece for sentence in sentences for piece in sentence.input_ids])
        parser: Any = self.model.base_model.parser
        return parser.word_odds(on_device(ids, self.model)).float().cpu().numpy()

    def node_vectors(self, sentences: list[ReadSentence]) -> list[dict[Span, np.ndarray]]:
        """The vectors of the words and constituents of the parser's trees, as `embedding.node_vectors` gives them.

        Raises:
            ValueError: if the model has no encoder.
        """
        check_encoder(self.model, "vectors")
        model = self.model.base_model
        return in_batches(
            model, sentences, lambda rows: node_vectors(model, self.processor, rows, self.bounds_bonus),
            batch_tokens=self.batch_tokens,
        )  # fmt: skip

    def _result(
        self,
        sentence: ReadSentence,
        spans: np.ndarray,
        scores: np.ndarray,
        vector: np.ndarray | None,
        word_odds: np.ndarray,
    ) -> ParsedSentence:
        word_ids = sentence.piece_word_ids
        word_scores = scores[sentence.word_split_points]
        words = sentence.word_ids if self.pieces else None
        if self.pieces:
            sentence = sentence.with_pieces_as_words(list(self.tokenizer.convert_ids_to_tokens(sentence.input_ids)))
        else:
            word_ids = sorted(set(word_ids))
        tree = sentence.tree(spans)
        split_scores = sentence.scores(scores, tree) if self.method == "parser" else None
        sure = self.processor.confidences(sentence, tree, word_scores, word_odds, self.model.config, words)
        return ParsedSentence(tree, sentence.leaves, split_scores, word_ids, sentence.offsets, sure, vector)


def check_encoder(model: FastR2D2PreTrainedModel, what: str) -> None:
    """Raise ValueError if a model has no encoder."""
    if not hasattr(model.base_model, "composition"):  # the class may be of a saved folder's code
        raise ValueError(f"{type(model).__name__} has no encoder for {what}; load a FastR2D2Model")
