"""The texts that `fast-r2d2 parse` is given: lines, or paragraphs of running text."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenization_fast_r2d2.lines import LONGEST_LINE, decode_lines, read_lines, too_long
from tokenization_fast_r2d2.words import checked_sentences

LONGEST_PARAGRAPH = 10_000  # lines; a longer one is cut, since it has to fit into memory


class Text(NamedTuple):
    """A line, a paragraph or a row of a table.

    Attributes:
        text: blank for a blank line or row.
        start: the number of characters before it, in its line, file or row.
        source: the names and numbers by which JSON output says where it comes from.
    """

    text: str
    start: int = 0
    source: dict[str, Any] = {}

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


def texts_to_parse(options: argparse.Namespace) -> Iterator[Text]:
    """The texts that the options name: from files, from standard input or from the command line."""
    if options.file:
        yield from read_texts(options.file, options.text_column, options.text, options.max_characters)
    elif options.sentences == ["-"]:
        if sys.stdin is None:
            raise ValueError("standard input is closed; give sentences or --file")
        raw = decode_lines(sys.stdin.buffer, "standard input", keep_ends=True, max_characters=options.max_characters)
        yield from paragraphs(raw) if options.text else map(line, raw)
    else:
        yield from map(Text if options.text else line, checked_sentences(options.sentences))


def read_texts(
    paths: Iterable[Path], column: str, is_running_text: bool = False, max_characters: int = LONGEST_LINE
) -> Iterator[Text]:
    """Lines or paragraphs of text files, and rows of ``.parquet`` files.

    Args:
        column: the column of Parquet files that has the text.
        is_running_text: files have paragraphs. If not, a line break within a row counts as a blank.
        max_characters: how long a line or a row may be.

    Raises:
        ValueError: if a Parquet file is damaged, does not have the column or has a longer row, or as `read_lines`
            raises it.
    """
    for path in paths:
        source = {"file": str(path)}
        if path.suffix != ".parquet":
            raw = read_lines(path, keep_ends=True, max_characters=max_characters)
            yield from paragraphs(raw, source) if is_running_text else map(line, raw)
            continue
        for number, row in enumerate(_rows(path, column)):
            if len(row) > max_characters:
                raise ValueError(too_long(f"{path}, row {number}", max_characters))
            yield Text(row, 0, source | {"row": number}) if is_running_text else line(re.sub(r"\s", " ", row))


def line(raw: str) -> Text:
    """A line without the blanks at its ends."""
    return Text(raw.strip(), len(raw) - len(raw.lstrip()))


def paragraphs(lines: Iterable[str], source: dict[str, Any] | None = None) -> Iterator[Text]:
    """The paragraphs of lines with line ends: lines up to a blank one. Each blank line is a text of its own."""
    start = 0
    gathered: list[str] = []
    for raw in lines:
        if gathered and (not raw.strip() or len(gathered) == LONGEST_PARAGRAPH):
            yield (paragraph := Text("".join(gathered), start, source or {}))
            start, gathered = start + len(paragraph.text), []
        if raw.strip():
            gathered.append(raw)
        else:
            yield Text(raw, start)
            start += len(raw)
    if gathered:
        yield Text("".join(gathered), start, source or {})


def _rows(path: Path, column: str) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path, page_checksum_verification=True)
        types = {field.name: _value_type(field.type) for field in file.schema_arrow}
        if types.get(column) not in ("string", "large_string"):
            names = ", ".join(name for name, kind in types.items() if kind.endswith("string"))
            raise ValueError(f"{path} has no text column {column!r}; --text_column must be one of {names}")
        for batch in file.iter_batches(columns=[column]):
            yield from (text or "" for text in batch.column(0).to_pylist())
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a complete Parquet file ({error})") from error


def _value_type(kind: Any) -> str:
    """A column's type; of a column that stores each value once, the values' type."""
    return str(getattr(kind, "value_type", kind)) if str(kind).startswith("dictionary") else str(kind)
