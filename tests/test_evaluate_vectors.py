"""The evaluation of vectors: its systems are what their names say, and it reads users' files and GLUE's folders."""

import json
import random

import numpy as np
import pytest
import torch

pytest.importorskip("sentence_transformers")

import evaluate_vectors
from modeling_fast_r2d2 import FastR2D2Model, bundled_checkpoint
from modeling_fast_r2d2.grammar_induction import parse_brackets

TEXTS = ["The unbelievably old man bought a new car", "car", "It was white all day", "The old man had a new car"]


@pytest.fixture
def plain():
    return FastR2D2Model.from_pretrained(bundled_checkpoint()).eval()


def vectors(system: str) -> np.ndarray:
    return evaluate_vectors.make_embedder(bundled_checkpoint(), system, "cpu").encode(TEXTS)


def test_roots_are_those_of_encode(plain):
    np.testing.assert_allclose(vectors("root, parser's tree"), plain.encode(TEXTS), atol=2e-6)
    plain.config.encoding = "chart"
    np.testing.assert_allclose(vectors("root, chart"), plain.encode(TEXTS), atol=2e-6)


def test_means_are_those_of_the_nodes_of_one_sentence(plain):
    leaves, constituents = vectors("mean of leaves"), vectors("mean of constituents, parser's tree")
    for row, text in enumerate(TEXTS[1:], start=1):  # of words of one piece
        found = plain.constituents(text)
        words = [node.vector for node in found if node.span[0] == node.span[1]]
        wider = [node.vector for node in found if node.span[0] < node.span[1]] or words
        np.testing.assert_allclose(leaves[row], np.mean(words, axis=0), atol=2e-6)
        np.testing.assert_allclose(constituents[row], np.mean(wider, axis=0), atol=2e-6)


def test_random_trees_are_others_and_the_same_at_each_run():
    first, second = vectors("root, random tree"), vectors("root, random tree")
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0] - vectors("root, parser's tree")[0]).max() > 1e-2
    np.testing.assert_allclose(first[1], vectors("root, parser's tree")[1], atol=2e-6)  # one token has one tree


def test_trees_that_branch_to_the_right_are_those_of_falling_scores(plain):
    batch = evaluate_vectors.AutoProcessor.from_pretrained(bundled_checkpoint())(TEXTS[2:3])
    words = batch["input_ids"].shape[1]
    scores = -torch.arange(words - 1.0)[None]
    with torch.no_grad():
        found = plain(batch["input_ids"], batch["attention_mask"], batch["atom_spans"], split_scores=scores)
    np.testing.assert_allclose(vectors("root, right-branching tree")[2], found.pooler_output[0], atol=2e-6)


def test_perfect_similarities_are_100(tmp_path, capsys, plain):
    first, second = TEXTS, TEXTS[1:] + TEXTS[:1]
    pairs = [plain.encode(texts, normalize_embeddings=True) for texts in (first, second)]
    cosines = (pairs[0] * pairs[1]).sum(1)
    rows = [f"{a}\t{b}\t{cosine}" for a, b, cosine in zip(first, second, cosines, strict=True)]
    (tmp_path / "mine.tsv").write_text("\n".join(["a\tb\tgold", *rows]) + "\n", encoding="utf-8")
    arguments = ["--similarity", str(tmp_path / "mine.tsv"), "--systems", "root, parser's tree"]
    arguments += ["--checkpoint", bundled_checkpoint()]
    evaluate_vectors.main([*arguments, "--columns", "a", "b", "gold"])
    assert "| root, parser's tree | 100.0 |" in capsys.readouterr().out
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.tsv").write_text((tmp_path / "mine.tsv").read_text())
    twice = [*arguments[:2], str(tmp_path / "other" / "mine.tsv"), *arguments[2:]]
    evaluate_vectors.main([*twice, "--columns", "a", "b", "gold"])  # a column for each of two files of one name
    assert "| root, parser's tree | 100.0 | 100.0 |" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"mine\.tsv has no rows with the columns score, sentence1, sentence2"):
        evaluate_vectors.main(arguments)
    with pytest.raises(SystemExit, match="nothing to do"):
        evaluate_vectors.main([])


