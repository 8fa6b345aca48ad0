"""The processor of texts, and what a saved folder needs for it: its code, and a description for sentence-transformers.

transformers saves a class with the files of its own folder. The processor's lie beside `tokenization_fast_r2d2`, so a
model brings them, and takes them from where it was loaded itself.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import custom_object_save, get_class_from_dynamic_module

try:  # transformers does not require packages that are imported within ``try``
    from tokenization_fast_r2d2.processing_fast_r2d2 import FastR2D2Processor
except ImportError:
    FastR2D2Processor = None  # type: ignore[assignment, misc]

SENTENCE_TRANSFORMERS_FILES: dict[str, Any] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ],
    "sentence_bert_config.json": {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "sentence_vectors", "method_output_name": None}},
        "module_output_name": "sentence_embedding",
    },
}


def processor_class(config: Any) -> Any:
    """`FastR2D2Processor`: the package's, or where a saved folder's code runs, that which lies beside the weights.

    Args:
        config: the configuration of a loaded model.

    Raises:
        ValueError: if the folder of the weights has no such code, or is gone.
    """
    if not __name__.startswith("transformers_modules."):
        return FastR2D2Processor
    return _saved_class(config.name_or_path, getattr(config, "_commit_hash", None))


@cache
def _saved_class(place: str, revision: str | None) -> Any:
    try:
        return get_class_from_dynamic_module("processing_fast_r2d2.FastR2D2Processor", place, revision=revision)
    except OSError as error:
        raise ValueError(
            f"no processing_fast_r2d2.py beside the weights, in {place!r}; restore it, or install fast-r2d2"
        ) from error


def save_processor_code(folder: Path, config: Any) -> None:
    """Copy the processor's file, and those that it imports, into a saved model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    custom_object_save(processor_class(config), folder)


def describe_to_sentence_transformers(folder: Path) -> None:
    """Write the files that `SentenceTransformer` looks for into a saved model's folder; its own, which may name more
    modules, stay."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_described(folder):
        for name, content in SENTENCE_TRANSFORMERS_FILES.items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _is_described(folder: Path) -> bool:
    """Whether sentence-transformers takes the folder for a model of this package, perhaps with modules behind it."""
    try:
        modules, own = (json.loads((folder / name).read_text("utf-8")) for name in SENTENCE_TRANSFORMERS_FILES)
        is_first = modules[0]["path"] == "" and modules[0]["type"].endswith(".Transformer")
        return is_first and SENTENCE_TRANSFORMERS_FILES["sentence_bert_config.json"].items() <= own.items()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
