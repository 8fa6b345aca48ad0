"""How far a parser's confidences can be trusted, and how to mend them.

    python examples/calibrate.py gold.mrg --checkpoint runs/mine/model --output confidence/

Every second tree, from the first on, tells which ``confidence_...`` fields of the configuration suit the parser best,
and what the words in and beside a constituent add. The other trees tell how good its confidences then are: their
expected calibration error, and precision and recall of trees without the constituents of which the parser is less sure.
``--output`` gets the model with what suits it, and both curves.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from transformers import AutoConfig

import modeling_fast_r2d2
from fast_r2d2_entry_points.command_line.options import check_can_be_folder
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model, load_tokenizer
from modeling_fast_r2d2.embedding import in_batches
from modeling_fast_r2d2.grammar_induction import LabelledTree, read_treebank
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from modeling_fast_r2d2.grammar_induction.metrics import inner_spans
from modeling_fast_r2d2.grammar_induction.systems import baseline_trees
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from tokenization_fast_r2d2.confidence import Calibration, evidence_of
from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.trees import Span

BINS, POINTS = 10, 100  # of the two curves
THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)
TRUST_IN_WORDS = 0.03  # standard deviation of their features: the smaller, the less a few trees can say about them


class Constituents(NamedTuple):
    """Constituents of a parser's trees, without whole sentences; each array has a row for each.

    Attributes:
        confidences: as the parser has them.
        features: ``(constituents, 3)``, as `Evidence` has them.
        words: ``(constituents, 4, parser_embedding_size)``, the embeddings of their ``pieces``.
        are_right: which gold trees have, too.
        are_crossing: which cross a gold constituent. The others stand where the gold tree is flat.
    """

    confidences: np.ndarray
    features: np.ndarray
    words: np.ndarray
    are_right: np.ndarray
    are_crossing: np.ndarray


def judge(parser: TreeParser, gold: list[LabelledTree]) -> Constituents:
    """The constituents that a parser finds, beside gold trees."""
    sentences = [tree.words for tree in gold]
    read = parser.read(sentences, is_split_into_words=True)
    found = in_batches(parser.model, read, lambda rows: _evidence(parser, rows), batch_tokens=parser.batch_tokens)
    columns = []
    for tree, (spans, *evidence) in zip(gold, found, strict=True):
        are_inner = [span != (0, tree.num_leaves - 1) for span in spans]
        are_right = [span in tree.spans for span in spans]
        are_crossing = [any(cross(span, other) for other in tree.spans) for span in spans]
        columns.append([np.array(column)[are_inner] for column in (*evidence, are_right, are_crossing)])
    return Constituents(*map(np.concatenate, zip(*columns, strict=True)))


def _evidence(parser: TreeParser, sentences: list[ReadSentence]) -> list[tuple]:
    """Of each sentence the spans of its constituents, and their confidences, features and embeddings."""
    calibration = Calibration.of(parser.model.config)
    embeddings = parser.model.base_model.parser.embeddings
    rows = []
    for sentence, spans, scores, _ in zip(sentences, *parser.run(sentences), strict=True):
        found = sentence.tree(spans).spans
        words = range(len(sentence.words))
        evidence = evidence_of(sentence, words, scores[sentence.word_split_points], found)
        sure = calibration(evidence, parser.word_odds([sentence]))
        pieces = embeddings(torch.tensor(sentence.input_ids)).numpy()
        rows.append(([found[row] for row in evidence.rows], sure, evidence.features(), evidence.of_pieces(pieces)))
    return rows


def cross(one: Span, other: Span) -> bool:
    """Whether two spans share some words, and each has words that the other has not."""
    (first, last), (start, end) = sorted([one, other])
    return first < start <= last < end


def fit(found: Constituents) -> tuple[Calibration, np.ndarray]:
    """What suits best, by logistic regression: the calibration, and ``(4, parser_embedding_size)``, the weights of
    words, which are kept small."""
    if found.are_right.all() or not found.are_right.any():
        raise SystemExit("the parser is always right or never on every second tree; give more trees")
    unit = TRUST_IN_WORDS / max(found.words.std(), 1e-6)
    features = np.hstack([found.features, found.words.reshape(len(found.words), -1) * unit])
    solved = LogisticRegression(tol=1e-6, max_iter=1000).fit(features, found.are_right)
    (scale, pair, length), of_words = np.split(solved.coef_[0], [3])
    if scale < 0:
        raise SystemExit("what the parser is surer of is not right more often on every second tree; give more trees")
    numbers = (round(float(value), 2) for value in (scale, solved.intercept_[0], pair, length))
    return Calibration(*numbers), of_words.reshape(found.words.shape[1:]) * unit


def install(model: Any, calibration: Calibration, word_weight: np.ndarray) -> None:
    """Write what suits into a model."""
    dtype = model.base_model.parser.embeddings.weight.dtype
    model.config.update(in_config(calibration) | {"confidence_words": True})
    model.base_model.parser.register_buffer("confidence_weight", torch.from_numpy(word_weight).to(dtype))


def in_config(calibration: Calibration) -> dict[str, float]:
    """The fields of a configuration."""
    return {f"confidence_{name}": value for name, value in calibration._asdict().items()}


def calibration_error(confidences: np.ndarray, are_right: np.ndarray) -> float:
    """The mean difference, over constituents, between confidence and share of right ones in ten bins of equal width
    (Naeini et al., 2015)."""
    bins = np.minimum((confidences * BINS).astype(int), BINS - 1)
    differences = np.bincount(bins, confidences - are_right)
    return float(np.abs(differences).sum() / len(confidences))


@dataclass(frozen=True)
class Judgement:
    """How good a parser's confidences are on trees that had no say in its calibration.

    Attributes:
        before, error_before: its calibration before this one, and the calibration error with it.
        found, error: this calibration, and the calibration error with it.
        constituents: that the parser finds.
        num_gold: the number of gold constituents.
        right_branching: shared and predicted constituents of trees that branch to the right.
    """

    before: Calibration
    error_before: float
    found: Calibration
    error: float
    constituents: Constituents
    num_gold: int
    right_branching: tuple[int, int]

    def table(self) -> list[list[str]]:
        """Per threshold: the share of constituents that stay; precision, recall and F1 of all of them together; and the
        share of them that cross gold ones."""
        confidences, are_right = self.constituents.confidences, self.constituents.are_right
        rows = [["min_confidence", "% kept", "precision", "recall", "F1", "% crossing"]]
        for threshold in THRESHOLDS:
            kept = confidences >= threshold
            crossing = self.constituents.are_crossing[kept].sum() / max(kept.sum(), 1)
            figures = scores(are_right[kept].sum(), kept.sum(), self.num_gold)
            rows.append([f"{threshold:.1f}", f"{100 * kept.mean():.0f}", *(f"{value:.1f}" for value in figures),
                         f"{100 * crossing:.1f}"])  # fmt: skip
        figures = scores(*self.right_branching, self.num_gold)
        return [*rows, ["right-branching trees", "", *(f"{value:.1f}" for value in figures), ""]]

    def draw(self, path: Path) -> None:
        """The reliability diagram, and precision over recall."""
        confidences, are_right = self.constituents.confidences, self.constituents.are_right
        figure = Figure(figsize=(9, 4), layout="constrained")
        reliability, curve = figure.subplots(1, 2)
        shares, means = calibration_curve(are_right, confidences, n_bins=BINS)
        reliability.plot([0, 1], [0, 1], color="gray", linewidth=1)
        reliability.plot(means, shares, marker="o")
        reliability.set(xlabel="confidence", ylabel="share of right constituents", xlim=(0, 1), ylim=(0, 1))
        shared = are_right[np.argsort(-confidences, kind="stable")].cumsum()
        kept = np.unique(np.linspace(len(shared) / POINTS, len(shared), POINTS).astype(int).clip(1))
        curve.plot(100 * shared[kept - 1] / self.num_gold, 100 * shared[kept - 1] / kept, label="surest first")
        precision, recall, _ = scores(*self.right_branching, self.num_gold)
        curve.plot(recall, precision, "s", label="right-branching trees")
        curve.set(xlabel="recall", ylabel="precision", xlim=(0, 100), ylim=(0, 100))
        curve.legend()
        figure.savefig(path)


def calibrate(parser: TreeParser, fitted: list[LabelledTree], others: list[LabelledTree]) -> Judgement:
    """Calibrate a parser by some trees, and judge it by others."""
    before, at_first = Calibration.of(parser.model.config), judge(parser, others)
    found, word_weight = fit(judge(parser, fitted))
    install(parser.model, found, word_weight)
    judged = judge(parser, others)
    branching = [inner_spans(tree) for tree in baseline_trees(others, "right")]
    shared = sum(len(spans & tree.spans) for spans, tree in zip(branching, others, strict=True))
    return Judgement(
        before, calibration_error(at_first.confidences, at_first.are_right),
        found, calibration_error(judged.confidences, judged.are_right),
        judged, sum(len(inner_spans(tree)) for tree in others), (shared, sum(map(len, branching))),
    )  # fmt: skip


def load_whole(checkpoint: str) -> TreeParser:
    """The parser of a checkpoint, in the model that was saved, with all of its weights."""
    checkpoint = find_checkpoint(checkpoint)
    names = AutoConfig.from_pretrained(checkpoint).architectures or ["FastR2D2Model"]
    model_class = getattr(modeling_fast_r2d2, names[0], modeling_fast_r2d2.FastR2D2Model)
    return TreeParser(load_model(model_class, checkpoint).eval(), load_tokenizer(checkpoint))


def scores(shared: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Precision, recall and F1, from 0 to 100."""
    return 100 * shared / max(predicted, 1), 100 * shared / max(gold, 1), 200 * shared / max(predicted + gold, 1)


