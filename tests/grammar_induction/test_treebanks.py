"""Treebanks as they are published, and files of other parsers."""

import gzip
import logging
import re

import pytest

from modeling_fast_r2d2.grammar_induction import TreebankPreprocessing, read_predicted_trees, read_treebank

SENTENCE = "(S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps) (NP (-NONE- *T*-1))) (. .))"
PTB = f"""
( (S
    (NP-SBJ (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (NP-PRD (NN chairman) ))
    (. .) ))
{SENTENCE}
"""
CTB = """<DOC>
<BODY>
<S ID=1>
( (IP-HLN (NP-SBJ (NR 上海)
   (NN 浦东))
  (VP (VV 开发) (PU 。))) )
</S>
</BODY>
</DOC>
"""


def test_published_files_of_several_lines_per_tree(tmp_path):
    (tmp_path / "wsj_2201.mrg").write_text(PTB, encoding="utf-8")
    first, second = read_treebank(tmp_path / "wsj_2201.mrg")
    assert first.words == ("Mr.", "Vinken", "is", "chairman") and second.words == ("The", "cat", "sleeps")
    assert [tuple(c) for c in first.constituents] == [(0, 1, "NP"), (2, 3, "VP"), (0, 3, "S")]
    assert first.place.endswith("line 2") and second.place.endswith("line 7")
    (tmp_path / "chtb_0301.fid").write_text(CTB, encoding="utf-8")
    [tree] = read_treebank(tmp_path / "chtb_0301.fid")
    assert tree.words == ("上海", "浦东", "开发") and {(0, 1), (0, 2)} == tree.spans


