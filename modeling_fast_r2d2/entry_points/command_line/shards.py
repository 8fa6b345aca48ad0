"""Parse a corpus in shards. Every process parses its share, and a later run skips finished shards."""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from tqdm import tqdm

from modeling_fast_r2d2.checkpoints import find_checkpoint
from modeling_fast_r2d2.parsing.tree_parser import ParsedSentence
from modeling_fast_r2d2.text_files import checksum, hold_folder, read_record, write_aside, write_text

from .formats import as_lines
from .model import load_parser, parse_texts
from .options import counted, number_of_processes
from .texts import Text, texts_to_parse

SUFFIXES = {"brackets": "txt", "jsonl": "jsonl", "pretty": "txt"}
OF_SHARDS = re.compile(r"settings\.json|\d{6}\.(txt|jsonl|safetensors|manifest\.json)")  # names of files
# The options that decide the output. All shards in a folder have the same settings.
SETTINGS = (
    "checkpoint", "method", "text", "words", "no_keep_words", "batch_tokens", "pieces", "format", "min_confidence",
    "shard_lines", "text_column", "vectors",
)  # fmt: skip


def parse_in_shards(options: argparse.Namespace) -> None:
    """Write ``000000.txt``, ``000001.txt``, ... into the folder ``options.output``: a line per line of input, or with
    ``--text`` a line per sentence.

    The processes take the shards in turn. A shard is finished when its manifest is there, ``000000.manifest.json`` and
    so on, with checksums of its lines and of its files. A later run parses a shard again if they do not agree, and says
    why. All processes read all inputs; compared with parsing, reading takes little time.

    Args:
        options: those of ``fast-r2d2 parse``.

    Raises:
        ValueError: if the folder has shards of other inputs or settings, or if another run is writing into it.
    """
    process, processes, device = _place(options)
    with hold_folder(options.output, is_alone=processes == 1):
        _claim(options.output, _settings(options))
        parser, written, skipped = None, 0, 0
        shards = enumerate(_blocks(texts_to_parse(options), options.shard_lines))
        with tqdm(unit=" sentences", disable=process > 0 or None, file=sys.stderr) as bar:
            for number, texts in islice(shards, process, None, processes):
                shard = Shard(options.output / f"{number:06}.{SUFFIXES[options.format]}", texts, options.vectors)
                if shard.is_finished():
                    skipped += 1
                    continue
                parser = parser or load_parser(options, device)
                sentences = parse_texts(parser, texts, options)
                shard.write(sentences, options, parser.model.config.hidden_size)
                written += 1
                bar.update(sum(map(len, sentences)))
        print(f"process {process}: {counted(written, 'shard')} written, {skipped} existed already", file=sys.stderr)


def _place(options: argparse.Namespace) -> tuple[int, int, str | None]:
    """The number of this process, the number of all, and this one's device; None leaves it to the parser."""
    if number_of_processes() == 1:
        return 0, 1, None
    from accelerate import PartialState  # one process does without it

    is_on_cpu = options.device == "cpu" or not (options.device or torch.accelerator.is_available())
    state = PartialState(cpu=is_on_cpu, timeout=timedelta(days=1))  # they wait for the last one to end
    return state.process_index, state.num_processes, "cpu" if is_on_cpu else str(state.device)


class Shard:
    """The files of a shard.

    Args:
        target: the file of its trees; the others are beside it.
        texts: its input.
        with_vectors: whether it has a file of vectors.
    """

    def __init__(self, target: Path, texts: list[Text], with_vectors: bool):
        self.target, self.texts = target, texts
        self.manifest = target.with_suffix(".manifest.json")
        self.vectors = target.with_suffix(".safetensors") if with_vectors else None

    def is_finished(self) -> bool:
        """Whether its files are those that its manifest lists; what is there and does not agree is reported."""
        if not (self.manifest.exists() or self.target.exists()):
            return False
        try:
            before, now = read_record(self.manifest), self._describe()
        except (OSError, ValueError) as error:
            problem = str(error)
        else:
            differing = [name for name in now if before.get(name) != now[name]]
            if not differing:
                return True
            problem = f"{', '.join(differing)} differ from {self.manifest.name}"
        print(f"{self.target} is parsed again: {problem}", file=sys.stderr)
        return False

    def write(self, sentences: list[list[ParsedSentence]], options: argparse.Namespace, hidden_size: int) -> None:
        """Write vectors, trees and, last, the manifest. A blank text is an empty line, and its vector is 0."""
        if self.vectors:
            blank = [np.zeros(hidden_size, dtype=np.float32)]
            rows = (row for of_text in sentences for row in [np.asarray(found.vector) for found in of_text] or blank)
            content = save({"vectors": np.stack(list(rows))})
            write_aside(self.vectors, lambda path: path.write_bytes(content))
        write_text(self.target, as_lines(self.texts, sentences, options.format, options.min_confidence))
        write_text(self.manifest, json.dumps(self._describe(), indent=2) + "\n")
        for leftover in self.target.parent.glob(f".{self.target.stem}.*"):  # left by a process that was killed
            leftover.unlink(missing_ok=True)

    def _describe(self) -> dict[str, Any]:
        """What the manifest holds: the input, and size and checksum of every file."""
        files = [self.target, *([self.vectors] if self.vectors else [])]
        digest = hashlib.sha256("\n".join(text.text for text in self.texts).encode("utf-8")).hexdigest()
        return {"input": {"lines": len(self.texts), "sha256": digest}} | {
            path.name: {"bytes": path.stat().st_size, "sha256": checksum(path)} for path in files
        }


def _blocks(texts: Iterator[Text], size: int) -> Iterator[list[Text]]:
    while block := list(islice(texts, size)):
        yield block


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that decides the output: options, input files, and the content of a checkpoint in a folder."""
    files = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in options.file]
    folder = Path(find_checkpoint(options.checkpoint))
    parts = [path for path in folder.glob("*") if path.suffix in (".json", ".safetensors")]
    digests = {path.name: checksum(path) for path in sorted(parts)}
    settings = {name: getattr(options, name) for name in SETTINGS}
    if digests:  # the same folder may have several paths
        del settings["checkpoint"]
    return {"files": files, **settings, "digests": digests}


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Record the settings in the folder.

    Raises:
        ValueError: if an earlier run finished shards with other settings, or if the folder has files with the names of
            a run's that are no run's.
    """
    record = folder / "settings.json"
    # Listed before the record is looked for, since another process of this run may write it meanwhile.
    names = [path.name for path in folder.iterdir() if OF_SHARDS.fullmatch(path.name)]
    earlier = read_record(record) if record.exists() else {}
    if names and not earlier.keys() >= {"files", "digests"}:
        raise ValueError(f"{folder} has {min(names)}, which is no run's; choose another --output")
    if not any(folder.glob("*.manifest.json")):
        write_text(record, json.dumps(settings, indent=2) + "\n")  # all processes of a run write the same
        return
    differing = [name for name in settings if earlier.get(name) != settings[name]]
    if differing:
        raise ValueError(
            f"{folder} has shards of a run with different {', '.join(differing)}; choose another --output, or "
            "delete the folder"
        )
