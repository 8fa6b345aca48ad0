"""Lines of text files, plain or compressed with gzip."""

import gzip
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


def read_lines(paths: str | Path | Iterable[str | Path]) -> Iterator[str]:
    """Lines of text files in UTF-8, plain or ``.gz``, file after file, without line ends.

    Raises:
        ValueError: if a file is not UTF-8, or if a ``.gz`` file is damaged. The message names the file, and the line
            that is not UTF-8.
        FileNotFoundError: if a file is missing, once the files before it are read.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            yield from decode_lines(file, path)


def decode_lines(file: Iterable[bytes], path: str | Path) -> Iterator[str]:
    """Lines of an open binary file, as `read_lines` gives them; error messages call the file ``path``."""
    for number, line in enumerate(_lines(file, path), start=1):
        yield _decode(line, path, number)


def _lines(file: Iterable[bytes], path: str | Path) -> Iterator[bytes]:
    try:
        yield from file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file ({error}); compress or download it again") from error


def _decode(line: bytes, path: str | Path, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file, for example with iconv"
        ) from error
