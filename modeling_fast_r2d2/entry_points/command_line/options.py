"""Options that several commands have, and the checks that need no library."""

import argparse
import os
import re
from importlib.util import find_spec
from pathlib import Path

DEFAULT_CHECKPOINT = "fast-r2d2-tiny"
VECTORS_CHECKPOINT = "fast-r2d2-small"  # the same trees, and better vectors
# The library's own names, written here once more, since importing the library takes seconds. A test compares them.
METHODS = ("parser", "chart", "minimum_risk", "heuristic")
BASELINES = ("left", "right", "balanced", "random")
GRANULARITIES = ("words", "pieces")
SPLITS = ("train", "validation", "test")


def add_gold_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose gold trees and tell how to read them."""
    add = parser.add_argument
    add("gold", type=Path, nargs="+", help="files or folders of gold trees: brackets, TIGER-XML, "
        "NEGRA export, CoNLL-U; plain or .gz")  # fmt: skip
    add("--split", choices=SPLITS, help="the part to read of a folder of the Penn or the Chinese Treebank")
    add("--keep_punctuation", action="store_true", help="remove only traces; by default punctuation is removed as well")
    add("--punctuation_tags", nargs="+", metavar="TAG", help="the treebank's tags of punctuation; by default those of "
        "the Penn, the Chinese and the TIGER Treebank and UD, and what Unicode says of the words")  # fmt: skip
    add("--lowercase", action="store_true", help="turn words into lower case before models see them")
    add("--skip_bad", action="store_true", help="skip gold trees that cannot be read, with a warning for each")


def add_comparison_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that tell how to compare trees."""
    add = parser.add_argument
    add("--granularity", choices=GRANULARITIES, default="words", help="compare trees over words or over pieces")
    add("--as_written", action="store_true", help="let models see the punctuation, and remove it before scoring")
    add("--max_length", type=int, help="score only sentences of at most this number of words")
    add("--no_keep_words", action="store_true", help="allow trees in which a word is no constituent")
    add_threads_argument(parser)


def add_threads_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads``."""
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads; by default one for a tiny model, else "
        "one per core; without --threads, OMP_NUM_THREADS decides if it is set")  # fmt: skip


def check_comparison(options: argparse.Namespace) -> None:
    """Refuse what no trees can be compared by, before models make them."""
    if options.max_length is not None and options.max_length < 2:
        raise ValueError(f"--max_length must be >= 2 words, got {options.max_length}")
    if options.as_written and options.keep_punctuation:
        raise ValueError("--as_written removes punctuation before scoring, --keep_punctuation keeps it; give one")


def check_model_options(checkpoints: list[str], threads: int | None) -> None:
    """Refuse a checkpoint that cannot be there, and a number of threads below 1."""
    if threads is not None and threads < 1:
        raise ValueError(f"--threads must be >= 1, got {threads}")
    for name in checkpoints:
        if not Path(name).is_dir() and (not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith(".")):
            raise ValueError(f"no checkpoint at {name!r}; give a folder, a Hub name, "
                             f"{DEFAULT_CHECKPOINT} or {VECTORS_CHECKPOINT}")  # fmt: skip


def check_can_be_folder(path: Path) -> None:
    """Refuse an ``--output`` that is a file or lies in one, or that cannot be made."""
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"--output {path}: {part} is a file; give a folder")
    check_can_be_written(path)


def check_can_be_written(path: Path, option: str = "--output") -> None:
    """Refuse a file or folder that cannot be made, before the work is done: the nearest folder that exists decides."""
    folder = next(part for part in (path, *path.resolve().parents) if part.is_dir())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{option} {path}: no permission to write into {folder}; give another one")


def require(library: str, extra: str, what: str) -> None:
    """Raise a ValueError that names the extra to install if a library is missing."""
    if find_spec(library) is None:
        raise ValueError(f"{what} needs {library}: pip install 'fast-r2d2[{extra}]'")


def counted(number: int, noun: str) -> str:
    """Such as ``1 sentence`` and ``2 sentences``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def number_of_processes() -> int:
    """The number of processes that a launcher, such as `accelerate launch` or MPI, has started for this command."""
    names = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
    return max((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default=1)
