"""``fast-r2d2 neighbours``."""

import shutil

import pytest
import torch

from fast_r2d2_entry_points.command_line import main
from modeling_fast_r2d2 import FastR2D2Model, bundled_checkpoint

TEXT = "The old man bought a new car .\n\nA woman sold the old bridge .\nShe sleeps .\n"
TINY = ["--checkpoint", "fast-r2d2-tiny"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_phrases_are_found_and_the_index_is_kept(text, tmp_path, capsys, error_of):
    index = tmp_path / "text.phrases"
    arguments = ["neighbours", "the old bridge", "a new car", *TINY, "--index", str(index), "--count", "3"]
    main([*arguments, "--file", str(text)])
    first = capsys.readouterr()
    rows = [line.split("\t") for line in first.out.splitlines()]
    assert [row[0] for row in rows] == ["the old bridge"] * 3 + ["a new car"] * 3
    assert rows[0][2:] == ["the old bridge", "A woman sold the old bridge"] and float(rows[0][1]) > 0.99
    assert "phrases of 3 sentences" in first.err
    main(arguments)
    assert capsys.readouterr().out == first.out
    assert "--lines and --max_words are for the making of an index" in error_of(*arguments, "--max_words", "3")
    main([*arguments, "--file", str(text)])
    assert capsys.readouterr().out == first.out
    model = FastR2D2Model.from_pretrained(bundled_checkpoint())
    torch.nn.init.normal_(model.composition.blend.weight)
    shutil.copytree(bundled_checkpoint(), tmp_path / "other")
    model.save_pretrained(tmp_path / "other")
    other = ["--checkpoint", tmp_path / "other", "--index", index]
    assert "has the vectors of another model; delete the file" in error_of("neighbours", "a new car", *other)
    (tmp_path / "moved").mkdir()
    moved = shutil.move(text, tmp_path / "moved")
    main([*arguments, "--file", str(moved)])
    assert capsys.readouterr().out == first.out
    text.write_text(TEXT.replace("bridge", "garden"), encoding="utf-8")  # of the same size
    assert "was made with files" in error_of(*arguments, "--file", text)
    index.unlink()
    assert "the text to look in" in error_of(*arguments)
    assert "',' has no words" in error_of("neighbours", ",", *TINY, "--file", text, "--index", index)
    assert not index.exists()


def test_a_terminal_sees_the_phrase_in_its_sentence(text, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(["neighbours", "the old bridge", *TINY, "--file", str(text), "--count", "1"])
    out = capsys.readouterr().out
    assert "\033[1mthe old bridge\033[0m\n  1.00  A woman sold \033[1mthe old bridge\033[0m" in out
