"""The folder of a run: which run it belongs to, and the tokenizer that the run began with."""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.checkpoints import find_checkpoint, load_tokenizer
from modeling_fast_r2d2.text_files import LOCK_FILE, OWNER_FILE, read_record, write_text

SETTINGS_FILE, TOKENIZER_FOLDER = "run.json", "tokenizer"
DIGEST = "corpus_digest"  # its name among the settings
FORMER_NAMES = {  # of options, in versions before they had transformers' names
    "sentences_per_batch", "tokens_per_batch", "accumulation", "epochs", "compile", "cpu", "best_by", "evaluate_steps",
}  # fmt: skip


def check_run_folder(folder: Path, settings: dict) -> None:
    """Raise ValueError unless the folder is new or empty, or belongs to a run with these settings."""
    if (folder / SETTINGS_FILE).exists():
        _check_settings(folder, read_record(folder / SETTINGS_FILE), settings)
    elif folder.exists() and not (folder.is_dir() and all(map(_is_unfinished, folder.iterdir()))):
        raise ValueError(f"{folder} exists and is no run's folder; give an empty or a new folder as --output_dir")


def _check_settings(folder: Path, old: dict, new: dict) -> None:
    if former := sorted(FORMER_NAMES & old.keys()):
        raise ValueError(
            f"{folder} holds a run of an earlier version, whose options had other names: {', '.join(former)}. This "
            "version cannot resume it; begin with another --output_dir, or give one of its checkpoints as --model"
        )
    changed = [f"{name} was {old.get(name)!r}, now {new[name]!r}" for name in new if old.get(name) != new[name]]
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings: {'; '.join(changed)}. Give the same settings to resume it, or "
            "another --output_dir; to begin another run from its weights, give one of its checkpoints as --model"
        )


def check_corpus(folder: Path, digest: str) -> None:
    """Raise ValueError if a run has begun in the folder with another corpus. Earlier versions recorded no digest."""
    before = read_record(folder / SETTINGS_FILE).get(DIGEST, digest) if (folder / SETTINGS_FILE).exists() else digest
    if before != digest:
        raise ValueError(
            f"the corpus has changed since the run in {folder} began, or this version reads it in another way: its "
            f"digest was {before}, now it is {digest}; restore the old corpus or version, or give another --output_dir"
        )


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a run that has begun; None if none has. Raises ValueError if it is damaged."""
    if not (folder / SETTINGS_FILE).exists():
        return None
    return load_tokenizer(find_checkpoint(str(folder / TOKENIZER_FOLDER), is_model=False))


def make_run_folder(folder: Path, settings: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a new run's folder or fill an empty one. The settings are written last: with them, the run has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
    write_text(folder / SETTINGS_FILE, json.dumps(settings, indent=1))


def _is_unfinished(path: Path) -> bool:
    """Whether a run that is killed before it begins may leave this."""
    return path.name in (TOKENIZER_FOLDER, LOCK_FILE, OWNER_FILE) or path.name.startswith(f".{SETTINGS_FILE}.")
