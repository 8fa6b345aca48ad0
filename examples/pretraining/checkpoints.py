"""Checkpoints that are whole or not there: they are written aside, listed with checksums and then renamed."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list

from modeling_fast_r2d2.text_files import checksum, read_record

logger = get_logger(__name__)

MANIFEST = "files.json"


class Checkpoints:
    """A run's checkpoints, in folders ``checkpoint-<step>``; only the newest ``keep`` of them stay."""

    def __init__(self, folder: Path, keep: int, accelerator: Accelerator):
        self.folder, self.keep, self.accelerator = folder, keep, accelerator

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        """Save a checkpoint. Every process calls ``write(folder)``, and their files must have different names."""
        aside, final = self.folder / f".checkpoint-{step}.part", self.folder / f"checkpoint-{step:09d}"
        if self.accelerator.is_main_process:
            self._remove_unfinished()
            aside.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        write(aside)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            publish(aside, final)
            # Later ones are damaged, or the run would have resumed from them.
            later = [path for path in self._all() if path.name > final.name]
            for old in later + self._all()[len(later) + self.keep :]:
                shutil.rmtree(old)
        self.accelerator.wait_for_everyone()

    def newest_good(self) -> Path | None:
        """The newest checkpoint that is not damaged; None if there is no checkpoint. Damaged ones are reported.

        Raises:
            ValueError: if there are checkpoints and all are damaged.
        """
        found = [self._find() if self.accelerator.is_main_process else None]
        [found] = broadcast_object_list(found)
        if isinstance(found, ValueError):
            raise found
        return found

    def _find(self) -> Path | ValueError | None:
        problems = []
        for checkpoint in self._all():
            problem = find_damage(checkpoint)
            if problem is None:
                return checkpoint
            problems.append(f"{checkpoint} is damaged: {problem}")
            logger.warning(f"{problems[-1]}; trying the one before it")
        if problems:
            return ValueError(
                f"all checkpoints are damaged. {'. '.join(problems)}. To start again, give another --output_dir"
            )
        return None

    def _all(self) -> list[Path]:
        """Newest first."""
        names = [path for path in self.folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
        return sorted(names, key=lambda path: int(path.name.partition("-")[2]), reverse=True)

    def _remove_unfinished(self) -> None:
        for leftover in self.folder.glob(".checkpoint-*.part"):
            shutil.rmtree(leftover)


def publish(aside: Path, final: Path) -> None:
    """List a folder's files with checksums, flush them to the disk, and then give the folder its name."""
    files = sorted(path for path in aside.rglob("*") if path.is_file())
    listing = {str(path.relative_to(aside)): checksum(path) for path in files}
    manifest = aside / MANIFEST
    manifest.write_text(json.dumps(listing, indent=1), encoding="utf-8")
    for path in [*files, manifest, aside]:
        _flush(path)
    replaced = final.with_name(f".{final.name}.part")
    if final.exists():
        shutil.rmtree(replaced, ignore_errors=True)  # left by a process that was killed here
        os.rename(final, replaced)
    os.rename(aside, final)
    _flush(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def find_damage(checkpoint: Path) -> str | None:
    """Say what is wrong with a checkpoint's files; None if nothing is."""
    try:
        for name, expected in read_record(checkpoint / MANIFEST).items():
            if checksum(checkpoint / name) != expected:
                return f"{name} has changed since it was written"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
