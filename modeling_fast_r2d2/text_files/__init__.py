"""Files that are complete or missing, never half written, with their checksums; and folders that one run holds.

One run at a time, also with many processes and on a disk that machines share.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

# The owner has a file of its own, because some versions of filelock empty the file that they lock.
LOCK_FILE, OWNER_FILE = ".fast-r2d2.lock", ".fast-r2d2.owner.json"


def write_aside(target: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file beside ``target``, flush it to the disk, then rename it. If writing fails, no file is left
    behind.

    Args:
        target: a link stands for what it leads to.
        write: called with the path of the temporary file, whose name no other process uses.

    Raises:
        ValueError: if ``target`` is a pipe or a device.
    """
    check_is_file(target)
    target = target.resolve()
    beginning = os.fsdecode(os.fsencode(target.name)[:120])  # a name has at most 255 bytes
    aside = target.with_name(f".{beginning}.{socket.gethostname()}.{os.getpid()}{target.suffix}")
    try:
        write(aside)
        with open(aside, "rb+") as file:  # else the name may reach the disk before the content
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, aside)
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write a text in UTF-8 as `write_aside` does."""
    write_aside(target, lambda path: path.write_text(text, encoding="utf-8", newline="\n"))


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Where PyTorch and safetensors save into a folder: turn their errors, as for a full disk, into an `OSError`."""
    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        raise OSError(f"{folder} could not be written ({error}); is the disk full, or the folder protected?") from error


def checksum(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_is_file(path: Path) -> None:
    """Raise a ValueError for a pipe, which may never give anything, and for a device, which may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a pipe or a device; give a file")


def read_record(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: if the file holds something else, or an object without entries; for a pipe or a device. The message
            names the file.
        OSError: if the file cannot be read.
    """
    check_is_file(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); restore it, or give another folder") from error
    if not (isinstance(record, dict) and record):
        raise ValueError(f"{path} is damaged (no JSON object with entries); restore it, or give another folder")
    return record


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
