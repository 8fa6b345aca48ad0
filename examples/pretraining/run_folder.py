"""The folder of a run: whose it is, and the tokenizer it began with."""

import json
import os
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

SETTINGS, TOKENIZER = "run.json", "tokenizer"
UNFINISHED = {TOKENIZER, f".{SETTINGS}.part"}  # what `begin` may leave when it is killed


def check_folder(folder: Path, settings: dict) -> None:
    """Raise ValueError unless the folder is new, empty, or that of a run with these settings."""
    if (folder / SETTINGS).exists():
        _compare(folder, json.loads((folder / SETTINGS).read_text(encoding="utf-8")), settings)
    elif folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - UNFINISHED):
        raise ValueError(f"{folder} exists and is no run's folder; give an empty or a new one as --output")


def _compare(folder: Path, old: dict, new: dict) -> None:
    changed = [f"{name} was {old.get(name)!r}, now {new[name]!r}" for name in new if old.get(name) != new[name]]
    if changed:
        raise ValueError(
            f"{folder} holds a run of other settings: {'; '.join(changed)}. Give the same settings to go on, or "
            "another --output; to begin another run from its weights, give one of its checkpoints as --model"
        )


def begun_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a run that has begun."""
    return AutoTokenizer.from_pretrained(folder / TOKENIZER) if (folder / SETTINGS).exists() else None


def begin(folder: Path, settings: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a new run's folder, or fill an empty one; the settings, which make it a run's, come last."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder / TOKENIZER)
    aside = folder / f".{SETTINGS}.part"
    aside.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    os.replace(aside, folder / SETTINGS)
