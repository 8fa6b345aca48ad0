"""Checkpoints that come with the package."""

import re
from pathlib import Path

from ..text_files import check_is_file
from .folders import check_model_folder, check_tokenizer_folder

FOLDER = Path(__file__).parent
DEFAULT_CHECKPOINT = str(FOLDER / "fast-r2d2-tiny")  # not looked for at import


def bundled_names() -> list[str]:
    """The names of these checkpoints, sorted."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def bundled_checkpoint(name: str = "fast-r2d2-tiny") -> str:
    """The folder of a checkpoint that comes with the package, for ``from_pretrained``.

    Raises:
        ValueError: if there is none of that name; the message lists those there are.
    """
    if name not in bundled_names():
        raise ValueError(f"bundled checkpoints are {', '.join(bundled_names())}, got {name!r}")
    return str(FOLDER / name)


def find_checkpoint(name: str, *, is_model: bool = True) -> str:
    """Where a checkpoint is: the folder of the bundled one of that name, an existing folder, or a Hub name.

    Args:
        is_model: whether a folder must have a model; else a tokenizer is enough.

    Raises:
        ValueError: for a path without a folder, and for a folder whose files are damaged, another model's, or no files
            but pipes or devices.
    """
    if name and Path(name).is_dir():
        for path in Path(name).iterdir():
            check_is_file(path)
        check_tokenizer_folder(Path(name))
        if is_model:
            check_model_folder(Path(name))
        return name
    if name in bundled_names():
        return bundled_checkpoint(name)
    if Path(name).exists() or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise ValueError(f"no checkpoint at {name!r}; give a folder, a Hub name or one of {', '.join(bundled_names())}")
    return name
