"""GLUE's tasks: names of files and columns, classes and metrics, which are scikit-learn's; nothing is downloaded."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import EvalPrediction


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
