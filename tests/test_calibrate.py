"""What suits a parser, and how good its confidences are, by a treebank."""

import calibrate
import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer

from modeling_fast_r2d2 import bundled_checkpoint
from modeling_fast_r2d2.grammar_induction import read_treebank
from modeling_fast_r2d2.parsing.tree_parser import TreeParser

CAT = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))))"
MAN = "(S (NP (NNP Mary)) (VP (VBD saw) (NP (DT an) (JJ old) (NN man))) (ADVP (RB today)))"
BRIDGE = "(S (NP (DT the) (JJ old) (NN bridge)) (VP (VBD was) (VP (VBN built) (PP (IN in) (NP (DT a) (NN week))))))"
TREES = [CAT, MAN, MAN, CAT, BRIDGE, BRIDGE] * 2


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "gold.mrg"
    path.write_text("\n".join(TREES) + "\n", encoding="utf-8")
    return path


def test_what_the_log_odds_went_through_is_found_again():
    random, count = np.random.default_rng(0), 200_000
    num_words, words = random.integers(2, 30, count), random.normal(size=(count, 4, 2))
    features = np.stack([random.normal(0, 2, count), num_words == 2, np.log(num_words)], axis=-1)
    weight = np.array([[0.5, 0], [0, -0.5], [0.5, 0.5], [0, 0.25]])
    odds = features @ [0.5, -0.7, -0.4] + 1 + (words * weight).sum((1, 2))
    true = 1 / (1 + np.exp(-odds))
    are_right = random.random(count) < true
    judged = calibrate.Constituents(true, features, words, are_right, are_right)
    calibration, found = calibrate.fit(judged)
    assert calibration == pytest.approx((0.5, 1, -0.7, -0.4), abs=0.1) and found == pytest.approx(weight, abs=0.05)
    assert calibrate.calibration_error(true, are_right) < 0.02
    assert calibrate.calibration_error(1 / (1 + np.exp(-features[:, 0])), are_right) > 0.02


def test_confidences_that_mislead_are_refused():
    """A model of a scale below 0 could not be loaded."""
    odds = np.linspace(-2, 2, 50)
    features, words = np.stack([odds, odds * 0, odds * 0], -1), np.zeros((50, 4, 2))
    with pytest.raises(SystemExit, match="surer of is not right more often"):
        calibrate.fit(calibrate.Constituents(odds, features, words, odds < 0, odds < 0))


def test_a_model_in_float64_is_calibrated_too(treebank, tmp_path):
    model = AutoModelForPreTraining.from_pretrained(bundled_checkpoint(), dtype=torch.float64)
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(bundled_checkpoint()).save_pretrained(tmp_path / "model")
    calibrate.main([str(treebank), "--checkpoint", str(tmp_path / "model"), "--output", str(tmp_path / "out")])
    [tree] = TreeParser.from_pretrained(str(tmp_path / "out" / "model"))(["the old cat sat"])
    assert np.isfinite(tree.confidences).all()


def test_calibration_error_is_a_mean_over_constituents():
    confidences, are_right = np.array([0.11, 0.12, 0.99, 1.0]), np.array([False, True, True, False])
    assert calibrate.calibration_error(confidences, are_right) == pytest.approx((1 - 0.23 + 1.99 - 1) / 4)


def test_figures_are_those_of_counting_by_hand(treebank):
    parser, gold = TreeParser.from_pretrained("fast-r2d2-tiny"), read_treebank(treebank)
    others = gold[1::2]
    found = calibrate.calibrate(parser, gold[::2], others)
    parsed = parser([tree.words for tree in others], is_split_into_words=True)
    for row, threshold in enumerate(calibrate.THRESHOLDS, start=1):
        kept = [set(sentence.flat(threshold).spans) - {(0, len(sentence.leaves) - 1)} for sentence in parsed]
        shared = sum(len(spans & tree.spans) for spans, tree in zip(kept, others, strict=True))
        wanted = calibrate.scores(shared, sum(map(len, kept)), sum(len(t.spans) - 1 for t in others))
        assert found.table()[row][2:-1] == [f"{value:.1f}" for value in wanted]
    assert found.table()[-1][0] == "right-branching trees" and len(found.table()) == len(calibrate.THRESHOLDS) + 2


def test_what_crosses_gold_is_told_from_what_only_makes_it_binary():
    spans = [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3), (4, 5)]
    assert [span for span in spans if calibrate.cross((1, 2), span)] == [(0, 1), (2, 3)]
    assert [span for span in spans if calibrate.cross((0, 2), span)] == [(2, 3), (1, 3)]


def test_the_script_prints_and_writes_what_it_found(treebank, tmp_path, capsys):
    calibrate.main([str(treebank), "--output", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    before, after = (TreeParser.from_pretrained(name) for name in ("fast-r2d2-tiny", str(tmp_path / "out" / "model")))
    assert f"confidence_scale {after.model.config.confidence_scale}" in shown and "| min_confidence | % kept |" in shown
    assert f"as it is, {before.model.config.confidence_scale}" in shown
    [same], [tree] = (parser(["the old cat sat on the mat"]) for parser in (before, after))
    assert tree.tree == same.tree and not np.allclose(tree.confidences, same.confidences)
    saved = AutoModelForPreTraining.from_pretrained(tmp_path / "out" / "model").state_dict()
    wanted = AutoModelForPreTraining.from_pretrained(bundled_checkpoint()).state_dict()
    del wanted["model.parser.confidence_weight"], saved["model.parser.confidence_weight"]
    assert saved.keys() == wanted.keys() and all(torch.equal(saved[name], wanted[name]) for name in wanted)
    assert "<svg" in (tmp_path / "out" / "confidence.svg").read_text()
    with pytest.raises(ValueError, match="is a file; give a folder"):
        calibrate.main([str(treebank), "--output", str(treebank)])
    treebank.write_text("(S (NN a) (NN b))\n" * 2)
    with pytest.raises(SystemExit, match="trees of three or more words"):
        calibrate.main([str(treebank)])
    treebank.write_text(f"{CAT}\n" * 4)
    with pytest.raises(SystemExit, match="always right or never"):
        calibrate.main([str(treebank)])
