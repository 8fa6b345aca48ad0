"""Files that are whole or not there."""

import os
import socket
from collections.abc import Callable
from pathlib import Path


def write_aside(target: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, under a name of this process, then rename it; what fails leaves nothing."""
    aside = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}{target.suffix}")
    try:
        write(aside)
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """`write_aside`, in UTF-8."""
    write_aside(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))
