"""`fast-r2d2` as a user runs it, most of it in this process."""

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import evaluate
import pytest
from tqdm import tqdm

from fast_r2d2_entry_points.command_line import main, parsing, scoring, shards, texts
from fast_r2d2_entry_points.command_line.texts import Text
from modeling_fast_r2d2 import BinaryTree, FastR2D2Config, FastR2D2Model, bundled_checkpoint
from modeling_fast_r2d2.grammar_induction import UNLABELED_F1, read_predicted_trees, read_treebank, score_trees
from modeling_fast_r2d2.grammar_induction.treebanks import read_predicted_tree
from tokenization_fast_r2d2 import task_token_ids, train_tokenizer

GOLD = """(S (NP (DT The) (JJ old) (NN man)) (VP (VBD bought) (NP (DT a) (NN car))) (. .))
(UH Yes)
(S (NP (NNP New) (NNP York)) (VP (VBZ is) (ADJP (RB very) (JJ big))))
"""
SENTENCES = "The old man bought a car\nYes\nNew York is very big\n"
STORY = "It rains.\nDr. Smith doesn't care. He\r\nreads on!\n\n  \nThe end\n"


@pytest.fixture
def gold(tmp_path) -> Path:
    (tmp_path / "gold.mrg").write_text(GOLD, encoding="utf-8")
    return tmp_path / "gold.mrg"


def test_lines_of_any_kind_keep_their_count_and_order(capsys, tmp_path):
    lines = ["The cat sat.", "", "Yes", "日本 🙂 text", "  ", "a (b) c", "word " * 120, "\u200b", "x" * 500, "The end."]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    for method in ("parser", "chart", "minimum_risk", "heuristic"):
        main(["parse", "--file", str(tmp_path / "lines.txt"), "--method", method, "--batch_tokens", "40"])
        out = capsys.readouterr().out.splitlines()
        assert len(out) == len(lines)
        assert out[1] == out[4] == "" and out[7] == "[UNK]" and out[2] == "Yes"
        assert out[0].replace("(", "").replace(")", "") == "The cat sat ." and out[5].count("-LRB-") == 1


@pytest.mark.slow
def test_standard_input_and_the_exit_code():
    command = [sys.executable, "-m", "fast_r2d2_entry_points.command_line", "parse"]
    result = subprocess.run([*command, "-"], input="a cat sat\n\n", capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == 0 and result.stdout.splitlines()[1] == "", result.stderr
    assert re.fullmatch(r"1 sentence in \S+ s, \d+ sentences/s\n", result.stderr)
    latin = subprocess.run([*command, "-"], input="a\nBär\n".encode("latin-1"), capture_output=True)
    assert latin.returncode == 2 and b"standard input, line 2: not UTF-8" in latin.stderr
    closed = subprocess.run(["sh", "-c", '"$@" - <&-', "sh", *command], capture_output=True, text=True)
    assert closed.returncode == 2 and "standard input is closed" in closed.stderr and "Traceback" not in closed.stderr


def test_output_is_utf8_in_every_locale(tmp_path):
    (tmp_path / "gold.mrg").write_text("(S (NN 猫\xa0猫) (VB sleeps))\n", encoding="utf-8")
    command = [sys.executable, "-m", "fast_r2d2_entry_points.command_line", "convert", "treebank"]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}
    result = subprocess.run([*command, str(tmp_path / "gold.mrg")], capture_output=True, env=latin)
    assert result.stdout.decode() == "猫_猫 sleeps\n", result.stderr  # a blank in a word would cut it


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


def test_flat_trees_are_the_same_in_every_format(capsys):
    for confidence in ("0.5", "1"):
        read = []
        for name in ("brackets", "jsonl"):
            main(["parse", "The old man in the boat bought a car", "--format", name, "--min_confidence", confidence])
            line = capsys.readouterr().out
            read.append(read_predicted_tree(line.strip(), has_labels=False, place="here").spans)
        assert read[0] == read[1] and 1 <= len(read[0]) < 8
        row = json.loads(line)
        sure = {tuple(span) for span, given in zip(row["spans"], row["confidences"], strict=True)
                if given >= float(confidence)}  # fmt: skip
        assert read[0] == sure


