"""Files that are complete or missing, never half written; their checksums; JSON files that may be damaged."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError


def write_aside(target: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file beside ``target``, flush it to the disk, then rename it. If writing fails, no file is left
    behind.

    Args:
        target: a link stands for what it leads to.
        write: called with the path of the temporary file, whose name no other process uses.

    Raises:
        ValueError: if ``target`` is a pipe or a device.
    """
    check_is_file(target)
    target = target.resolve()
    beginning = os.fsdecode(os.fsencode(target.name)[:120])  # a name has at most 255 bytes
    aside = target.with_name(f".{beginning}.{socket.gethostname()}.{os.getpid()}{target.suffix}")
    try:
        write(aside)
        with open(aside, "rb+") as file:  # else the name may reach the disk before the content
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, aside)
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_aside` does."""
    write_aside(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Where PyTorch and safetensors save into a folder: turn their errors, as for a full disk, into an `OSError`."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(f"{folder} could not be written ({error}); is the disk full, or the folder protected?") from error


def checksum(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_is_file(path: Path) -> None:
    """Raise a ValueError for a pipe, which may never give anything, and for a device, which may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a pipe or a device; give a file")


def read_record(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: if the file holds something else, or an object without entries; for a pipe or a device. The message
            names the file.
        OSError: if the file cannot be read.
    """
    check_is_file(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); restore it, or give another folder") from error
    if not (isinstance(record, dict) and record):
        raise ValueError(f"{path} is damaged (no JSON object with entries); restore it, or give another folder")
    return record
