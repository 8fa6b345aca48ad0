"""One run at a time in a folder, also with many processes and on a disk that machines share."""

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

# The owner has a file of its own, because some versions of filelock empty the file that they lock.
LOCK_FILE, OWNER_FILE = ".fast-r2d2.lock", ".fast-r2d2.owner.json"


@contextlib.contextmanager
def hold_folder(folder: Path, is_alone: bool = False) -> Iterator[None]:
    """Make a folder if it is missing, and keep other runs out of it for a while.

    All processes of a run call this together, and the main process holds the lock. The system releases it when that
    process ends, however it ends; the next owner then says so on standard error. If nothing was written, the folders
    that were made are removed again.

    Args:
        folder: the folder.
        is_alone: the run has no other process, and needs no accelerate to speak to it.

    Raises:
        ValueError: if another run holds the folder, with its host and its process number; if there is a file instead.
        OSError: if the folder cannot be made or written to.
    """
    if is_alone:
        with _lock(folder):
            yield
        return
    from accelerate import PartialState  # only runs of several processes need it
    from accelerate.utils import broadcast_object_list

    state = PartialState()
    with contextlib.ExitStack() as held:
        problem: list[Any] = [None]
        if state.is_main_process:
            try:
                held.enter_context(_lock(folder))
            except (ValueError, OSError) as error:
                problem = [error]
        broadcast_object_list(problem)
        if problem[0] is not None:
            raise problem[0]
        yield
        state.wait_for_everyone()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder")
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(folder / LOCK_FILE), folder / OWNER_FILE
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{folder} is in use by {_read_owner(owner)}; wait for that run or stop it, or give another folder"
        ) from None
    try:
        if owner.exists():
            print(f"{folder} is taken over from {_read_owner(owner)}, which did not finish", file=sys.stderr)
        owner.write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname()}), encoding="utf-8")
        yield
    finally:
        for path in (owner, folder / LOCK_FILE):  # before others can hold the lock
            with contextlib.suppress(OSError):
                path.unlink()
        lock.release()
        for path in made:
            with contextlib.suppress(OSError):  # it is not empty
                path.rmdir()


def _read_owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return f"process {owner['process']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is being written
        return "a process that left no number"
