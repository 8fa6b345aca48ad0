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


def test_phrases_are_found_and_the_index_is_kept(text, tmp_path, capsys):
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
    main([*arguments, "--file", str(text)])
    assert capsys.readouterr().out == first.out
    model = FastR2D2Model.from_pretrained(bundled_checkpoint())
    torch.nn.init.normal_(model.embeddings.weight)
    shutil.copytree(bundled_checkpoint(), tmp_path / "other")
    model.save_pretrained(tmp_path / "other")
    with pytest.raises(SystemExit, match="2"):
        main(["neighbours", "a new car", "--checkpoint", str(tmp_path / "other"), "--index", str(index)])
    assert "has the vectors of another model; delete the file" in capsys.readouterr().err
    text.write_text(TEXT * 2, encoding="utf-8")
    for more, message in [(["--file", str(text)], "was made with files"), ([], "the text to look in")]:
        if not more:
            index.unlink()
        with pytest.raises(SystemExit, match="2"):
            main([*arguments, *more])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("more", "message"), [
    (["--count", "0"], "--count must be >= 1, got 0"), (["--max_words", "1"], "--max_words must be >= 2"),
    (["--file", "nothing.txt"], "--file nothing.txt is no file"), ([], "give --file"),
    (["--file", __file__, "--index", "nowhere/a.phrases"], "must be a file, in a folder that exists"),
])  # fmt: skip
def test_bad_options_are_refused_before_the_library_is_loaded(more, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["neighbours", "a phrase", *more])
    assert message in capsys.readouterr().err


def test_a_terminal_sees_the_phrase_in_its_sentence(text, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    main(["neighbours", "the old bridge", *TINY, "--file", str(text), "--count", "1"])
    out = capsys.readouterr().out
    assert "\033[1mthe old bridge\033[0m\n  1.00  A woman sold \033[1mthe old bridge\033[0m" in out
