"""A folder that one run holds: others are refused, and a dead one's place is taken."""

import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from modeling_fast_r2d2.text_files import LOCK_FILE, OWNER_FILE, hold_folder


def _hold_until_killed(folder: Path) -> None:
    with hold_folder(folder):
        time.sleep(600)


@pytest.fixture
def other_run(tmp_path):
    """The process of a run that holds the folder ``run``."""
    process = multiprocessing.get_context("fork").Process(target=_hold_until_killed, args=(tmp_path / "run",))
    process.start()
    owner, deadline = tmp_path / "run" / OWNER_FILE, time.monotonic() + 60
    while not (owner.exists() and owner.read_text()):
        assert time.monotonic() < deadline, "the folder is not held"
        time.sleep(0.01)
    yield process
    process.kill()
    process.join()


def test_a_second_run_is_refused_with_the_firsts_host_and_process(tmp_path, other_run):
    message = f"is in use by process {other_run.pid} on {socket.gethostname()}; wait for that run or stop it"
    with pytest.raises(ValueError, match=message), hold_folder(tmp_path / "run"):
        pass
    assert other_run.is_alive() and (tmp_path / "run" / LOCK_FILE).exists()


def test_the_folder_of_a_dead_run_is_taken_over_with_a_note(tmp_path, other_run, capfd):
    os.kill(other_run.pid, signal.SIGKILL)
    other_run.join()
    with hold_folder(tmp_path / "run"):
        (tmp_path / "run" / "result").touch()
    assert f"is taken over from process {other_run.pid} on {socket.gethostname()}" in capfd.readouterr().err
    with hold_folder(tmp_path / "run"):
        assert "taken over" not in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["result"]


def test_a_run_that_writes_nothing_leaves_nothing(tmp_path):
    (tmp_path / "mine").mkdir()
    for folder in ("a/b/c", "mine"):
        with pytest.raises(RuntimeError), hold_folder(tmp_path / folder):
            raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="file is a file; give a folder"), hold_folder(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
