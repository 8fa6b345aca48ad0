"""Reading a task from GLUE's TSV files or from the Hub, as columns ``text``, ``text_pair`` and ``label``."""

import csv
from collections.abc import Callable
from pathlib import Path

from datasets import Dataset, DatasetDict, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers.utils import logging

from glue.tasks import Task
from tokenization_fast_r2d2 import read_sentences

logger = logging.get_logger(__name__)


def read_task(task: Task, source: str) -> DatasetDict:
    """Read a task: training rows as ``train``, and the evaluation sets that exist by their names.

    Args:
        source: a folder that contains the task's folder, as GLUE's downloads do, or a data set's Hub name or folder.

    Raises:
        ValueError: for missing files and columns, and for unknown labels, with the file and the line or row.
    """
    folder = Path(source) / task.name
    if folder.is_dir():
        return _from_files(task, folder)
    if Path(source).is_dir() and not any(Path(source).glob("*.md")):
        raise ValueError(f"{source} has no folder {task.name}; give the folder that contains all tasks, or a Hub "
                         "name such as nyu-mll/glue")  # fmt: skip
    return _from_hub(task, source)


def _from_files(task: Task, folder: Path) -> DatasetDict:
    files = {"train": folder / "train.tsv"} | {stem: folder / f"{stem}.tsv" for stem, _ in task.evaluations}
    needed = ["train", task.evaluations[0][0]]
    for name in needed:
        if not files[name].is_file():
            raise ValueError(
                f"{files[name]} is not there; {task.name} needs {' and '.join(f'{n}.tsv' for n in needed)}"
            )
    return DatasetDict({name: _from_file(task, file) for name, file in files.items() if file.is_file()})


def _from_file(task: Task, file: Path) -> Dataset:
    columns = task.header or _header(file)
    missing = [name for name in task.columns if name not in columns]
    if missing:
        raise ValueError(f"{file} has no column {', '.join(missing)}, but {', '.join(columns)}")
    used = [name for name in columns if name in task.columns]  # in the file's order, which the reader needs
    try:
        rows = load_dataset(
            "csv", data_files=str(file), split="train", delimiter="\t", quoting=csv.QUOTE_NONE, keep_default_na=False,
            header=None if task.header else 0, names=list(columns), usecols=used, encoding="utf-8-sig",
            skip_blank_lines=False,
            features=Features({name: Value("string") for name in used}),
        )  # fmt: skip
    except (DatasetGenerationError, ValueError) as error:  # only a header, or no table
        raise ValueError(f"{file} could not be read as a table with rows: {error.__cause__ or error}") from error
    first_line = 1 if task.header else 2
    return _normalised(rows, task, task.columns, lambda row: f"{file}, line {row + first_line}")


def _header(file: Path) -> list[str]:
    return next(iter(read_sentences(file)), "").removeprefix("\ufeff").split("\t")


def _from_hub(task: Task, source: str) -> DatasetDict:
    try:
        splits = load_dataset(source, task.hub_name)
    except (OSError, ValueError) as error:
        raise ValueError(f"{task.hub_name} of the data set {source!r} could not be loaded: {error}") from error
    names = {"train": "train"} | {split: stem for stem, split in task.evaluations}
    missing = [name for name in ("train", task.evaluations[0][1]) if name not in splits]
    if missing:
        raise ValueError(f"{source} has no split {', '.join(missing)} of {task.hub_name}, but {', '.join(splits)}")
    return DatasetDict({
        name: _normalised(
            splits[split], task, task.hub_columns, lambda row, split=split: f"{source}, {split}, row {row}"
        )
        for split, name in names.items() if split in splits
    })  # fmt: skip


def _normalised(rows: Dataset, task: Task, columns: tuple[str, ...], place: Callable[[int], str]) -> Dataset:
    missing = [name for name in columns if name not in rows.column_names]
    if missing:
        raise ValueError(f"no column {', '.join(missing)} at {place(0)}, but {', '.join(rows.column_names)}")
    if not len(rows):
        raise ValueError(f"no rows at {place(0)}")
    complete = [row for row, fields in enumerate(zip(*(rows[name] for name in columns), strict=True))
                if None not in fields and fields[-1] != ""]  # fmt: skip
    if len(complete) < len(rows):
        first = min(set(range(len(rows))) - set(complete))
        logger.warning(f"{len(rows) - len(complete)} rows lack a field and are left out, the first is {place(first)}")
        if not complete:
            raise ValueError(f"all rows lack a field, from {place(0)} on")
    given = list(rows[columns[-1]])
    labels = [_class_number(task, given[row], place(row)) for row in complete]
    rows = rows.select(complete)
    names = ("text", "text_pair")[: len(columns) - 1]
    rows = rows.select_columns(columns[:-1]).rename_columns(dict(zip(columns[:-1], names, strict=True)))
    return rows.add_column("label", labels)


def _class_number(task: Task, label: str | int, place: str) -> int:
    """Number of a class that is given by number or by name."""
    if label in task.classes:
        return task.classes.index(label)
    if str(label).isdecimal() and int(label) < len(task.classes):
        return int(label)
    known = ", ".join(f"{number} ({name})" for number, name in enumerate(task.classes))
    raise ValueError(f"{place}: {label!r} is no label of {task.name}; its labels are {known}")