def main(arguments: list[str] | None = None) -> None:
    """Fit, measure, print, and write what was asked for."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("treebank", nargs="+", help="files or folders of gold trees")
    command.add_argument("--checkpoint", default="fast-r2d2-tiny", help="folder, Hub name or bundled name")
    command.add_argument("--output", type=Path, help="folder for confidence.svg and model/")
    options = command.parse_args(arguments)
    if options.output:
        check_can_be_folder(options.output)
    gold = read_treebank(options.treebank)
    fitted, others = ([tree for tree in half if tree.num_leaves > 2] for half in (gold[::2], gold[1::2]))
    if not (fitted and others):
        raise SystemExit("the treebank needs trees of three or more words, in either half")
    parser = load_whole(options.checkpoint)
    found = calibrate(parser, fitted, others)
    print(f"{', '.join(f'{name} {value}' for name, value in in_config(found.found).items())}: calibration error "
          f"{found.error:.3f}; as it is, {', '.join(map(str, found.before))}: {found.error_before:.3f}")  # fmt: skip
    print(as_markdown(found.table()))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        found.draw(options.output / "confidence.svg")
        parser.model.save_pretrained(options.output / "model")
        parser.tokenizer.save_pretrained(options.output / "model")
        print(f"the calibrated model is in {options.output / 'model'}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
