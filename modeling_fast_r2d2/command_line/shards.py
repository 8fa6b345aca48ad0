"""Parse a corpus in shards. Every process parses its share, and a later run skips finished shards."""

import argparse
import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from tqdm import tqdm

from ..parsing.tree_parser import ParsedSentence, TreeParser
from ..text_files import read_sentences, write_aside, write_text

LINES_PER_SHARD = 100_000
SUFFIXES = {"brackets": "txt", "jsonl": "jsonl", "svg": "svg", "pretty": "txt"}
# The options that decide the output. All shards in a folder have the same settings.
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
    """Write ``000000.txt``, ``000001.txt``, ... into the folder ``options.output``, one line per line of input.

    The processes take the shards in turn. A shard appears in the folder when it is complete, and its vectors appear
    before its trees. All processes read all inputs; compared with parsing, reading takes little time.

    Args:
        options: those of ``fast-r2d2 parse``.
        load_parser: called with the options and the process's device, in a process that has a shard to parse.
        parse_lines: called with the parser, the lines of a shard and ``options.words``.
        write: turns a parsed sentence into a line.

    Raises:
        ValueError: if the folder has shards of other inputs or settings.
    """
    from accelerate import PartialState  # only this function needs it

    state = PartialState(cpu=options.device == "cpu")
    _claim(options.output, _settings(options))
    parser, written, skipped = None, 0, 0
    shards = enumerate(_blocks(read_texts(options.file, options.text_column), options.shard_lines))
    with tqdm(unit=" sentences", disable=not state.is_main_process, file=sys.stderr) as bar:
        for number, lines in islice(shards, state.process_index, None, state.num_processes):
            target = options.output / f"{number:06}.{SUFFIXES[options.format]}"
            if target.exists():
                skipped += 1
                continue
            parser = parser or load_parser(options, str(state.device))
            _write_shard(parse_lines(parser, lines, options.words), target, write, options.vectors)
            written += 1
            bar.update(len(lines))
    print(f"process {state.process_index}: {written} shards written, {skipped} existed already", file=sys.stderr)


def read_texts(paths: Iterable[Path], column: str) -> Iterator[str]:
    """Lines of text files, and rows of ``.parquet`` files. A line break within a row becomes a blank.

    Args:
        column: the column of Parquet files that has the text.

    Raises:
        ValueError: if a Parquet file is damaged or does not have the column.
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
        raise ValueError(f"{path} is not a complete Parquet file ({error})") from error
    types = dict(zip(file.schema_arrow.names, map(str, file.schema_arrow.types), strict=True))
    if types.get(column) not in ("string", "large_string"):
        raise ValueError(
            f"{path} has no text column {column!r}; --text_column must be one of "
            f"{', '.join(name for name, kind in types.items() if kind.endswith('string'))}"
        )
    for batch in file.iter_batches(columns=[column]):
        yield from (" ".join((text or "").split()) for text in batch.column(0).to_pylist())


def _blocks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while block := list(islice(lines, size)):
        yield block


def _write_shard(
    sentences: list[ParsedSentence], target: Path, write: Callable[[ParsedSentence], str], with_vectors: bool
) -> None:
    if with_vectors:
        vectors = np.stack([np.asarray(sentence.vector) for sentence in sentences])
        write_aside(target.with_suffix(".safetensors"), lambda path: path.write_bytes(save({"vectors": vectors})))
    write_text(target, "".join(write(sentence) + "\n" for sentence in sentences))
    for leftover in target.parent.glob(f".{target.stem}.*"):  # left by a process that was killed
        leftover.unlink(missing_ok=True)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that decides the output: options, input files, and the content of a checkpoint in a folder."""
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in options.file]
    parts = [path for path in Path(options.checkpoint).glob("*") if path.suffix in (".json", ".safetensors")]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(parts)}
    settings = {name: getattr(options, name) for name in SETTINGS}
    if digests:  # the same folder may have several paths
        del settings["checkpoint"]
    return {"files": files, **settings, "digests": digests}


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Record the settings in the folder, or raise a ValueError if an earlier process recorded other settings."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "settings.json"
    aside = folder / f".settings.{socket.gethostname()}.{os.getpid()}.json"
    aside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    try:
        os.link(aside, record)  # unlike a rename, this fails if another process was faster
    except FileExistsError:
        pass
    finally:
        aside.unlink(missing_ok=True)
    earlier = json.loads(record.read_text(encoding="utf-8"))
    differing = [name for name in settings if earlier.get(name) != settings[name]]
    if differing:
        raise ValueError(
            f"{folder} has shards of a run with different {', '.join(differing)}; choose another --output, or "
            "delete the folder"
        )
