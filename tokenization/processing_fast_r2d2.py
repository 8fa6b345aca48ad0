"""Texts as a model takes them: all that a model's own code knows of text.

sentence-transformers runs only modules of its own, unless it is told to trust others. So a saved folder names its
module ``Transformer``, which calls `FastR2D2Model.sentence_vectors` on what `FastR2D2Processor` makes of texts.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers import BatchFeature, PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import cached_file

from .reading import ReadSentence, pad_batch, sentences_to_parse
from .trees import Span
from .words import check_text

MODULES = "modules.json"
NO_LIMIT = 10**9  # a tokenizer without a largest length says a larger number


class FastR2D2Processor(ProcessorMixin):
    """Texts to the inputs of a model, words kept whole. `AutoProcessor` finds it, for sentence-transformers.

    Args:
        tokenizer: the fast tokenizer of the model.
        is_described: whether the folder has sentence-transformers' files. Without them sentence-transformers would take
            a mean over leaves, constituents and padding for the vector of a sentence, so texts are refused.
        punctuation: ``config.punctuation`` of the model.
    """

    _auto_class = "AutoProcessor"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, is_described: bool = True, punctuation: str = "keep"):
        super().__init__(tokenizer)
        self.is_described, self.punctuation = is_described, punctuation

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
        processor.punctuation = config.get("punctuation", "keep")
        return processor

    def __call__(  # type: ignore[override]  # texts only
        self,
        text: Any,
        *,
        text_kwargs: dict[str, Any] | None = None,
        common_kwargs: dict[str, Any] | None = None,
        **other_modalities: Any,
    ) -> BatchFeature:
        """
        Args:
            text: a list of texts; or of pairs of texts, which go to the tokenizer as they are.
            text_kwargs: of these, ``max_length`` is the largest number of pieces of a text.
            common_kwargs: for pairs, as for the tokenizer.

        Returns:
            The tensors of `pad_batch`, as `FastR2D2Model.sentence_vectors` takes them.

        Raises:
            ValueError: if the folder was not made for sentence-transformers.
        """
        options = dict(text_kwargs or {})
        if not all(isinstance(sentence, str) for sentence in text):
            return BatchFeature(dict(self.tokenizer(text, **options, **(common_kwargs or {}))))
        if not self.is_described:
            raise ValueError(
                f"the model's folder has no {MODULES}, so sentence-transformers would take the wrong vectors: it was "
                "saved by an older version, or holds a parser alone; load the model with AutoModel and save it again"
            )
        limit = options.get("max_length") or self.tokenizer.model_max_length
        return BatchFeature(self.pad(self.read(text, max_length=limit if limit < NO_LIMIT else None)))

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

    def to_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As in transformers, without what `from_pretrained` reads from the model's folder."""
        fields = super().to_dict(*args, **kwargs)
        return {name: value for name, value in fields.items() if name not in ("is_described", "punctuation")}
