"""``pipeline("constituency-parsing")``: sentences to trees, in transformers' way."""

import copy
from collections.abc import Sequence
from typing import Any

from transformers import Pipeline

from .configuration_fast_r2d2 import MINIMUM_RISK
from .embedding import batches_by_length
from .processor_code import processor_class

DEFAULT_BATCH_TOKENS = 8192

PARSER = "parser"  # this method asks the parser alone and encodes nothing; the others are encodings of the model
METHODS = (PARSER, "chart", MINIMUM_RISK, "heuristic")


def check_method(method: str) -> str:
    """The method itself; raises ValueError for an unknown one."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    return method


class ConstituencyParsingPipeline(Pipeline):
    """Trees of sentences, over words.

    It takes one sentence or a list, with ``batch_size=`` as any pipeline, or ``batch_tokens=``. A list, or a column
    of a table, is parsed in batches of 8192 tokens if neither is given; a generator or a data set sentence by
    sentence. The result for a sentence is a dict: ``brackets``, a string; ``words``; ``spans``, first and last word
    of each constituent, inclusive, in the order of split points; ``confidences``, how probably each of these is right
    (see `TreeParser`); ``tree``, an `nltk.Tree`. ``save_pretrained`` writes this code beside the model, for processes
    without this package.

    Args:
        method: whose trees, as for `TreeParser`: ``"parser"``, the default, which needs no encoder; ``"chart"``;
            ``"minimum_risk"``; or ``"heuristic"``.
        batch_tokens: largest number of tokens, padding included, that are parsed at once. Sentences of like length are
            parsed together.
        min_confidence: from 0 to 1; constituents of which the parser is less sure are left out: there trees are flat.

    Raises:
        ValueError: for an unknown method or argument, a sentence that is no text (of a list it names the row), a
            ``min_confidence`` that is not from 0 to 1, and a model without the encoder that the method needs.
    """

    _load_tokenizer = True
    _load_image_processor = False
    _load_feature_extractor = False
    _load_processor = False

    def __init__(self, *args: Any, batch_tokens: int | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._batch_tokens = batch_tokens
        if self.tokenizer.padding_side != "right":  # batches are padded on this side
            self.tokenizer = copy.deepcopy(self.tokenizer)
            self.tokenizer.padding_side = "right"
        config = self.model.config
        self._reader = processor_class(config)(self.tokenizer, punctuation=config.punctuation)

    def __call__(self, inputs: Any, *args: Any, batch_tokens: int | None = None, **kwargs: Any) -> Any:
        batch_tokens = self._batch_tokens if batch_tokens is None else batch_tokens
        is_column = isinstance(inputs, Sequence) or hasattr(inputs, "tolist")
        if isinstance(inputs, str) or not is_column:
            return super().__call__(inputs, *args, **kwargs)
        sentences = self._reader.read(inputs)
        batch_size = kwargs.pop("batch_size", self._batch_size)
        if batch_tokens is None and batch_size is None:
            batch_tokens = DEFAULT_BATCH_TOKENS
        lengths, results = [len(sentence.input_ids) for sentence in sentences], [None] * len(sentences)
        for rows in batches_by_length(lengths, batch_size, batch_tokens):
            found = super().__call__([sentences[row] for row in rows], *args, batch_size=len(rows), **kwargs)
            for row, result in zip(rows, found, strict=True):
                results[row] = result
        return results

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As in transformers.

        Raises:
            ValueError: for a model without an encoder: a pipeline loads its model by AutoModel, which would refuse it.
        """
        if not hasattr(self.model.base_model, "composition"):
            raise ValueError(
                f"a pipeline of a {type(self.model).__name__} could not be loaded again, as it has no encoder; save "
                "model and tokenizer, and load them with TreeParser.from_pretrained"
            )
        super().save_pretrained(*args, **kwargs)

    def _sanitize_parameters(
        self, method: str | None = None, min_confidence: float | None = None, **kwargs: Any
    ) -> tuple[dict, dict, dict]:
        if kwargs:
            raise ValueError(
                f"unknown arguments {', '.join(kwargs)}; constituency-parsing has method, min_confidence, batch_size "
                "and batch_tokens"
            )
        given = {} if method is None else {"method": check_method(method)}
        return {}, given, {} if min_confidence is None else {"min_confidence": min_confidence}

    def preprocess(self, sentence: Any) -> dict:
        """A text, or a sentence that was read, as a list of them is."""
        read = self._reader.read_one(sentence)
        # Batches are padded with zeros: spans of the first token alone, which ask for nothing.
        batch = self._reader.pad([read])
        batch["atom_spans"] = batch["atom_spans"].view(1, -1, 2)
        return batch | {"sentence": read}

    def _forward(self, inputs: dict, method: str = PARSER) -> dict:
        sentence = inputs.pop("sentence")
        if method == PARSER:
            output = self.model.parse(**inputs)
        elif hasattr(self.model.base_model, "composition"):
            output = self.model.base_model(**inputs, encoding=method, return_dict=True)
        else:
            raise ValueError(f"{type(self.model).__name__} has no encoder for method={method!r}; load AutoModel")
        word_odds = self.model.base_model.parser.word_odds(inputs["input_ids"])
        return {"spans": output.spans, "scores": output.split_scores, "word_odds": word_odds, "sentence": sentence}

    def postprocess(self, outputs: dict, min_confidence: float = 0.0) -> dict:
        sentence = outputs["sentence"]
        tree, words = sentence.tree(outputs["spans"][0]), sentence.leaves
        scores = outputs["scores"][0, sentence.word_split_points].float().numpy()
        word_odds = outputs["word_odds"][0, : len(sentence.input_ids)].float().numpy()
        confidences = self._reader.confidences(sentence, tree, scores, word_odds, self.model.config)
        flat = tree.flat(confidences, min_confidence)
        return {
            "brackets": flat.brackets(words),
            "words": words,
            "spans": list(flat.spans),
            "confidences": confidences[confidences >= min_confidence].tolist(),
            "tree": flat.to_nltk(words),
        }
