"""GLUE's tasks: names of files and columns, classes and metrics, which are scikit-learn's; and reading one from TSV
files or from the Hub, as columns ``text``, ``text_pair`` and ``label``."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import EvalPrediction
from transformers.utils import logging

from tokenization_fast_r2d2 import read_sentences

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: name of its folder in GLUE's own layout.
        hub_name: its configuration in ``nyu-mll/glue``.
        classes: names of the classes, in the order of their numbers in ``nyu-mll/glue``.
        metric: the metric that the paper reports, see `score`.
        columns: columns of its TSV files, the sentences first, the label last.
        hub_columns: the same columns in ``nyu-mll/glue``.
        header: all columns of its TSV files, if the files have no header.
        evaluations: the evaluation sets, each by the stem of its file and by its split in ``nyu-mll/glue``.
    """

    name: str
    hub_name: str
    classes: tuple[str, ...]
    metric: str
    columns: tuple[str, ...]
    hub_columns: tuple[str, ...]
    header: tuple[str, ...] | None = None
    evaluations: tuple[tuple[str, str], ...] = (("dev", "validation"),)

    @property
    def is_pair(self) -> bool:
        return len(self.columns) == 3

    @property
    def id2label(self) -> dict[int, str]:
        return dict(enumerate(self.classes))

    @property
    def head(self) -> dict[str, Any]:
        """What a configuration says of a classifier's head."""
        label2id = {name: number for number, name in self.id2label.items()}
        return {"id2label": self.id2label, "label2id": label2id, "problem_type": "single_label_classification"}


PAIR_COLUMNS = ("sentence1", "sentence2", "label")

TASKS = {
    task.name: task
    for task in (
        Task(
            "CoLA", "cola", ("unacceptable", "acceptable"), "matthews_correlation",
            ("sentence", "label"), ("sentence", "label"), header=("source", "label", "mark", "sentence"),
        ),
        Task("SST-2", "sst2", ("negative", "positive"), "accuracy", ("sentence", "label"), ("sentence", "label")),
        Task("MRPC", "mrpc", ("not_equivalent", "equivalent"), "f1", ("#1 String", "#2 String", "Quality"),
             PAIR_COLUMNS),
        Task(
            "QQP", "qqp", ("not_duplicate", "duplicate"), "f1",
            ("question1", "question2", "is_duplicate"), ("question1", "question2", "label"),
        ),
        Task(
            "MNLI", "mnli", ("entailment", "neutral", "contradiction"), "accuracy",
            ("sentence1", "sentence2", "gold_label"), ("premise", "hypothesis", "label"),
            evaluations=(("dev_matched", "validation_matched"), ("dev_mismatched", "validation_mismatched")),
        ),
        Task("RTE", "rte", ("entailment", "not_entailment"), "accuracy", PAIR_COLUMNS, PAIR_COLUMNS),
    )
}  # fmt: skip


def find_task(name: str) -> Task:
    """Find a task by its folder's or Hub name, in upper or lower case. Raises ValueError for other names."""
    for task in TASKS.values():
        if name.lower() in (task.name.lower(), task.hub_name):
            return task
    raise ValueError(f"no task {name!r}; there are {', '.join(TASKS)}")


def score(task: Task, prediction: EvalPrediction) -> dict[str, float]:
    """``accuracy``, and the task's own metric if it is ``matthews_correlation`` or ``f1`` (of class 1)."""
    labels, predicted = prediction.label_ids, np.argmax(prediction.predictions, axis=-1)
    scores = {"accuracy": float(accuracy_score(labels, predicted))}
    if task.metric == "matthews_correlation":
        scores["matthews_correlation"] = float(matthews_corrcoef(labels, predicted))
    if task.metric == "f1":
        scores["f1"] = float(f1_score(labels, predicted, zero_division=0))
    return scores


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
    columns = task.header or next(iter(read_sentences(file)), "").removeprefix("\ufeff").split("\t")
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
