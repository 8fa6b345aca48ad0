"""The folder of a run: whose it is, and the tokenizer it began with."""

import json
import os
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

SETTINGS_FILE, TOKENIZER_FOLDER = "run.json", "tokenizer"
UNFINISHED = {TOKENIZER_FOLDER, f".{SETTINGS_FILE}.part"}  # what `begin` may leave when it is killed
FORMER_NAMES = {  # of options, in versions before they had transformers' names
    "sentences_per_batch", "tokens_per_batch", "accumulation", "epochs", "compile", "cpu", "best_by", "evaluate_steps",
}  # fmt: skip


def check_run_folder(folder: Path, settings: dict) -> None:
    """Raise ValueError unless the folder is new, empty, or that of a run with these settings."""
    if (folder / SETTINGS_FILE).exists():
        _check_settings(folder, json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8")), settings)
    elif folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - UNFINISHED):
        raise ValueError(f"{folder} exists and is no run's folder; give an empty or a new one as --output_dir")


def _check_settings(folder: Path, old: dict, new: dict) -> None:
    if former := sorted(FORMER_NAMES & old.keys()):
        raise ValueError(
            f"{folder} holds a run of an earlier version, whose options had other names: {', '.join(former)}. This "
            "version cannot resume it; begin with another --output_dir, or give one of its checkpoints as --model"
        )
    changed = [f"{name} was {old.get(name)!r}, now {new[name]!r}" for name in new if old.get(name) != new[name]]
    if changed:
        raise ValueError(
            f"{folder} holds a run of other settings: {'; '.join(changed)}. Give the same settings to go on, or "
            "another --output_dir; to begin another run from its weights, give one of its checkpoints as --model"
        )


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a run that has begun."""
    return AutoTokenizer.from_pretrained(folder / TOKENIZER_FOLDER) if (folder / SETTINGS_FILE).exists() else None


def make_run_folder(folder: Path, settings: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a new run's folder, or fill an empty one; the settings, which make it a run's, come last."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
    aside = folder / f".{SETTINGS_FILE}.part"
    aside.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    os.replace(aside, folder / SETTINGS_FILE)
