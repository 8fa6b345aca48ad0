"""How far a parser's confidences can be trusted, and how to mend them.

    python examples/calibrate.py gold.mrg --checkpoint runs/mine/model --output confidence/

Every second tree, from the first on, tells which values of ``confidence_scale``, ``confidence_bias``,
``confidence_pair`` and ``confidence_length`` suit the parser best: they belong into the model's ``config.json``. The
other trees tell how good its confidences then are: their expected calibration error, and precision and recall of trees
without the constituents of which the parser is less sure.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression

from modeling_fast_r2d2.grammar_induction import LabelledTree, read_treebank
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown
from modeling_fast_r2d2.grammar_induction.metrics import inner_spans
from modeling_fast_r2d2.grammar_induction.systems import baseline_trees
from modeling_fast_r2d2.parsing.confidence import Calibration, features
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from tokenization_fast_r2d2.trees import Span

BINS, POINTS = 10, 100  # of the two curves
THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)


def judge(parser: TreeParser, gold: list[LabelledTree]) -> list[np.ndarray]:
    """How sure a parser is of its constituents, how many words these have, which of them are right, and which cross a
    gold constituent. The others stand where the gold tree is flat.

    Returns:
        ``(constituents,)`` float64, long, bool and bool. Whole sentences are left out.
    """
    parsed = parser([tree.words for tree in gold], is_split_into_words=True)
    rows = [
        (confidence, span[1] - span[0] + 1, span in tree.spans, any(cross(span, other) for other in tree.spans))
        for tree, found in zip(gold, parsed, strict=True)
        for span, confidence in zip(found.tree.spans, found.confidences.tolist(), strict=True)
        if span != (0, tree.num_leaves - 1)
    ]
    return [np.array(column) for column in zip(*rows, strict=True)]


def cross(one: Span, other: Span) -> bool:
    """Whether two spans share some words, and each has words that the other has not."""
    (first, last), (start, end) = sorted([one, other])
    return first < start <= last < end


def fit(probabilities: np.ndarray, num_words: np.ndarray, are_right: np.ndarray) -> Calibration:
    """What suits best, by logistic regression."""
    if are_right.all() or not are_right.any():
        raise SystemExit("the parser is always right or never on every second tree; give more trees")
    found = LogisticRegression(C=1e6).fit(features(probabilities, num_words), are_right)
    scale, pair, length = found.coef_[0].round(2).tolist()
    return Calibration(scale, round(float(found.intercept_[0]), 2), pair, length)


def calibration_error(confidences: np.ndarray, are_right: np.ndarray) -> float:
    """The mean difference, over constituents, between confidence and share of right ones in ten bins of equal width
    (Naeini et al., 2015)."""
    bins = np.minimum((confidences * BINS).astype(int), BINS - 1)
    differences = [confidences[bins == number].sum() - are_right[bins == number].sum() for number in range(BINS)]
    return float(np.abs(differences).sum() / len(confidences))


@dataclass(frozen=True)
class Judgement:
    """What suits a parser, and how good its confidences are on trees that had no say in it.

    Attributes:
        found, error: the calibration that suits, and the calibration error with it.
        before, error_before: those of the model as it is.
        confidences, are_right, are_crossing: as `judge` gives them, with the found calibration.
        num_gold: the number of gold constituents.
        right_branching: shared and predicted constituents of trees that branch to the right.
    """

    found: Calibration
    error: float
    before: Calibration
    error_before: float
    confidences: np.ndarray
    are_right: np.ndarray
    are_crossing: np.ndarray
    num_gold: int
    right_branching: tuple[int, int]

    def table(self) -> list[list[str]]:
        """Per threshold: the share of constituents that stay; precision, recall and F1 of all of them together; and the
        share of them that cross gold ones."""
        rows = [["min_confidence", "% kept", "precision", "recall", "F1", "% crossing"]]
        for threshold in THRESHOLDS:
            kept = self.confidences >= threshold
            figures = scores(self.are_right[kept].sum(), kept.sum(), self.num_gold)
            rows.append([f"{threshold:.1f}", f"{100 * kept.mean():.0f}", *(f"{value:.1f}" for value in figures),
                         f"{100 * self.are_crossing[kept].sum() / max(kept.sum(), 1):.1f}"])  # fmt: skip
        figures = scores(*self.right_branching, self.num_gold)
        return [*rows, ["right-branching trees", "", *(f"{value:.1f}" for value in figures), ""]]

    def draw(self, path: Path) -> None:
        """The reliability diagram, and precision over recall."""
        figure = Figure(figsize=(9, 4), layout="constrained")
        reliability, curve = figure.subplots(1, 2)
        shares, means = calibration_curve(self.are_right, self.confidences, n_bins=BINS)
        reliability.plot([0, 1], [0, 1], color="gray", linewidth=1)
        reliability.plot(means, shares, marker="o")
        reliability.set(xlabel="confidence", ylabel="share of right constituents", xlim=(0, 1), ylim=(0, 1))
        shared = self.are_right[np.argsort(-self.confidences, kind="stable")].cumsum()
        kept = np.unique(np.linspace(len(shared) / POINTS, len(shared), POINTS).astype(int).clip(1))
        curve.plot(100 * shared[kept - 1] / self.num_gold, 100 * shared[kept - 1] / kept, label="surest first")
        precision, recall, _ = scores(*self.right_branching, self.num_gold)
        curve.plot(recall, precision, "s", label="right-branching trees")
        curve.set(xlabel="recall", ylabel="precision", xlim=(0, 100), ylim=(0, 100))
        curve.legend()
        figure.savefig(path)


def calibrate(parser: TreeParser, fitted: list[LabelledTree], others: list[LabelledTree]) -> Judgement:
    """Fit the calibration on some trees, and measure it on others."""
    before = Calibration.of(parser.model.config)
    set_calibration(parser, Calibration())
    found = fit(*judge(parser, fitted)[:3])
    probabilities, num_words, are_right, are_crossing = judge(parser, others)
    set_calibration(parser, before)
    confidences, as_it_is = (calibration(probabilities, num_words) for calibration in (found, before))
    branching = [inner_spans(tree) for tree in baseline_trees(others, "right")]
    shared = sum(len(spans & tree.spans) for spans, tree in zip(branching, others, strict=True))
    return Judgement(
        found, calibration_error(confidences, are_right), before, calibration_error(as_it_is, are_right),
        confidences, are_right, are_crossing, sum(len(inner_spans(tree)) for tree in others),
        (shared, sum(map(len, branching))),
    )  # fmt: skip


def set_calibration(parser: TreeParser, calibration: Calibration) -> None:
    """Write it into the parser's configuration."""
    parser.model.config.update(in_config(calibration))