def test_what_lies_beside_trees_in_a_folder_is_not_read(tmp_path):
    for name in ("README.md", "LICENSE.txt", ".git/HEAD", "stats.xml", "merge.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("No trees.")
    for name in ("1.mrg", "2.mrg"):
        (tmp_path / name).write_text(SENTENCE)
    assert len(read_treebank(iter([tmp_path]))) == 2


def test_preprocessing_is_visible_and_can_be_changed(tmp_path):
    with gzip.open(tmp_path / "one.mrg.gz", "wt", encoding="utf-8") as file:
        file.write(SENTENCE)
    options = ({}, {"lowercase": True}, {"keep_punctuation": True})
    read = [read_treebank(tmp_path / "one.mrg.gz", TreebankPreprocessing(**each))[0].words for each in options]
    assert read == [("The", "cat", "sleeps"), ("the", "cat", "sleeps"), ("The", "cat", "sleeps", ".")]


def test_standard_splits_by_folder_or_name(tmp_path):
    for section in ("02", "21", "22", "23", "24"):
        (tmp_path / section).mkdir()
        (tmp_path / section / f"wsj_{section}00.mrg").write_text(f"(S (A s{section}) (B b))")
    for number in ("0001", "0271", "0301", "2031"):
        (tmp_path / f"chtb_{number}.fid").write_text(f"(S (A c{number}) (B b))")
    names = {split: [tree.words[0] for tree in read_treebank(tmp_path, split=split)] for split in
             ("train", "validation", "test")}  # fmt: skip
    assert names == {
        "train": ["s02", "s21", "c0001", "c2031"], "validation": ["s22", "c0301"], "test": ["s23", "c0271"],
    }  # fmt: skip
    assert len(read_treebank(tmp_path)) == 9
    (tmp_path / "23" / "wsj_2300.mrg").rename(tmp_path / "WSJ_2300.MRG")
    assert len(read_treebank(tmp_path, split="test")) == 2
    with pytest.raises(ValueError, match="split must be one of train, validation, test, got 'dev'"):
        read_treebank(tmp_path, split="dev")
    with pytest.raises(ValueError, match="no file of the split 'test'"):
        read_treebank(tmp_path / "02", split="test")


def test_bad_trees_are_named_and_skipped_on_request(tmp_path, caplog):
    path = tmp_path / "some.mrg"
    path.write_text(f"{SENTENCE}\n(S (NP (DT a)\n{SENTENCE}\nno tree\n", encoding="utf-8")
    with pytest.raises(ValueError, match="some.mrg, line 2: not a bracketed tree: unclosed brackets: 2"):
        read_treebank(path)
    with caplog.at_level(logging.WARNING):
        assert len(read_treebank(path, skip_bad=True)) == 2
    assert [record.getMessage().split("some.mrg, ")[1][:6] for record in caplog.records] == ["line 2", "line 4"]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_files_without_trees_are_refused(tmp_path, text):
    (tmp_path / "empty").write_text(text)
    with pytest.raises(ValueError, match="no tree in"):
        read_treebank(tmp_path / "empty")
    with pytest.raises(ValueError, match="empty is empty"):
        read_predicted_trees(tmp_path / "empty")
    with pytest.raises(ValueError, match="no treebank at '.*nowhere'"):
        read_treebank(tmp_path / "nowhere")


@pytest.mark.parametrize("lines", [
    ["(N-1 (T-1 the)(N-1 (T-1 old)(T-1 cat)))", "(T-1 Yes)"],
    ["(NT-2 (T-4 the) (NT-1 (T-9 old) (T-3 cat)))", "(T-4 Yes)"],
    ["(the (old cat))", "Yes"],
    ["((the old) cat)", "Yes"],
    ["(the (old cat))"],
])  # fmt: skip
def test_trees_of_parsers_with_and_without_labels(tmp_path, lines):
    (tmp_path / "trees.txt").write_text("\n".join(lines))
    trees = read_predicted_trees(tmp_path / "trees.txt")
    assert trees[0].words == ("the", "old", "cat") and len(trees[0].spans) == 2
    assert [tree.words for tree in trees[1:]] == [("Yes",)] * (len(lines) - 1)


def test_a_balanced_tree_alone_is_not_taken_for_labels(tmp_path):
    (tmp_path / "trees.txt").write_text("((the cat) (sat down))\n\n")
    first, second = read_predicted_trees(tmp_path / "trees.txt")
    assert first.words == ("the", "cat", "sat", "down") and second.words == ()
    assert read_predicted_trees(tmp_path / "trees.txt", has_labels=True)[0].words == ("cat", "down")


def test_odd_bytes_do_not_change_words(tmp_path):
    """A byte-order mark, Windows' line ends, blanks that are no separators."""
    (tmp_path / "odd.mrg").write_bytes(f"\ufeff{SENTENCE}\r\n(S (CD 10\u00a0000) (NN x))\r\n".encode())
    first, second = read_treebank(tmp_path / "odd.mrg")
    assert first.words == ("The", "cat", "sleeps") and second.words == ("10\u00a0000", "x")


def test_a_tree_without_words_is_written_and_read_again(tmp_path):
    (tmp_path / "some.mrg").write_text(f"(NP (. .))\n{SENTENCE}")
    trees = read_treebank(tmp_path / "some.mrg")
    (tmp_path / "again.mrg").write_text("\n".join(tree.brackets() for tree in trees))
    assert [tree.words for tree in read_treebank(tmp_path / "again.mrg")] == [(), ("The", "cat", "sleeps")]


def test_files_left_out_of_a_folder_are_told(tmp_path, caplog):
    for name in ("wsj/wsj_0001.mrg", "brown/ck01.mrg", "wsj/MERGE.LOG"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("(S (DT the) (NN cat))\n", encoding="utf-8")
    assert len(read_treebank(tmp_path)) == 1
    assert re.search(r"left out 1 files beside .*wsj_0001\.mrg, such as .*ck01\.mrg", caplog.text)
    caplog.clear()
    assert len(read_treebank([tmp_path / "wsj", tmp_path / "brown"])) == 2 and not caplog.text
