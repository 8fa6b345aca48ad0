"""Lines of text files, plain or compressed with gzip."""

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def read_sentences(
    paths: str | Path | Iterable[str | Path], clean: Callable[[str], str] | None = None
) -> Iterator[str]:
    """Lines of text files, without blanks at their ends; blank lines become empty strings.

    Args:
        paths: one file or several, as for `read_lines`, with the same errors.
        clean: a function that is applied to every line, such as `clean_wikitext`.
    """
    for line in read_lines(paths):
        yield clean(line.strip()) if clean else line.strip()


def read_lines(paths: str | Path | Iterable[str | Path], keep_ends: bool = False) -> Iterator[str]:
    """Lines of text files in UTF-8, plain or ``.gz``, file after file.

    Args:
        keep_ends: lines come with their line ends.

    Raises:
        ValueError: if a file is not UTF-8, if a ``.gz`` file is damaged, or for a folder or a device. The message names
            the file, and the line that is not UTF-8.
        FileNotFoundError: if a file is missing, once the files before it are read.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        _check_kind(path)
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            yield from decode_lines(file, path, keep_ends)


def _check_kind(path: str | Path) -> None:
    """Refuse what has no lines. Pipes have; they can be read once."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a folder; give the files in it")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise ValueError(f"{path} is a device, not a file")


def decode_lines(file: Iterable[bytes], path: str | Path, keep_ends: bool = False) -> Iterator[str]:
    """Lines of an open binary file, as `read_lines` gives them; error messages call the file ``path``."""
    for number, raw in enumerate(_lines(file, path), start=1):
        line = _decode(raw, path, number)
        yield line if keep_ends else line.rstrip("\r\n")


def _lines(file: Iterable[bytes], path: str | Path) -> Iterator[bytes]:
    try:
        yield from file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file ({error}); compress or download it again") from error


def _decode(line: bytes, path: str | Path, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file, for example with iconv"
        ) from error
