"""Lines of text files, plain or compressed with gzip, and streams of them in chunks."""

import gzip
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

Item = TypeVar("Item")

LONGEST_LINE = 1_000_000  # characters; the time and memory of a sentence grow with its length


def read_sentences(paths: str | Path | Iterable[str | Path]) -> Iterator[str]:
    """Lines of text files, one or several as for `read_lines`, with the same errors, without blanks at their ends.
    Blank lines become empty strings."""
    return map(str.strip, read_lines(paths))


def read_lines(
    paths: str | Path | Iterable[str | Path], keep_ends: bool = False, max_characters: int = LONGEST_LINE
) -> Iterator[str]:
    """Lines of text files in UTF-8, plain or ``.gz``, file after file.

    Args:
        keep_ends: lines come with their line ends.
        max_characters: how long a line may be. Of a longer one, only this much is read into memory.

    Raises:
        ValueError: if a file is not UTF-8 or has a longer line, if a ``.gz`` file is damaged, or for a folder or a
            device. The message names the file, and the line.
        FileNotFoundError: if a file is missing, once the files before it are read.
    """
    for path in [paths] if isinstance(paths, str | Path) else paths:
        _check_kind(path)
        with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
            yield from decode_lines(file, path, keep_ends, max_characters)


def _check_kind(path: str | Path) -> None:
    """Refuse what has no lines. Pipes have; they can be read once."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a folder; give the files in it")
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise ValueError(f"{path} is a device, not a file")


def decode_lines(
    file: BinaryIO | gzip.GzipFile, path: str | Path, keep_ends: bool = False, max_characters: int = LONGEST_LINE
) -> Iterator[str]:
    """Lines of an open binary file, as `read_lines` gives them; error messages call the file ``path``."""
    most = 4 * max_characters + 6  # more bytes than the longest line has in UTF-8, with byte order mark and line end
    try:
        for number, raw in enumerate(iter(lambda: file.readline(most), b""), start=1):
            if len(raw) == most:
                raise ValueError(too_long(f"{path}, line {number}", max_characters))
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            text = line.rstrip("\r\n")
            if len(text) > max_characters:
                raise ValueError(too_long(f"{path}, line {number}", max_characters))
            yield line if keep_ends else text
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete gzip file ({error}); compress or download it again") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file, for example with iconv"
        ) from error


def too_long(place: str, max_characters: int) -> str:
    """The error message for a line or a row."""
    return f"{place}: longer than {max_characters:,} characters (max_characters); split it into lines"


def chunks(items: Iterable[Item], size: int, largest: int | None = None) -> Iterator[list[Item]]:
    """Lists of successive items. If the stream fails, what came before is given first, and then the error.

    Args:
        size: the number of items of the first list.
        largest: every list is four times as long as the one before it, up to this number of items. Short lists at the
            beginning give the first results soon. None keeps the first size.

    Raises:
        ValueError, OSError: as the stream raises them.
    """
    chunk: list[Item] = []
    try:
        for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk, size = [], min(4 * size, largest or size)
    except (ValueError, OSError):
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk
