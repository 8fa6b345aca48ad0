"""Texts as a model takes them: all that a model's own code knows of text.

sentence-transformers runs only modules of its own, unless it is told to trust others. So a saved folder names its
module ``Transformer``, which calls `FastR2D2Model.sentence_vectors` on what `FastR2D2Processor` makes of texts.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from transformers import BatchFeature, PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import cached_file

from .confidence import Calibration, confidences, evidence_of
from .reading import ReadSentence, pad_batch, sentences_to_parse
from .trees import BinaryTree, Span
from .words import check_text

MODULES = "modules.json"
NO_LIMIT = 10**9  # a tokenizer without a largest length says a larger number
# What is done to texts anyway, by the names and values that a tokenizer has for it.
DONE_ANYWAY = {"padding": (True, "longest"), "truncation": (True, "longest_first"), "return_tensors": ("pt",)}


class FastR2D2Processor(ProcessorMixin):
    """Texts to the inputs of a model, words kept whole. `AutoProcessor` finds it, for sentence-transformers.

    Args:
        tokenizer: the fast tokenizer of the model.
        punctuation: ``config.punctuation`` of the model.
    """

    _auto_class = "AutoProcessor"
    is_described = True  # to sentence-transformers, which else would take a mean over all nodes, padding among them

    def __init__(self, tokenizer: PreTrainedTokenizerBase, punctuation: str = "keep"):
        super().__init__(tokenizer)
        self.punctuation = punctuation

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> "FastR2D2Processor":
        """Load the tokenizer that lies beside the weights, and read what their folder says; arguments as in
        transformers."""
        processor = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        places = ("cache_dir", "token", "revision", "local_files_only", "subfolder")
        options = {name: kwargs[name] for name in places if name in kwargs}
        found = cached_file(
            pretrained_model_name_or_path, MODULES, _raise_exceptions_for_missing_entries=False, **options
        )
        processor.is_described = found is not None
        config, _ = PreTrainedConfig.get_config_dict(pretrained_model_name_or_path, **options)
        processor.punctuation = config.get("punctuation", processor.punctuation)  # an adapter's folder has no config
        return processor

    def __call__(  # type: ignore[override]  # texts only
        self,
        text: Any,
        *,
        is_split_into_words: bool = False,
        text_kwargs: dict[str, Any] | None = None,
        common_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> BatchFeature:
        """
        Args:
            text: a list of texts, or of lists of words if ``is_split_into_words``; or of pairs of texts, which go to
                the tokenizer as they are, with all options.
            text_kwargs, common_kwargs: options as sentence-transformers gives them.
            options: ``max_length``, the largest number of pieces of a text.

        Returns:
            The tensors of `pad_batch`, as `FastR2D2Model.sentence_vectors` takes them.

        Raises:
            ValueError: for what is no text, for options of a tokenizer that texts cannot have here, and if the folder
                was not made for sentence-transformers.
        """
        options = {name: value for name, value in options.items() if not name.endswith("_kwargs")}  # of images, sound
        options = (text_kwargs or {}) | (common_kwargs or {}) | options
        text = list(text) if isinstance(text, Iterator) else text  # it is looked at twice
        may_have_pairs = not is_split_into_words and isinstance(text, Iterable)
        if may_have_pairs and not all(isinstance(item, str) for item in text):
            for item in sorted(text, key=lambda item: isinstance(item, str)):  # a text is the last to be wrong
                _check_pair(item)
            return BatchFeature(dict(self.tokenizer(list(text), **options)))
        if not self.is_described:
            raise ValueError(
                f"the model's folder has no {MODULES}, so sentence-transformers would take the wrong vectors: it was "
                "saved by an older version; load the model with AutoModel and save it again"
            )
        limit = options.pop("max_length", None)
        limit = self.tokenizer.model_max_length if limit is None else limit
        _check_options(options)
        read = self.read(text, is_split_into_words, max_length=limit if limit < NO_LIMIT else None)
        return BatchFeature(self.pad(read))

    def read(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        is_split_into_words: bool = False,
        word_offsets: Sequence[Sequence[Span]] | None = None,
        max_length: int | None = None,
    ) -> list[ReadSentence]:
        """Tokenize sentences, and set punctuation aside if the model does not see it; as `sentences_to_parse`."""
        return sentences_to_parse(
            self.tokenizer, sentences, is_split_into_words=is_split_into_words, word_offsets=word_offsets,
            set_marks_aside=self.punctuation == "aside", max_length=max_length,
        )  # fmt: skip

    def read_one(self, sentence: str | ReadSentence) -> ReadSentence:
        """A text as `read` gives it; a sentence that was read is returned as it is.

        Raises:
            ValueError: for anything else.
        """
        if isinstance(sentence, ReadSentence):
            return sentence
        check_text(sentence, "a sentence")
        return self.read([sentence])[0]

    def pad(self, sentences: Sequence[ReadSentence], keep_words: bool = True) -> dict[str, Tensor]:
        """A batch of sentences that were read; see `pad_batch`."""
        return pad_batch(sentences, keep_words)

    def confidences(
        self,
        sentence: ReadSentence,
        tree: BinaryTree,
        word_scores: np.ndarray,
        word_odds: np.ndarray,
        config: Any,
        words: Sequence[int] | None = None,
    ) -> np.ndarray:
        """How sure a parser is of each of ``tree.spans``, ``(leaves - 1,)`` float32.

        Args:
            word_scores, words: as for `evidence_of`; None if the sentence's ``words`` are words.
            word_odds: as for `Calibration`.
            config: of the model, which says how to calibrate.
        """
        words = range(len(sentence.words)) if words is None else words
        evidence = evidence_of(sentence, words, word_scores, tree.spans)
        return confidences(evidence, len(tree.spans), Calibration.of(config), word_odds)


def _check_pair(pair: Any) -> None:
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
        raise ValueError(
            f"give texts, pairs of two texts, or lists of words with is_split_into_words=True; got {pair!r:.80}"
        )


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and value not in DONE_ANYWAY.get(name, ()):
            raise ValueError(
                f"{name}={value!r} is for tokenizers; a processor takes max_length and is_split_into_words, cuts texts "
                "there, and pads them to the longest, as tensors of torch"
            )
