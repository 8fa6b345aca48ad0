"""Reading text from files, folders, `datasets` folders or the Hub, always as a data set of lines."""

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset, DatasetDict, Features, IterableDataset, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError, DatasetsError

from pretraining.options import DataOptions
from tokenization_fast_r2d2 import read_sentences

SUFFIXES = (".txt", ".txt.gz")
# Path, size in bytes, time of the last change in nanoseconds: a file that changes is not read from the cache.
File = tuple[str, int, int]


def read_texts(data: DataOptions) -> Dataset | IterableDataset:
    """Read the lines of the corpus into a column ``text``.

    Raises:
        ValueError: for a source that is missing, empty, not UTF-8, or without the split or column, with its name.
    """
    [first, *others] = data.corpus
    is_folder_of_texts = any(file_names(first)) if os.path.isdir(first) else False
    if not others and not is_folder_of_texts and (os.path.isdir(first) or _looks_like_hub_name(first)):
        return _read_dataset(first, data)
    files = [file for source in data.corpus for file in files_of(source)]
    if next(lines_as_rows(files), None) is None:
        raise ValueError(f"no text in {', '.join(data.corpus)}: {len(files)} files without a line")
    columns = Features({"text": Value("string")})
    if data.streaming:
        return IterableDataset.from_generator(lines_as_rows, features=columns, gen_kwargs={"files": files})
    try:
        return Dataset.from_generator(lines_as_rows, features=columns, gen_kwargs={"files": files})
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError):  # ours, with the file's name
            raise error.__cause__ from None
        raise


def lines_as_rows(files: list[File]) -> Iterator[dict[str, str]]:
    for path, _, _ in files:
        for line in read_sentences(path):
            yield {"text": line}


def files_of(source: str) -> list[File]:
    """The text files of a path, a glob or a folder, ordered by name."""
    names = [source] if os.path.isfile(source) else file_names(source) if os.path.isdir(source) else []
    names = names or [name for name in sorted(glob.glob(source, recursive=True)) if os.path.isfile(name)]
    if not names:
        raise ValueError(f"no text at {source!r}; give a file, a glob, a folder with {' or '.join(SUFFIXES)} files")
    return [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in names]


def file_names(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def _looks_like_hub_name(source: str) -> bool:
    is_path = os.path.exists(source) or source.endswith((".txt", ".gz")) or glob.has_magic(source)
    return not is_path and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) is not None


def _read_dataset(source: str, data: DataOptions) -> Dataset | IterableDataset:
    is_saved = any((Path(source) / name).exists() for name in ("dataset_dict.json", "state.json"))
    try:
        if is_saved:
            dataset = load_from_disk(source)
            dataset = dataset[data.corpus_split] if isinstance(dataset, DatasetDict) else dataset
            dataset = dataset.to_iterable_dataset() if data.streaming else dataset
        else:
            dataset = load_dataset(source, data.corpus_config, split=data.corpus_split, streaming=data.streaming)
    except (OSError, KeyError, ValueError, DatasetsError) as error:
        raise ValueError(
            f"{source!r} is no folder of texts, and as a data set, split {data.corpus_split!r}, it could not be "
            f"loaded: {error}"
        ) from error
    columns = dataset.column_names or list(next(iter(dataset), {}))
    if data.text_column not in columns:
        raise ValueError(f"{source!r} has no column {data.text_column!r} but {', '.join(columns)}; give --text_column")
    return dataset.select_columns([data.text_column]).rename_columns(
        {data.text_column: "text"} if data.text_column != "text" else {}
    )
