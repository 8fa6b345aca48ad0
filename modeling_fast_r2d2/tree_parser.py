"""Sentences to trees: the one way from texts to `BinaryTree`s that scripts, the command line and adaptors share."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .embedding import evaluation
from .modeling_fast_r2d2 import FastR2D2ForConstituencyParsing, FastR2D2Model, FastR2D2PreTrainedModel
from .trees import BinaryTree
from .words import batches_by_length, encode_sentences, pad_spans, show_all_words

# How each method asks the model for its trees; None asks the parser alone, without encoding anything.
METHODS: dict[str, dict[str, str] | None] = {
    "parser": None,  # Fast-R2D2* in the paper
    "chart": {"encoding": "chart"},  # Fast-R2D2 in the paper
    "minimum_risk": {"encoding": "chart", "decoding": "minimum_risk"},
    "heuristic": {"encoding": "heuristic"},  # R2D2
}


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


class TreeParser:
    """Parses texts by a model and its tokenizer.

    Args:
        method: whose trees: ``"parser"``, the best of the ``"chart"``, of ``"minimum_risk"`` under the chart, or
            R2D2's by ``"heuristic"`` pruning.
        pieces: trees over word pieces, not words.
        keep_words: constrain the parser to trees in which every word is a constituent.
        with_vectors: also give the roots' vectors, along the tree of ``"parser"``, else of the chart.
        batch_tokens: tokens parsed at once, padding included; at least one sentence.

    Raises:
        ValueError: for another method, a ``batch_tokens`` below 1, or a model without the encoder it needs.
    """

    def __init__(
        self,
        model: FastR2D2PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        method: str = "parser",
        *,
        pieces: bool = False,
        keep_words: bool = True,
        with_vectors: bool = False,
        batch_tokens: int = 8192,
    ):
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens must be >= 1, got {batch_tokens}")
        self.arguments = {"encoding": "forced"} if with_vectors and method == "parser" else METHODS[method]
        if self.arguments is not None and not isinstance(model.base_model, FastR2D2Model):
            raise ValueError(f"{type(model).__name__} has no encoder for method={method!r}; load a FastR2D2Model")
        self.model, self.tokenizer = model, tokenizer
        self.pieces, self.keep_words, self.with_vectors = pieces, keep_words, with_vectors
        self.batch_tokens = batch_tokens

    @classmethod
    def from_pretrained(cls, checkpoint: str, method: str = "parser", device: str = "cpu", **options) -> "TreeParser":
        """From a folder or a Hub name; reads the encoder's weights only if the method needs them. Options as above."""
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
        shown = show_all_words(self.tokenizer, sentences) if is_split_into_words else sentences
        encoded = encode_sentences(self.tokenizer, shown, is_split_into_words=is_split_into_words)
        if is_split_into_words:
            encoded["words"] = [list(words) or [self.tokenizer.unk_token] for words in sentences]
        results: list[ParsedSentence | None] = [None] * len(sentences)
        for rows in batches_by_length([len(ids) for ids in encoded["input_ids"]], batch_tokens=self.batch_tokens):
            for row, *output in zip(rows, *self._run(encoded, rows), strict=True):
                results[row] = self._result(encoded, row, *output)
        return results

    def _run(self, encoded: dict[str, list], rows: list[int]) -> tuple[np.ndarray, np.ndarray, Sequence]:
        """Spans, split scores and vectors of some sentences."""
        ids = [torch.tensor(encoded["input_ids"][row]) for row in rows]
        batch: dict[str, Tensor] = {"input_ids": torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)}
        lengths = torch.tensor([len(row) for row in ids])
        batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
        if self.keep_words:
            batch["atom_spans"] = pad_spans([encoded["atom_spans"][row] for row in rows])
        batch = {name: tensor.to(self.model.device) for name, tensor in batch.items()}
        with evaluation(self.model):
            is_parser = self.arguments is None
            output = self.model.parse(**batch) if is_parser else self.model.base_model(**batch, **self.arguments)
        vectors = output.pooler_output.float().cpu().numpy() if self.with_vectors else [None] * len(rows)
        return output.spans.cpu().numpy(), output.split_scores.float().cpu().numpy(), vectors

    def _result(self, encoded, row: int, spans: np.ndarray, scores: np.ndarray, vector) -> ParsedSentence:
        word_ids = encoded["word_ids"][row]
        tree, scores = BinaryTree.from_spans(spans[: len(word_ids) - 1]), scores[: len(word_ids) - 1]
        if self.pieces:
            leaves = self.tokenizer.convert_ids_to_tokens(encoded["input_ids"][row])
            return ParsedSentence(tree, leaves, scores, word_ids, vector)
        between = [k for k in range(len(word_ids) - 1) if word_ids[k] != word_ids[k + 1]]
        words = sorted(set(word_ids))
        return ParsedSentence(tree.to_words(word_ids), encoded["words"][row], scores[between], words, vector)


__all__ = ["METHODS", "ParsedSentence", "TreeParser"]