def test_pieces_and_words_that_may_be_split(capsys):
    main(["parse", "discombobulated unbelievabilities happened", "--pieces", "--no_keep_words"])
    leaves = capsys.readouterr().out.replace("(", "").replace(")", "").split()
    assert len(leaves) > 6 and any(leaf.startswith("##") for leaf in leaves)


@pytest.mark.slow
def test_parsing_streams(capsys, monkeypatch):
    """Memory does not grow with the number of lines read."""
    peaks = {}
    monkeypatch.setattr(parsing, "LARGEST_CHUNK", 512)
    for count in (3000, 9000):
        monkeypatch.setattr(parsing, "texts_to_parse", lambda _, n=count: (Text("the cat sat") for _ in range(n)))
        tracemalloc.start()
        main(["parse", "-"])
        peaks[count] = tracemalloc.get_traced_memory()[1] - len(capsys.readouterr().out)
        tracemalloc.stop()
    assert peaks[9000] < peaks[3000] + 2_000_000


@pytest.mark.parametrize("module, command, said", [
    (parsing, "parse --file {one}", r"1 sentence in \S+ s, \d+ sentences/s\n"),
    (shards, "parse --file {one} --output {out}", "process 0: 1 shard written, 0 existed already\n"),
    (scoring, "evaluate {gold} --systems parser", ""),
])  # fmt: skip
def test_bars_do_not_pile_up_where_there_is_no_terminal(gold, tmp_path, capsys, monkeypatch, module, command, said):
    monkeypatch.setattr(module, "tqdm", lambda **options: tqdm(**options | {"delay": 0}))
    (tmp_path / "one.txt").write_text("the cat sat\n")
    places = {"gold": gold, "one": tmp_path / "one.txt", "out": tmp_path / "out"}
    main([word.format(**places) for word in command.split()])
    assert re.fullmatch(said, capsys.readouterr().err)


def test_control_c_ends_a_command_without_a_traceback(capsys, monkeypatch):
    def texts_until_interrupted(_):
        yield Text("the cat sat")
        raise KeyboardInterrupt

    monkeypatch.setattr(parsing, "texts_to_parse", texts_until_interrupted)
    with pytest.raises(SystemExit) as exit_code:
        main(["parse", "-"])
    assert exit_code.value.code == 130 and "Traceback" not in capsys.readouterr().err


def test_from_a_treebank_to_figures_and_a_report(gold, tmp_path, capsys):
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
    main(["evaluate", str(gold), *options, "--no_keep_words", "--output", str(tmp_path / "out")])
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.split("\n\n")[0].splitlines()]
    assert rows[2:] == systems
    results = json.loads((tmp_path / "out" / "results.json").read_text())["systems"]
    f1 = {row["system"]: row["sentence_f1"] for row in results}
    assert f1["best_binary"] == max(f1.values()) and {row["system"]: row["runs"] for row in results}["random"] == 3
    trees = read_predicted_trees(tmp_path / "out" / "trees" / "parser.txt")
    again = score_trees(trees, read_treebank(gold), granularity)
    assert again.sentence_f1 == f1["parser"] and len(list((tmp_path / "out" / "trees").iterdir())) == 11


