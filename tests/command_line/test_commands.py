"""`fast-r2d2` as a user runs it, most of it in this process."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import evaluate
import pytest

from modeling_fast_r2d2 import BinaryTree, bundled_checkpoint
from modeling_fast_r2d2.command_line import main, parse
from modeling_fast_r2d2.grammar_induction import UNLABELED_F1, read_predicted_trees, read_treebank, score_trees

GOLD = """(S (NP (DT The) (JJ old) (NN man)) (VP (VBD bought) (NP (DT a) (NN car))) (. .))
(UH Yes)
(S (NP (NNP New) (NNP York)) (VP (VBZ is) (ADJP (RB very) (JJ big))))
"""
SENTENCES = "The old man bought a car\nYes\nNew York is very big\n"


@pytest.fixture
def gold(tmp_path) -> Path:
    (tmp_path / "gold.mrg").write_text(GOLD, encoding="utf-8")
    return tmp_path / "gold.mrg"


def test_lines_of_any_kind_keep_their_count_and_order(capsys, tmp_path):
    lines = ["The cat sat.", "", "Yes", "日本 🙂 text", "  ", "a (b) c", "word " * 300, "\u200b", "x" * 500, "The end."]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    for method in ("parser", "chart", "minimum_risk", "heuristic"):
        main(["parse", "--file", str(tmp_path / "lines.txt"), "--method", method, "--batch_tokens", "40"])
        out = capsys.readouterr().out.splitlines()
        assert len(out) == len(lines)
        assert out[1] == out[4] == out[7] == "[UNK]" and out[2] == "Yes"
        assert out[0].replace("(", "").replace(")", "") == "The cat sat ." and out[5].count("-LRB-") == 1


def test_standard_input_and_the_exit_code():
    command = [sys.executable, "-m", "modeling_fast_r2d2.command_line", "parse"]
    result = subprocess.run([*command, "-"], input="a cat sat\n\n", capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0 and result.stdout.splitlines()[1] == "[UNK]", result.stderr
    assert "2 sentences in" in result.stderr
    result = subprocess.run([*command, "--file", "nowhere.txt"], capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr == "fast-r2d2 parse: error: --file nowhere.txt is not there\n"


def test_every_format_tells_the_same_tree(capsys):
    outputs = {}
    for name in ("brackets", "jsonl", "pretty", "svg"):
        main(["parse", "The old man bought a car", "--format", name])
        outputs[name] = capsys.readouterr().out
    brackets, row = outputs["brackets"].strip(), json.loads(outputs["jsonl"])
    tree, leaves = BinaryTree.from_brackets(brackets)
    assert row["brackets"] == brackets and row["leaves"] == leaves and len(row["split_scores"]) == 5
    assert [tuple(span) for span in row["spans"]] == list(tree.spans)
    assert brackets in outputs["pretty"] and tree.draw(leaves).splitlines()[0] in outputs["pretty"]
    assert outputs["svg"].count("\n") == 1
    assert "".join(ElementTree.fromstring(outputs["svg"]).itertext()).count("bought") >= 1


def test_pieces_and_words_that_may_be_split(capsys):
    main(["parse", "discombobulated unbelievabilities happened", "--pieces", "--no_span_constraints"])
    leaves = capsys.readouterr().out.replace("(", "").replace(")", "").split()
    assert len(leaves) > 6 and any(leaf.startswith("##") for leaf in leaves)


def test_five_thousand_words_parse(capsys):
    main(["parse", "the cat sat on the mat " * 834])
    assert len(BinaryTree.from_brackets(capsys.readouterr().out.strip())[1]) == 5004


def test_parsing_streams(capsys, monkeypatch):
    """Memory does not grow with the number of lines read."""
    peaks = {}
    monkeypatch.setattr(parse, "LARGEST_CHUNK", 512)
    for count in (3000, 9000):
        monkeypatch.setattr(parse, "lines_to_parse", lambda _, n=count: ("the cat sat" for _ in range(n)))
        tracemalloc.start()
        main(["parse", "-"])
        peaks[count] = tracemalloc.get_traced_memory()[1] - len(capsys.readouterr().out)
        tracemalloc.stop()
    assert peaks[9000] < peaks[3000] + 2_000_000


def test_from_a_treebank_to_figures_and_a_report(gold, tmp_path, capsys):
    """The whole way: sentences of a treebank, parsed, scored, looked at."""
    main(["convert", "treebank", str(gold)])
    (tmp_path / "text.txt").write_text(sentences := capsys.readouterr().out, encoding="utf-8")
    assert sentences == SENTENCES
    main(["parse", "--file", str(tmp_path / "text.txt")])
    (tmp_path / "mine.txt").write_text(capsys.readouterr().out, encoding="utf-8")
    scores = score_trees(read_predicted_trees(tmp_path / "mine.txt"), read_treebank(gold))
    main(["evaluate", str(gold), "--predicted", str(tmp_path / "mine.txt"), "--output", str(tmp_path / "scores")])
    assert f"{scores.sentence_f1:.1f}" in capsys.readouterr().out
    [system] = json.loads((tmp_path / "scores" / "results.json").read_text())["systems"]
    assert system["sentence_f1"] == scores.sentence_f1 and system["sentences"] == 2
    assert system["recall"]["NP"] == [scores.recall("NP"), scores.labels["NP"][1]]
    assert (tmp_path / "scores" / "results.csv").read_text().splitlines()[1].startswith("mine.txt,1,")
    main(["report", str(gold), "--predicted", str(tmp_path / "mine.txt"), "--output", str(tmp_path / "report.html")])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{scores.sentence_f1:.1f}" in page and f"F1 {scores.sentence_f1:.1f} over 2" in capsys.readouterr().out


@pytest.mark.parametrize("granularity", ["words", "pieces"])
def test_systems_side_by_side(gold, tmp_path, capsys, granularity):
    systems = ["left", "right", "balanced", "random", "heuristic", "chart", "minimum_risk", "parser", "best_binary"]
    options = ["--systems", *systems, "--seeds", "3", "--granularity", granularity, "--markdown"]
    main(["evaluate", str(gold), *options, "--no_span_constraints", "--output", str(tmp_path / "out")])
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.split("\n\n")[0].splitlines()]
    assert rows[2:] == systems
    results = json.loads((tmp_path / "out" / "results.json").read_text())["systems"]
    f1 = {row["system"]: row["sentence_f1"] for row in results}
    assert f1["best_binary"] == max(f1.values()) and {row["system"]: row["runs"] for row in results}["random"] == 3
    trees = read_predicted_trees(tmp_path / "out" / "trees" / "parser.txt")
    again = score_trees(trees, read_treebank(gold), granularity)
    assert again.sentence_f1 == f1["parser"] and len(list((tmp_path / "out" / "trees").iterdir())) == 11


def test_checkpoints_are_runs_of_one_system(gold, tmp_path, capsys):
    checkpoints = [bundled_checkpoint()] * 2
    main(["evaluate", str(gold), "--systems", "parser", "--checkpoint", *checkpoints, "--output", str(tmp_path)])
    assert "± 0.0, best" in capsys.readouterr().out
    assert json.loads((tmp_path / "results.json").read_text())["systems"][0]["runs"] == 2


@pytest.mark.parametrize("arguments, message", [
    (["parse"], "give sentences, or --file"),
    (["parse", "a", "--batch_tokens", "0"], "batch_tokens must be >= 1, got 0"),
    (["evaluate", "nowhere.mrg"], "no treebank at 'nowhere.mrg'"),
    (["evaluate", "{gold}", "--predicted", "{empty}"], "empty.txt is empty"),
    (["evaluate", "{gold}", "--predicted", "{short}"], "1 predicted trees for 3 gold ones"),
    (["evaluate", "{gold}", "--predicted", "{other}"], "at word 4, 'sold' is predicted for 'bought'"),
    (["report", "{gold}", "--predicted", "{broken}"], "broken.txt, line 1: no bracketed tree, unclosed brackets: 1"),
])  # fmt: skip
def test_bad_input_ends_with_one_line(gold, tmp_path, capsys, arguments, message):
    files = {
        "empty": "", "short": "(the cat)", "broken": "((the cat)\nYes\n(a b)\n",
        "other": "((The (old man)) (sold (a car)))\nYes\n((New York) (is (very big)))\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / f"{name}.txt").write_text(text)
    places = {name: tmp_path / f"{name}.txt" for name in files} | {"gold": gold}
    with pytest.raises(SystemExit) as exit_code:
        main([argument.format(**places) for argument in arguments])
    error = capsys.readouterr().err
    assert exit_code.value.code == 2 and message in error and error.count("\n") == 1


def test_the_metric_loads_in_evaluate_offline():
    metric = evaluate.load(UNLABELED_F1)
    predictions = ["((The (old man)) (bought (a car)))", "Yes", "((New York) (is (very big)))"]
    figures = metric.compute(predictions=predictions, references=GOLD.splitlines())
    assert figures["sentences"] == 2
    assert figures["recall"] == {"NP": 100.0, "VP": 100.0, "NNP chunk": 100.0, "ADJP": 100.0}
    assert figures["sentence_f1"] == pytest.approx((100 * 6 / 7 + 100) / 2)
