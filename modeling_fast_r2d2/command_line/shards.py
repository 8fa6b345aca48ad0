"""A corpus in shards: every process parses its share of them, and what is finished is not done again."""

import argparse
import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from safetensors.numpy import save
from tqdm import tqdm

from ..parsing.tree_parser import ParsedSentence, TreeParser
from ..text_files import read_sentences, write_aside, write_text

LINES_IN_A_SHARD = 100_000
SUFFIXES = {"brackets": "txt", "jsonl": "jsonl", "svg": "svg", "pretty": "txt"}
# What decides the output; a folder holds the shards of one such choice.
SETTINGS = (
    "checkpoint", "method", "words", "no_keep_words", "batch_tokens", "pieces", "format", "shard_lines",
    "text_column", "vectors",
)  # fmt: skip


def parse_in_shards(
    options: argparse.Namespace,
    load_parser: Callable[[argparse.Namespace, str], TreeParser],
    parse_lines: Callable[[TreeParser, list[str], bool], list[ParsedSentence]],
    write: Callable[[ParsedSentence], str],
) -> None:
    """Write ``000000.txt`` and so on into the folder ``options.output``, as many lines as the inputs have.

    Shards are dealt out to the processes in turn. Each is written aside and renamed, its vectors before its trees. All
    processes read all inputs, which takes a small part of the time of parsing them.

    Raises:
        ValueError: if the folder has shards of other inputs or settings.
    """
    from accelerate import PartialState  # needed here alone

    state = PartialState(cpu=options.device == "cpu")
    _claim(options.output, _settings(options))
    parser, done, skipped = None, 0, 0
    is_quiet = not state.is_main_process
    with tqdm(unit=" sentences", disable=is_quiet, file=sys.stderr) as bar:
        for number, lines in enumerate(_blocks(read_texts(options.file, options.text_column), options.shard_lines)):
            if number % state.num_processes != state.process_index:
                continue
            target = options.output / f"{number:06}.{SUFFIXES[options.format]}"
            if target.exists():
                skipped += 1
                continue
            parser = parser or load_parser(options, str(state.device))
            _write_shard(parse_lines(parser, lines, options.words), target, write, options.vectors)
            done += 1
            bar.update(len(lines))
    print(f"process {state.process_index}: {done} shards written, {skipped} were there", file=sys.stderr)


def read_texts(paths: Iterable[Path], column: str) -> Iterator[str]:
    """Lines of text files, rows of ``.parquet`` files; a line break within a row becomes a blank.

    Raises:
        ValueError: for a Parquet file without the column.
    """
    for path in paths:
        if path.suffix != ".parquet":
            yield from read_sentences(path)
            continue
        yield from _read_parquet(path, column)


def _read_parquet(path: Path, column: str) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is no whole Parquet file ({error})") from error
    types = dict(zip(file.schema_arrow.names, map(str, file.schema_arrow.types), strict=True))
    if types.get(column) not in ("string", "large_string"):
        raise ValueError(
            f"{path} has no column {column!r} of text; --text_column must be one of "
            f"{', '.join(name for name, kind in types.items() if kind.endswith('string'))}"
        )
    for batch in file.iter_batches(columns=[column]):
        yield from (" ".join((text or "").split()) for text in batch.column(0).to_pylist())


def _blocks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while block := list(islice(lines, size)):
        yield block


def _write_shard(sentences: list[ParsedSentence], target: Path, write, with_vectors: bool) -> None:
    if with_vectors:
        vectors = np.stack([sentence.vector for sentence in sentences])
        write_aside(target.with_suffix(".safetensors"), lambda path: path.write_bytes(save({"vectors": vectors})))
    write_text(target, "".join(write(sentence) + "\n" for sentence in sentences))
    for leftover in target.parent.glob(f".{target.stem}.*"):  # of a process that was killed
        leftover.unlink(missing_ok=True)


def _settings(options: argparse.Namespace) -> dict:
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in options.file]
    parts = [path for path in Path(options.checkpoint).glob("*") if path.suffix in (".json", ".safetensors")]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(parts)}
    settings = {name: getattr(options, name) for name in SETTINGS}
    if digests:  # a folder may be called by several names
        del settings["checkpoint"]
    return {"files": files, **settings, "digests": digests}


def _claim(folder: Path, settings: dict) -> None:
    """The first process writes down the settings; the others, and later runs, must have the same."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "settings.json"
    aside = folder / f".settings.{socket.gethostname()}.{os.getpid()}.json"
    aside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    try:
        os.link(aside, record)  # fails if it is there, whoever was first
    except FileExistsError:
        pass
    finally:
        aside.unlink(missing_ok=True)
    earlier = json.loads(record.read_text(encoding="utf-8"))
    differing = [name for name in settings if earlier.get(name) != settings[name]]
    if differing:
        raise ValueError(
            f"{folder} has shards of another run, with other {', '.join(differing)}; choose another --output, or "
            "delete it"
        )
