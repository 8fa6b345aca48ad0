"""How good sentence vectors are: similarities against people's scores, and linear probes on GLUE.

    python examples/evaluate_vectors.py --data path/to/glue --tasks SST-2 CoLA --train_rows 5000
    python examples/evaluate_vectors.py --similarity sts-dev.tsv sick.tsv --columns sentence1 sentence2 score
    python examples/evaluate_vectors.py --treebank gold.mrg

Files for ``--similarity`` are tab-separated with a header. The number is Spearman's correlation of cosines with the
scores, times 100, by sentence-transformers' evaluator. A probe is a logistic regression on vectors that stay as they
are; the number is the task's metric on its development set, times 100. A fifth of the training rows tells how strongly
it is regularised. A pair is both vectors, the size of their difference and their product.

With ``--treebank`` the number is how often the label of a gold constituent is read rightly from a vector, by a logistic
regression too, which learns from every second tree and is asked for the others.

Vectors are a root or a mean of nodes, along the parser's trees or over the chart. Baselines are the mean of the same
leaves, which are embeddings without any context, the root of a random tree, that of a tree that branches to the right,
and always the same answer.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from transformers import AutoProcessor, EvalPrediction

from glue.tasks import TASKS, Task, find_task, read_task, score
from modeling_fast_r2d2 import FastR2D2Model
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model
from modeling_fast_r2d2.embedding import in_batches, node_vectors
from modeling_fast_r2d2.grammar_induction import LabelledTree, read_treebank
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown

STRENGTHS = [0.001, 0.01, 0.1, 1.0]  # of the regularisation, inverse
SAME_ANSWER = "always the commonest class"
LABELS = ("NP", "VP", "PP", "S", "SBAR", "ADJP", "ADVP", "QP")  # of constituents; others are left out


def root(model: FastR2D2Model, output: Any, is_token: Tensor) -> Tensor:
    return output.pooler_output


def mean_of_leaves(model: FastR2D2Model, output: Any, is_token: Tensor) -> Tensor:
    return model.pool(mean(output.last_hidden_state[:, : is_token.shape[1]], is_token))


def mean_of_constituents(model: FastR2D2Model, output: Any, is_token: Tensor) -> Tensor:
    """All constituents, the root among them; the leaf of a one-token sentence."""
    is_constituent = output.spans[..., 0] >= 0
    found = model.pool(mean(output.last_hidden_state[:, is_token.shape[1] :], is_constituent))
    return torch.where(is_constituent.any(1, keepdim=True), found, output.pooler_output)


def mean(vectors: Tensor, counts: Tensor) -> Tensor:
    return (vectors * counts[..., None]).sum(1) / counts.sum(1, keepdim=True).clamp(min=1)


SYSTEMS: dict[str, tuple[str, Callable[[FastR2D2Model, Any, Tensor], Tensor], str]] = {  # encoding, pooling, trees
    "root, parser's tree": ("forced", root, "parser"),
    "root, chart": ("chart", root, "parser"),
    "mean of constituents, parser's tree": ("forced", mean_of_constituents, "parser"),
    "mean of constituents, chart": ("chart", mean_of_constituents, "parser"),
    "mean of leaves": ("forced", mean_of_leaves, "parser"),
    "root, random tree": ("forced", root, "random"),
    "root, right-branching tree": ("forced", root, "right"),
}


class NodeVectors(nn.Module):
    """A module of sentence-transformers for one of the systems."""

    def __init__(self, model: FastR2D2Model, processor: Any, system: str):
        super().__init__()
        self.model, self.processor = model, processor
        self.encoding, self.pool, self.trees = SYSTEMS[system]
        self.generator = torch.Generator().manual_seed(0)

    def preprocess(self, inputs: list[str], **options: Any) -> dict[str, Tensor]:
        return dict(self.processor(inputs))

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        batch = {name: features[name] for name in ("input_ids", "attention_mask", "atom_spans", "split_signs")}
        if self.trees != "parser":
            del batch["split_signs"]
            rows, tokens = batch["input_ids"].shape
            scores = torch.rand(rows, tokens - 1, generator=self.generator)
            scores = scores.sort(1, descending=True).values if self.trees == "right" else scores
            batch["split_scores"] = scores.to(batch["input_ids"].device)
        output = self.model(**batch, encoding=self.encoding)
        return features | {"sentence_embedding": self.pool(self.model, output, batch["attention_mask"].bool())}


def load(checkpoint: str) -> tuple[FastR2D2Model, Any]:
    place = find_checkpoint(checkpoint)
    return load_model(FastR2D2Model, place).eval(), AutoProcessor.from_pretrained(place)


def make_embedder(checkpoint: str, system: str, device: str) -> SentenceTransformer:
    model, processor = load(checkpoint)
    return SentenceTransformer(modules=[NodeVectors(model, processor, system)], device=device)


def similarity(embedder: SentenceTransformer, file: Path, columns: list[str]) -> float:
    """Spearman's correlation of cosines with the scores in a file."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    missing = set(columns) - (rows[0].keys() if rows else set())
    if missing:
        raise ValueError(f"{file} has no rows with the columns {', '.join(sorted(missing))}; name others by --columns")
    first, second, given = ([row[name] for row in rows] for name in columns)
    try:
        scores = [float(score) for score in given]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file} has a row without a number as {columns[2]}: {error}") from error
    evaluator = EmbeddingSimilarityEvaluator(first, second, scores, write_csv=False)
    return evaluator(embedder)["spearman_cosine"]


