"""Scores of predictions, computed with scikit-learn; nothing is downloaded."""

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import EvalPrediction

from glue.tasks import Task


def score(task: Task, prediction: EvalPrediction) -> dict[str, float]:
    """``accuracy``, and the task's own metric if it is ``matthews_correlation`` or ``f1`` (of class 1)."""
    labels, predicted = prediction.label_ids, np.argmax(prediction.predictions, axis=-1)
    scores = {"accuracy": float(accuracy_score(labels, predicted))}
    if task.metric == "matthews_correlation":
        scores["matthews_correlation"] = float(matthews_corrcoef(labels, predicted))
    if task.metric == "f1":
        scores["f1"] = float(f1_score(labels, predicted, zero_division=0))
    return scores
