"""Files that are either complete or missing, never half written."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import SafetensorError


def write_aside(target: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file beside ``target``, flush it to the disk, then rename it. If writing fails, no file is left
    behind.

    Args:
        write: called with the path of the temporary file, whose name no other process uses.
    """
    aside = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}{target.suffix}")
    try:
        write(aside)
        with open(aside, "rb+") as file:  # else the name may reach the disk before the content
            os.fsync(file.fileno())
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_aside` does."""
    write_aside(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Where PyTorch and safetensors save into a folder: turn their errors for a full disk into an `OSError`."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(f"{folder} could not be written ({error}); is the disk full?") from error