def test_probes_learn_what_can_be_learned(tmp_path, capsys):
    """Sentences about films, good ones and bad ones; two words in them tell which."""
    chance = random.Random(0)
    (tmp_path / "SST-2").mkdir()
    for name, count in (("train", 200), ("dev", 40)):
        nouns = chance.choices(["film", "plot"], k=count)
        rows = [f"the {noun} was {['bad', 'good'][n % 2]} here\t{n % 2}" for n, noun in enumerate(nouns)]
        (tmp_path / "SST-2" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
    output = tmp_path / "scores.json"
    arguments = ["--data", str(tmp_path), "--tasks", "SST-2", "--train_rows", "100", "--output", str(output)]
    evaluate_vectors.main([*arguments, "--systems", "mean of leaves", "root, parser's tree"])
    scores = json.loads(output.read_text(encoding="utf-8"))
    assert scores["mean of leaves"]["SST-2"] == 1.0 and scores["root, parser's tree"]["SST-2"] > 0.9
    assert scores[evaluate_vectors.SAME_ANSWER]["SST-2"] == 0.5
    assert "| system | SST-2 |" in capsys.readouterr().out


def test_a_pair_is_two_vectors_their_difference_and_their_product():
    from datasets import Dataset

    embedder = evaluate_vectors.make_embedder(bundled_checkpoint(), "mean of leaves", "cpu")
    rows = Dataset.from_dict({"text": TEXTS[:2], "text_pair": TEXTS[2:], "label": [0, 1]})
    found = evaluate_vectors.vectors_of(embedder, rows)
    first, second = (torch.from_numpy(embedder.encode(texts)) for texts in (TEXTS[:2], TEXTS[2:]))
    np.testing.assert_allclose(found, torch.cat([first, second, (first - second).abs(), first * second], 1), atol=1e-6)


def test_labels_are_read_from_the_constituents_of_both_trees(tmp_path, capsys):
    """The last word tells the label, so a vector that knows it is always right. A mark that is a word counts as one."""
    lines = [f"(S (SYM --) (PRP he) (VP (VBD saw) ({label} (DT the) (JJ old) (NN {noun}))))"
             for label, noun in [("NP", "bridge")] * 2 + [("ADJP", "river")] * 2] * 5  # fmt: skip
    (tmp_path / "gold.mrg").write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = tmp_path / "scores.json"
    evaluate_vectors.main(["--treebank", str(tmp_path / "gold.mrg"), "--output", str(output)])
    scores = json.loads(output.read_text(encoding="utf-8"))
    assert scores["constituent"] == scores["mean of its words"] == {"labels of constituents": 1.0}
    assert 0 < scores[evaluate_vectors.SAME_ANSWER]["labels of constituents"] < 1
    assert "| mean of its words | 100.0 |" in capsys.readouterr().out
    (tmp_path / "gold.mrg").write_text("(S (PRP he) (VBD saw) (NN it))\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no constituent with a label"):
        evaluate_vectors.main(["--treebank", str(tmp_path / "gold.mrg")])


def test_the_lowest_of_several_labels_counts_and_the_sentence_does_not():
    [tree] = [parse_brackets("(S (NP (DT the) (NN man)) (S (VP (VBD saw) (X (PRP it)))))")]
    spans = [(0, 0), (1, 1), (2, 2), (3, 3), (2, 3), (0, 3)]
    vector = {(first, last): np.full(2, 1.0 + 10 * first + last) for first, last in spans}
    [(label, found, mean)] = evaluate_vectors.constituents_in(tree, vector)
    assert label == "VP" and found.tolist() == [24.0, 24.0] and mean.tolist() == [28.5, 28.5]
