"""The texts of a corpus: lines of text files, and rows of Parquet files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..text_files import read_sentences


def read_texts(paths: Iterable[Path], column: str) -> Iterator[str]:
    """Lines of text files, and rows of ``.parquet`` files. A line break within a row becomes a blank.

    Args:
        column: the column of Parquet files that has the text.

    Raises:
        ValueError: if a Parquet file is damaged or does not have the column.
    """
    for path in paths:
        if path.suffix != ".parquet":
            yield from read_sentences(path)
            continue
        yield from _read_parquet(path, column)


def _read_parquet(path: Path, column: str) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path, page_checksum_verification=True)
        types = {field.name: _value_type(field.type) for field in file.schema_arrow}
        if types.get(column) not in ("string", "large_string"):
            names = ", ".join(name for name, kind in types.items() if kind.endswith("string"))
            raise ValueError(f"{path} has no text column {column!r}; --text_column must be one of {names}")
        for batch in file.iter_batches(columns=[column]):
            yield from (" ".join((text or "").split()) for text in batch.column(0).to_pylist())
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a complete Parquet file ({error})") from error


def _value_type(kind: Any) -> str:
    """A column's type; of a column that stores each value once, the values' type."""
    return str(getattr(kind, "value_type", kind)) if str(kind).startswith("dictionary") else str(kind)
