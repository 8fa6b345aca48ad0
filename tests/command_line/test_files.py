"""What is given as a file but is none, and output that cannot be written."""

import errno
import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from threading import Thread

import pyarrow
import pytest
from pyarrow import parquet

from fast_r2d2_entry_points.command_line import main
from tokenization_fast_r2d2.lines import read_lines


def test_folders_and_devices_are_no_files(tmp_path, error_of):
    for more in ([], ["--output", tmp_path / "out"]):
        assert error_of("parse", "--file", tmp_path, *more).endswith(("give the files in it", "read again"))
        assert "/dev/zero is" in error_of("parse", "--file", "/dev/zero", *more)
    assert not (tmp_path / "out").exists()
    (tmp_path / "gold.mrg").write_text("(S (A a) (B b))")
    for place in ("/dev/zero", tmp_path / "nowhere"):
        assert str(place) in error_of("evaluate", place)
        assert str(place) in error_of("evaluate", tmp_path / "gold.mrg", "--predicted", place)


def test_a_pipe_is_read_as_a_stream_but_not_twice(tmp_path, capsys, error_of):
    os.mkfifo(tmp_path / "pipe")
    command = ["parse", "--file", str(tmp_path / "pipe")]
    assert "files, which it can read again" in error_of(*command, "--output", tmp_path / "out")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=("the old man\nyes\n",))
    writer.start()
    main(command)
    writer.join()
    assert capsys.readouterr().out.count("\n") == 2


def test_a_line_that_is_too_long_is_named_and_not_read_into_memory(tmp_path):
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(b"a b c\n" + b"x" * 100_000_000, 1))
    lines = read_lines(tmp_path / "bomb.txt.gz", max_characters=100_000)
    assert next(lines) == "a b c"
    tracemalloc.start()
    with pytest.raises(ValueError, match="bomb.txt.gz, line 2: longer than 100,000 characters .max_ch"):
        next(lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_line_may_be_as_long_as_the_limit_says(tmp_path):
    for text in ("\ufeff" + "日" * 7, "\ufeff" + "🙂" * 7, "🙂" * 7, "🙂" * 6 + "a", "x" * 7):
        for end in ("", "\n", "\r\n"):
            (tmp_path / "lines.txt").write_bytes((text + end + "yes").encode() if end else text.encode())
            found = list(read_lines(tmp_path / "lines.txt", max_characters=7))
            assert found == [text.removeprefix("\ufeff"), *(["yes"] if end else [])]
            with pytest.raises(ValueError, match="line 1: longer than 6 characters"):
                list(read_lines(tmp_path / "lines.txt", max_characters=6))


@pytest.mark.parametrize("name", ["lines.txt", "rows.parquet"])
def test_the_option_raises_the_limit_of_every_kind_of_file(tmp_path, error_of, name):
    file, lines = tmp_path / name, ["the old man", "it rained " * 4]
    if name == "lines.txt":
        file.write_text("\n".join(lines))
    else:
        parquet.write_table(pyarrow.table({"text": lines}), file)
    command = ["parse", "--file", file, "--output", tmp_path / "trees", "--max_characters"]
    place = {"lines.txt": "line 2", "rows.parquet": "row 1"}[name]
    assert f"{place}: longer than 39 characters" in error_of(*command, 39)
    main([*map(str, command), "40"])
    assert (tmp_path / "trees" / "000000.txt").read_text().count("\n") == 2
    assert "--max_characters must be >= 1, got 0" in error_of(*command, 0)


def test_output_that_cannot_be_written_is_named(tmp_path, error_of):
    (tmp_path / "gold.mrg").write_text("(S (A a) (B b))")
    (tmp_path / "trees.txt").write_text("(a b)\n")
    target = tmp_path / "trees.txt" / "inside"  # of a file, which even the owner of the disk cannot write into
    line = error_of("report", tmp_path / "gold.mrg", "--predicted", tmp_path / "trees.txt", "--output", target)
    assert "error: [Errno " in line and "trees.txt" in line


@pytest.mark.parametrize("command", [
    "evaluate {} --output", "report {} --output", "neighbours cat --file {} --index", "parse --file {} --output",
])  # fmt: skip
def test_unwritable_output_is_refused_before_any_work(tmp_path, error_of, monkeypatch, command):
    (tmp_path / "gold.mrg").write_text("(S (A a) (B b))")
    (folder := tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: os.fspath(path) != str(folder))  # root may write anywhere
    line = error_of(*command.format(tmp_path / "gold.mrg").split(), folder / "new")
    assert f"no permission to write into {folder}" in line


class FullDisk(io.FileIO):
    """A file that takes 12 bytes: it writes as many as fit, and then none."""

    def write(self, data) -> int:
        part = bytes(data)[: 12 - self.tell()]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(part)


@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("command", ["parse --file {}", "evaluate {} --systems left", "convert treebank {}"])
def test_output_that_is_cut_is_an_error_of_every_command(tmp_path, error_of, monkeypatch, command, is_buffered):
    (tmp_path / "gold.mrg").write_text("(S (A a) (B b) (C c) (D d))\n" * 5)
    raw = FullDisk(tmp_path / "out.txt", "w")
    with monkeypatch.context() as patch:  # without a buffer standard output is what PYTHONUNBUFFERED makes it
        output = io.TextIOWrapper(io.BufferedWriter(raw) if is_buffered else raw, write_through=not is_buffered)
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "__stdout__", output)
        assert "error: [Errno 28] No space left" in error_of(*command.format(tmp_path / "gold.mrg").split())
        output.close()
    assert (tmp_path / "out.txt").stat().st_size == 12


def test_closed_output_is_an_error(error_of, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert error_of("convert", "treebank", "gold.mrg").endswith("file or to /dev/null")


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_success():
    command = [sys.executable, "-m", "fast_r2d2_entry_points.command_line", "parse", "The old man"]
    reads, writes = os.pipe()
    os.close(reads)
    result = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    assert result.returncode == 141 and "Errno" not in result.stderr and "Traceback" not in result.stderr