def probe(embedder: SentenceTransformer, task: Task, data: dict[str, Any]) -> float:
    """The task's metric on its development set, by a logistic regression."""
    train, dev = (vectors_of(embedder, data[part]) for part in ("train", "dev"))
    classifier = logistic_regression().fit(train, data["train"]["label"])
    return score(task, EvalPrediction(classifier.predict_proba(dev), np.array(data["dev"]["label"])))[task.metric]


def vectors_of(embedder: SentenceTransformer, rows: Any) -> np.ndarray:
    first = embedder.encode(list(rows["text"]), batch_size=64)
    if "text_pair" not in rows.column_names:
        return first
    second = embedder.encode(list(rows["text_pair"]), batch_size=64)
    return np.concatenate([first, second, abs(first - second), first * second], axis=1)


def same_answer(task: Task, data: dict[str, Any]) -> float:
    commonest = np.bincount(data["train"]["label"], minlength=len(task.classes))
    labels = np.array(data["dev"]["label"])
    return score(task, EvalPrediction(np.tile(commonest, (len(labels), 1)), labels))[task.metric]


def labels_of_constituents(checkpoint: str, treebank: str, device: str) -> dict[str, float]:
    """How often a logistic regression reads a constituent's label from its vector, and from the mean of its words'.

    It learns from the first, third, ... tree and is asked for the others. Constituents are those of `constituents_in`.
    """
    model, processor = load(checkpoint)
    trees = [tree for tree in read_treebank(treebank) if tree.num_leaves > 2]
    processor.punctuation = "keep"  # the treebank's leaves are counted, a mark that its tags call a word among them
    read = processor.read([list(tree.words) for tree in trees], True)
    model.to(device)
    nodes = in_batches(model, read, lambda rows: node_vectors(model, processor, rows), batch_tokens=8192)
    parts = [[found for row in range(start, len(trees), 2) for found in constituents_in(trees[row], nodes[row])]
             for start in (0, 1)]  # fmt: skip
    if not all(parts):
        raise ValueError(f"{treebank} has no constituent with a label of {', '.join(LABELS)} in every second tree")
    (train, own, means), (asked, own_asked, means_asked) = (zip(*part, strict=True) for part in parts)
    commonest = max(set(train), key=train.count)
    return {
        "constituent": accuracy(own, train, own_asked, asked),
        "mean of its words": accuracy(means, train, means_asked, asked),
        SAME_ANSWER: asked.count(commonest) / len(asked),
    }


