"""Lines of text files, plain or packed."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO


def read_sentences(
    paths: str | Path | Iterable[str | Path], clean: Callable[[str], str] | None = None
) -> Iterator[str]:
    """`read_lines` without outer blanks.

    Args:
        paths: one file or several.
        clean: applied to every line, such as `clean_wikitext`.
    """
    for line in read_lines(paths):
        yield clean(line.strip()) if clean else line.strip()


def read_lines(paths: str | Path | Iterable[str | Path]) -> Iterator[str]:
    """Lines of text files, plain or ``.gz``, one after the other, without line ends.

    Raises:
        ValueError: naming the file, where it is not UTF-8 (and the line), or a damaged ``.gz``.
        FileNotFoundError: for a missing file, when its turn comes.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        opener = gzip.open if str(path).endswith(".gz") else open
        with opener(path, "rb") as file:
            yield from decode_lines(file, path)


def decode_lines(file: BinaryIO, path: str | Path) -> Iterator[str]:
    """Lines of a binary file; ``path`` is its name in messages."""
    for number, line in enumerate(_lines(file, path), start=1):
        yield _decode(line, path, number)


def _lines(file: BinaryIO, path: str | Path) -> Iterator[bytes]:
    try:
        yield from file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}); pack or fetch it again") from error


def _decode(line: bytes, path: str | Path, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file, for example with iconv"
        ) from error