def test_files_of_one_name_or_a_systems_name_are_told_apart_and_others_stay(gold, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    right, worse = "((The (old man)) (bought (a car)))", "(The (old (man (bought (a car)))))"
    files = {"a/mine.txt": right, "b/mine.txt": worse, "right.txt": right, "random-0.txt": right, "out/trees/x": "mine"}
    for path, first in files.items():
        Path(path).parent.mkdir(exist_ok=True, parents=True)
        Path(path).write_text(f"{first}\nYes\n((New York) (is (very big)))\n")
    *predicted, other = files
    systems = ["--systems", "right", "random", "--seeds", "2"]
    main(["evaluate", str(gold), "--predicted", *predicted, *systems, "--output", "out"])
    results = json.loads(Path("out", "results.json").read_text())
    f1 = {row["system"]: row["sentence_f1"] for row in results["systems"]}
    assert predicted[:2] == list(f1)[:2] and f1["a/mine.txt"] > f1["b/mine.txt"] and len(f1) == 4 + 2
    assert len(list(Path("out", "trees").iterdir())) == 1 + 4 + 1 + 2 and Path(other).read_text().startswith("mine")
    assert results["settings"]["gold"] == [str(gold)]


def test_words_are_leaves_whatever_the_tokenizer_makes_of_them(tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("don't stop-it \u00ad U.S.\n\nthe end\n", encoding="utf-8")
    main(["parse", "--words", "--file", str(tmp_path / "lines.txt"), "--format", "jsonl"])
    first, blank, last = capsys.readouterr().out.splitlines()
    assert json.loads(first)["leaves"] == ["don't", "stop-it", "\u00ad", "U.S."] and blank == ""
    assert json.loads(last)["leaves"] == ["the", "end"]


@pytest.mark.parametrize("form", ["((The (old man)) (bought (a car)))", "(X (X The (X old man)) (X bought (X a car)))",
                                  '{"leaves": ["The", "old", "man", "bought", "a", "car"], "spans": [[0, 2], [1, 2], [0, 5], [3, 5], [4, 5]]}'])  # fmt: skip  # noqa: E501
def test_our_own_forms_of_trees_are_scored(tmp_path, capsys, form):
    (tmp_path / "one.mrg").write_text(GOLD.splitlines()[0])
    (tmp_path / "mine.txt").write_text(form)
    main(["evaluate", str(tmp_path / "one.mrg"), "--predicted", str(tmp_path / "mine.txt")])
    assert " 85.7 [" in capsys.readouterr().out


def test_checkpoints_of_other_tokenizers_are_scored_over_pieces_by_words(gold, tmp_path, capsys):
    tokenizer = train_tokenizer([SENTENCES], 60, kind="character", show_progress=False)
    config = FastR2D2Config(
        vocab_size=len(tokenizer), hidden_size=8, num_attention_heads=1, intermediate_size=8, num_hidden_layers=1,
        parser_embedding_size=4, parser_hidden_size=4, parser_num_layers=1, **task_token_ids(tokenizer),
    )  # fmt: skip
    FastR2D2Model(config).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    checkpoints = [bundled_checkpoint(), str(tmp_path / "other")]
    options = ["--systems", "parser", "--granularity", "pieces", "--output", str(tmp_path / "out")]
    main(["evaluate", str(gold), *options, "--checkpoint", *checkpoints])
    assert re.search(r"± \d+\.\d, best", capsys.readouterr().out)
    [both] = json.loads((tmp_path / "out" / "results.json").read_text())["systems"]
    alone = []
    for checkpoint in checkpoints:
        main(["evaluate", str(gold), *options, "--checkpoint", checkpoint])
        alone.append(json.loads((tmp_path / "out" / "results.json").read_text())["systems"][0]["sentence_f1"])
    mean = sum(alone) / 2
    assert alone[0] != alone[1] and both["best"] == max(alone) and both["sentence_f1"] == pytest.approx(mean)
    assert both["deviation"] == pytest.approx(abs(alone[0] - alone[1]) / 2**0.5) and both["by_length"]["2-10"][1] == 2


@pytest.mark.parametrize("arguments, message", [
    (["parse"], "give either sentences or --file"),
    (["parse", "--file", "nowhere.txt"], "parse: error: --file nowhere.txt does not exist"),
    (["parse", "a", "--batch_tokens", "0"], "batch_tokens must be >= 1, got 0"),
    (["parse", "a", "--min_confidence", "1.5"], "from 0 to 1"),
    (["parse", "a", "--device", "foo"], "--device foo is not available"),
    (["parse", "A cat.", "A dog.", "--format", "svg"], "an SVG file has one picture, and there are several sentences"),
    (["parse", "a", "--vectors"], "--vectors needs --output"),
    (["parse", "a", "--output", "{gold}"], "--output needs --file"),
    (["parse", "a", "-"], "- reads standard input; give it alone"),
    (["parse", "a", "--format", "svg", "--output", "{gold}"], "is a file; give a folder"),
    (["parse", "--file", "{gold}", "--output", "{gold}"], "is a file; give a folder"),
    (["evaluate", "{gold}", "--output", "{gold}"], "is a file; give a folder"),
    (["evaluate", "{gold}", "--output", "{gold}/scores"], "is a file; give a folder"),
    (["evaluate", "{gold}", "--as_written", "--keep_punctuation"], "--as_written removes punctuation before scoring"),
    (["evaluate", "{gold}", "--seeds", "0"], "--seeds must be >= 1, got 0"),
    (["evaluate", "{gold}", "--max_length", "0"], "--max_length must be >= 2 words, got 0"),
    (["evaluate", "{plain}", "--systems", "left"], "a constituent has no label"),
    (["evaluate", "{gold}", "--predicted", "."], "no file of predicted trees at '.'"),
    (["neighbours", "a"], "give --file"),
    (["neighbours", "a", "--count", "0"], "--count must be >= 1, got 0"),
    (["neighbours", "a", "--max_words", "1"], "--max_words must be >= 2"),
    (["neighbours", "a", "--file", "nothing.txt"], "--file nothing.txt is no file"),
    (["neighbours", "a", "--file", "{gold}", "--index", "nowhere/a"], "must be a file, in a folder that exists"),
    (["neighbours", "a\udcff", "--file", "{gold}"], "a lone surrogate"),
    (["parse", "a", "--device", "meta"], "--device meta is not available"),
    (["report", "{gold}", "--output", "."], "--output . is a folder; give a file"),
    (["report", "{gold}", "--output", "{gold}"], "is a file that is read; give another one"),
    (["report", "{gold}", "--predicted", "{null}"], "'null' is predicted for 'The'"),
    (["report", "{gold}", "--predicted", "{broken}"], "broken.txt, line 1: not a bracketed tree: unclosed brackets: 1"),
])  # fmt: skip
def test_bad_input_ends_with_one_line(gold, tmp_path, capsys, arguments, message):
    files = {
        "plain": "((the cat) (sat down))", "broken": "((the cat)\nYes\n(a b)\n", "null": "null\nYes\n[1]\n",
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


@pytest.mark.parametrize("granularity", ["words", "pieces"])
def test_punctuation_is_shown_and_not_scored(model, tokenizer, tmp_path, granularity):
    """A parser that splits at marks first finds what a treebank's sentence has between them."""
    inner = "(SBAR (WDT that) (VBZ lasts)) (, ,) (VP (VBD bought) (NP (DT a) (NN car)))"
    (tmp_path / "gold.mrg").write_text(f"(S (NP (DT the) (NN unbelievability)) (, ,) {inner} (. .))\n")
    words = "the unbelievability that lasts bought a car"
    model.config.punctuation, model.config.bounds_bonus = "aside", 1e4
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    options = ["--systems", "parser", "chart", "--checkpoint", str(tmp_path / "model"), "--granularity", granularity]
    main(["evaluate", str(tmp_path / "gold.mrg"), *options, "--as_written", "--output", str(tmp_path / "out")])
    [tree] = read_predicted_trees(tmp_path / "out" / "trees" / "parser.txt")
    split = tokenizer.tokenize if granularity == "pieces" else str.split
    assert list(tree.words) == split(words)
    first, second = (len(split(part)) - 1 for part in ("the unbelievability", "the unbelievability that lasts"))
    assert (0, first) in tree.spans and {(0, second), (first + 1, tree.num_leaves - 1)} & tree.spans


def test_trees_that_are_bad_only_with_punctuation_are_skipped_in_both_forms(tmp_path, capsys, error_of):
    bad = "(S (NP (DT the) (NN dog)) (VP (VBD ran)) ((, ,) (. .)))"
    (tmp_path / "gold.mrg").write_text(f"(S (NP (DT a) (NN cat)) (VP (VBD sat) (ADVP (RB down))))\n{bad}\n")
    arguments = ["evaluate", str(tmp_path / "gold.mrg"), "--systems", "right"]
    main([*arguments, "--as_written", "--skip_bad"])
    assert "right" in capsys.readouterr().out
    assert "line 2: a constituent has no label" in error_of(*arguments, "--as_written")


def test_a_tree_of_notes_alone_is_no_sentence_with_punctuation_either(tmp_path, capsys):
    (tmp_path / "gold.mrg").write_text("(S (NP (DT a) (NN cat)) (VP (VBD sat) (RP down)))\n(CODE <P_1>)\n")
    for more in ([], ["--as_written"]):
        main(["evaluate", str(tmp_path / "gold.mrg"), "--systems", "parser", *more])
        assert "parser" in capsys.readouterr().out


def test_an_evaluation_that_fails_leaves_no_folder(tmp_path, error_of):
    assert "nothing.mrg" in error_of("evaluate", tmp_path / "nothing.mrg", "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_running_text_is_sentences_with_their_characters(tmp_path, capsys):
    (tmp_path / "story.txt").write_bytes(STORY.encode())
    main(["parse", "--text", "--file", str(tmp_path / "story.txt"), "--format", "jsonl"])
    lines = capsys.readouterr().out.splitlines()
    assert [bool(line) for line in lines] == [True, True, True, False, False, True]
    rows = [json.loads(line) for line in lines if line]
    assert [len(row["leaves"]) for row in rows] == [3, 6, 4, 2]
    for row in rows:
        assert [STORY[start:end] for start, end in row["leaf_offsets"]] == row["leaves"]
        assert row["file"] == str(tmp_path / "story.txt")
    main(["parse", "--text", STORY])
    assert capsys.readouterr().out.count("\n") == 4


def test_offsets_count_the_characters_of_a_line(capsys):
    for text, *options in (["  The (old) man, he"], [" don't  stop-it ", "--words"], ["unbelievable a", "--pieces"]):
        main(["parse", text, "--format", "jsonl", *options])
        row = json.loads(capsys.readouterr().out)
        shown = [text[start:end] for start, end in row["leaf_offsets"]]
        assert [leaf.removeprefix("##") for leaf in row["leaves"]] == shown
        for (first, last), (start, end) in zip(row["spans"], row["span_offsets"], strict=True):
            assert text[start:end].startswith(shown[first]) and text[start:end].endswith(shown[last])


def test_a_long_paragraph_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(texts, "LONGEST_PARAGRAPH", 2)
    found = list(texts.paragraphs(["a\n", "b\n", "c\n", "\n", "d"]))
    assert [text.text for text in found] == ["a\nb\n", "c\n", "\n", "d"]
    assert [text.start for text in found] == [0, 4, 6, 7]


def test_a_picture_is_one_file(tmp_path, capsys):
    main(["parse", "A cat sat.", "A dog ran.", "--format", "svg", "--output", str(tmp_path / "trees")])
    pictures = sorted((tmp_path / "trees").iterdir())
    assert [path.name for path in pictures] == ["000000.svg", "000001.svg"]
    assert all(word in ElementTree.parse(pictures[1]).getroot()[0].text for word in ("dog", "ran"))
    capsys.readouterr()
    main(["parse", "A cat sat.", "--format", "svg", "--output", str(tmp_path / "trees")])
    assert "has 1 picture of earlier sentences, too: 000001.svg and on" in capsys.readouterr().err