def constituents_in(tree: LabelledTree, nodes: dict[tuple[int, int], np.ndarray]) -> list[tuple[str, Any, Any]]:
    """The gold constituents that the parser's tree has, too: label, vector, and mean of the words' vectors.

    The whole sentence is none of them. Of several labels over the same words the lowest counts.
    """
    labels: dict[tuple[int, int], str] = {}
    for first, last, label in tree.constituents:  # children before parents
        labels.setdefault((first, last), label)
    labels.pop((0, tree.num_leaves - 1), None)
    return [
        (label, nodes[span], np.mean([nodes[word, word] for word in range(span[0], span[1] + 1)], axis=0))
        for span, label in labels.items() if label in LABELS and span in nodes
    ]  # fmt: skip


def accuracy(vectors: Any, labels: Any, asked_vectors: Any, asked_labels: Any) -> float:
    classifier = logistic_regression().fit(np.stack(vectors), labels)
    return float(classifier.score(np.stack(asked_vectors), asked_labels))


def logistic_regression() -> GridSearchCV:
    """On standardised features, as strongly regularised as suits a fifth of the rows, which it does not see before."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    strengths = {"logisticregression__C": STRENGTHS}
    return GridSearchCV(classifier, strengths, cv=ShuffleSplit(1, test_size=0.2, random_state=0))


def read_rows(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """The parts ``train`` and ``dev``, of each so many rows as were asked for, drawn by a fixed seed."""
    data, limits = read_task(task, options.data), {"train": options.train_rows, "dev": options.dev_rows}
    parts = {"train": data["train"], "dev": data[task.evaluations[0][0]]}
    return {name: rows.shuffle(seed=0).select(range(min(limits[name] or len(rows), len(rows))))
            for name, rows in parts.items()}  # fmt: skip


def table(results: dict[str, dict[str, float]]) -> str:
    """Results by system and column as Markdown, times 100."""
    columns = list(dict.fromkeys(name for scores in results.values() for name in scores))
    rows = [[system, *(f"{100 * scores[name]:.1f}" if name in scores else "–" for name in columns)]
            for system, scores in results.items()]  # fmt: skip
    return as_markdown([["system", *columns], *rows])


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", default="fast-r2d2-small", help="a folder, a Hub or bundled name")
    parser.add_argument("--similarity", nargs="*", type=Path, default=[], metavar="FILE", help="such as STS and SICK")
    parser.add_argument("--columns", nargs=3, default=["sentence1", "sentence2", "score"], metavar="NAME")
    parser.add_argument("--data", default="nyu-mll/glue", help="the folder of GLUE's folders, or a Hub name")
    parser.add_argument("--tasks", nargs="*", default=[], help=", ".join(TASKS))
    parser.add_argument("--train_rows", type=int, help="rows to fit each probe on; default: all")
    parser.add_argument("--dev_rows", type=int, help="rows to score each probe on; default: all")
    parser.add_argument("--treebank", help="a file or folder of bracketed trees, for the labels of constituents")
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="a JSON file for the numbers")
    return parser


def main(arguments: list[str] | None = None) -> None:
    options = make_parser().parse_args(arguments)
    tasks = {task.name: task for task in map(find_task, options.tasks)}
    if not tasks and not options.similarity and not options.treebank:
        raise SystemExit("nothing to do: give --similarity files, --tasks or a --treebank")
    data = {name: read_rows(task, options) for name, task in tasks.items()}
    stems = {file.stem: file for file in options.similarity}
    named = stems if len(stems) == len(options.similarity) else {str(file): file for file in options.similarity}
    results: dict[str, dict[str, float]] = {}
    for system in options.systems if tasks or options.similarity else ():
        embedder = make_embedder(options.checkpoint, system, options.device)
        results[system] = {name: similarity(embedder, file, options.columns) for name, file in named.items()}
        results[system] |= {name: probe(embedder, task, data[name]) for name, task in tasks.items()}
    if tasks:
        results[SAME_ANSWER] = {name: same_answer(task, data[name]) for name, task in tasks.items()}
    if results:
        print(table(results))
    if options.treebank:
        labels = labels_of_constituents(options.checkpoint, options.treebank, options.device)
        found = {system: {"labels of constituents": score} for system, score in labels.items()}
        print(table(found))
        results = {system: results.get(system, {}) | found.get(system, {}) for system in results | found}
    if options.output:
        options.output.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