def in_config(calibration: Calibration) -> dict[str, float]:
    """The fields of a configuration."""
    return {f"confidence_{name}": value for name, value in calibration._asdict().items()}


def scores(shared: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Precision, recall and F1, from 0 to 100."""
    return 100 * shared / max(predicted, 1), 100 * shared / max(gold, 1), 200 * shared / max(predicted + gold, 1)


def main(arguments: list[str] | None = None) -> None:
    """Fit, measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("treebank", nargs="+", help="files or folders of gold trees")
    parser.add_argument("--checkpoint", default="fast-r2d2-tiny", help="folder, Hub name or bundled name")
    parser.add_argument("--output", type=Path, help="folder for confidence.svg and confidence.json")
    options = parser.parse_args(arguments)
    gold = read_treebank(options.treebank)
    fitted, others = ([tree for tree in half if tree.num_leaves > 2] for half in (gold[::2], gold[1::2]))
    if not (fitted and others):
        raise SystemExit("the treebank needs trees of three or more words, in either half")
    found = calibrate(TreeParser.from_pretrained(options.checkpoint), fitted, others)
    fields = in_config(found.found)
    print(f"{', '.join(f'{name} {value}' for name, value in fields.items())}: calibration error {found.error:.3f}; "
          f"as it is, {', '.join(map(str, found.before))}: {found.error_before:.3f}")  # fmt: skip
    print(as_markdown(found.table()))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        found.draw(options.output / "confidence.svg")
        row = fields | {"calibration_error": found.error}
        (options.output / "confidence.json").write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
