"""Folders that sentence-transformers reads: what it needs to know, and texts as it gives them to a model.

sentence-transformers runs only modules of its own, unless it is told to trust others. So a saved folder names its
module ``Transformer``, which calls `FastR2D2Model.sentence_vectors` on what `FastR2D2Processor` makes of texts.
"""

import json
from pathlib import Path
from typing import Any

from transformers import BatchFeature, PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import cached_file

from .reading import pad_batch, sentences_to_parse

MODULES = "modules.json"
SENTENCE_TRANSFORMERS_FILES: dict[str, Any] = {
    MODULES: [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "sentence_vectors", "method_output_name": None}},
        "module_output_name": "sentence_embedding",
    },
}
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
        return BatchFeature(pad_batch(sentences_to_parse(
            self.tokenizer, text, set_marks_aside=self.punctuation == "aside",
            max_length=limit if limit < NO_LIMIT else None,
        )))  # fmt: skip

    def to_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As in transformers, without what `from_pretrained` reads from the model's folder."""
        fields = super().to_dict(*args, **kwargs)
        return {name: value for name, value in fields.items() if name not in ("is_described", "punctuation")}


def describe_to_sentence_transformers(folder: Path) -> None:
    """Write the files that `SentenceTransformer` looks for into a saved model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in SENTENCE_TRANSFORMERS_FILES.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


__all__ = ["FastR2D2Processor", "describe_to_sentence_transformers"]
