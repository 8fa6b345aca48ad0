"""What is given as a file but is none, and output that cannot be written."""

import os
import subprocess
import sys
from threading import Thread

import pytest

from fast_r2d2_entry_points.command_line import main


def error_of(capsys, *arguments: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_folders_and_devices_are_no_files(tmp_path, capsys):
    for more in ([], ["--output", tmp_path / "out"]):
        assert error_of(capsys, "parse", "--file", tmp_path, *more).endswith(("give the files in it", "read again"))
        assert "/dev/zero is" in error_of(capsys, "parse", "--file", "/dev/zero", *more)
    assert not (tmp_path / "out").exists()
    (tmp_path / "gold.mrg").write_text("(S (A a) (B b))")
    for place in ("/dev/zero", tmp_path / "nowhere"):
        assert str(place) in error_of(capsys, "evaluate", place)
        assert str(place) in error_of(capsys, "evaluate", tmp_path / "gold.mrg", "--predicted", place)


def test_a_pipe_is_read_as_a_stream_but_not_twice(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert "files, which it can read again" in error_of(
        capsys, "parse", "--file", tmp_path / "pipe", "--output", tmp_path / "out"
    )
    writer = Thread(target=(tmp_path / "pipe").write_text, args=("the old man\nyes\n",))
    writer.start()
    main(["parse", "--file", str(tmp_path / "pipe")])
    writer.join()
    assert capsys.readouterr().out.count("\n") == 2


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_output_that_cannot_be_written_is_named(tmp_path, capsys, command):
    (tmp_path / "gold.mrg").write_text("(S (A a) (B b))")
    (tmp_path / "trees.txt").write_text("(a b)\n")
    target = tmp_path / "trees.txt" / "inside"  # of a file, which even the owner of the disk cannot write into
    line = error_of(capsys, command, tmp_path / "gold.mrg", "--predicted", tmp_path / "trees.txt", "--output", target)
    assert "error: [Errno " in line and "trees.txt" in line


@pytest.mark.slow
def test_a_full_disk_behind_standard_output_is_an_error():
    command = [sys.executable, "-m", "fast_r2d2_entry_points.command_line", "parse", "The old man"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2 and "error: [Errno 28]" in result.stderr and "Traceback" not in result.stderr
