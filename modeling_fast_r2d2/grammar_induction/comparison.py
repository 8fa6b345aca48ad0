"""Tables of the scores of several systems, each run with one or more seeds, as text, Markdown, CSV and JSON."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..text_files import write_text
from .metrics import Scores

LABELS = ("NP", "VP", "PP", "SBAR", "ADJP", "ADVP", "QP", "WD", "NNP chunk")


@dataclass(frozen=True)
class Result:
    """The scores of a system.

    Attributes:
        system: its name.
        runs: one entry per checkpoint or seed.
    """

    system: str
    runs: list[Scores]

    def figures(self) -> dict[str, Any]:
        """The columns of a table: the name of the system, counts, and scores from 0 to 100, which are means over runs.

        A system with one run has a confidence interval over its sentences; a system with several runs has a standard
        deviation over the runs. The other figure is None.
        """
        f1s = [run.sentence_f1 for run in self.runs]
        is_one = len(self.runs) == 1
        low, high = self.runs[0].confidence_interval() if is_one else (None, None)
        figures: dict[str, Any] = {
            "system": self.system,
            "runs": len(f1s),
            "sentence_f1": mean(f1s),
            "deviation": None if is_one else stdev(f1s),
            "best": max(f1s),
            "interval_low": low,
            "interval_high": high,
        }
        for name in ("corpus_f1", "strict_sentence_f1", "script_sentence_f1", "script_corpus_f1"):
            figures[name] = mean(getattr(run, name) for run in self.runs)
        return figures | {"sentences": len(self.runs[0].rows)}

    def recalls(self) -> dict[str, tuple[float, int]]:
        """For each label of the gold trees: the recall, from 0 to 100, and the number of its constituents."""
        totals = {label: total for run in self.runs for label, (_, total) in run.labels.items()}
        with_label = {label: [run for run in self.runs if label in run.labels] for label in totals}
        return {label: (mean(run.recall(label) for run in with_label[label]), total) for label, total in totals.items()}

    def by_length(self) -> dict[str, tuple[float, int]]:
        """For each range of sentence lengths: sentence F1, from 0 to 100, and the number of sentences."""
        rows = [run.by_length() for run in self.runs]
        return {name: (mean(row[name][0] for row in rows), count) for name, (_, count) in rows[0].items()}


Table = list[list[str]]


def overview(results: list[Result]) -> Table:
    """One row per system: F1 with its uncertainty, and recall of labels, among them those of the paper's Table 2."""
    labels = [label for label in LABELS if any(label in result.recalls() for result in results)]
    head = ["system", "sentence F1", "corpus F1", "strict F1", "script F1", *labels]
    return [head, *([*_f1_cells(result), *_recall_cells(result, labels)] for result in results)]


def lengths(results: list[Result]) -> Table:
    """One row per system: sentence F1 by sentence length in words. The head has the number of sentences in brackets."""
    buckets = results[0].by_length()
    head = ["system", *(f"{name} ({count})" for name, (_, count) in buckets.items())]
    return [head, *([result.system, *(number(f1) for f1, _ in result.by_length().values())] for result in results)]


def as_text(table: Table) -> str:
    """The table for a terminal, in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
    return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:]])


def as_markdown(table: Table) -> str:
    """The table in Markdown."""
    rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    return "\n".join([rows[0], "| --- |" + " ---: |" * (len(table[0]) - 1), *rows[1:]])


def write_results(results: list[Result], folder: Path, settings: dict[str, Any]) -> None:
    """Write ``results.json``, which has all figures and the settings, ``results.md`` and ``results.csv``."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [result.figures() for result in results]
    rows = [{name: None if value != value else value for name, value in row.items()} for row in rows]  # JSON has no NaN
    tables_of = [{"recall": result.recalls(), "by_length": result.by_length()} for result in results]
    whole = {"settings": settings, "systems": [row | of for row, of in zip(rows, tables_of, strict=True)]}
    tables = f"{as_markdown(overview(results))}\n\n{as_markdown(lengths(results))}\n"
    lines = io.StringIO()
    writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    text = json.dumps(whole, indent=2, allow_nan=False, default=str) + "\n"
    for name, written in {"json": text, "md": tables, "csv": lines.getvalue()}.items():
        write_text(folder / f"results.{name}", written)


def _f1_cells(result: Result) -> list[str]:
    figures = result.figures()
    if figures["deviation"] is None:
        f1 = f"{figures['sentence_f1']:.1f} [{figures['interval_low']:.1f}, {figures['interval_high']:.1f}]"
    else:
        f1 = f"{figures['sentence_f1']:.1f} ± {figures['deviation']:.1f}, best {figures['best']:.1f}"
    others = ("corpus_f1", "strict_sentence_f1", "script_sentence_f1")
    return [result.system, f1, *(number(figures[name]) for name in others)]


def _recall_cells(result: Result, labels: list[str]) -> list[str]:
    recalls = result.recalls()
    return [number(recalls[label][0]) if label in recalls else "–" for label in labels]


def number(value: float) -> str:
    """A score as tables show it."""
    return "–" if value != value else f"{value:.1f}"
