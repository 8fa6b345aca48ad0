"""Checksums of files, and JSON files that may be damaged."""

import hashlib
import json
from pathlib import Path
from typing import Any


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
