"""Output that cannot be written is refused before the library is imported, or anything is parsed."""

import os

import pytest

from fast_r2d2_entry_points.command_line import main


@pytest.mark.parametrize("command", ["evaluate", "report", "neighbours", "parse"])
def test_unwritable_output_is_refused_before_any_work(command, tmp_path, monkeypatch, capsys):
    text = tmp_path / "gold.mrg"
    text.write_text("(S (NP (DT the) (NN cat)) (VP (VBD sat) (RP down)))\n", encoding="utf-8")
    (folder := tmp_path / "closed").mkdir()
    target = str(folder / "new")
    lines = {
        "evaluate": ["evaluate", str(text), "--output", target],
        "report": ["report", str(text), "--output", target],
        "neighbours": ["neighbours", "the cat", "--file", str(text), "--index", target],
        "parse": ["parse", "--file", str(text), "--output", target],
    }
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != str(folder))  # root may write anywhere
    with pytest.raises(SystemExit) as ended:
        main(lines[command])
    assert ended.value.code == 2 and f"no permission to write into {folder}" in capsys.readouterr().err
