"""Parse sentences, one per line, and print their trees in the same order.

    fast-r2d2 parse "The cat sat on the mat"
    fast-r2d2 parse --file text.txt > trees.txt
    cat text.txt | fast-r2d2 parse - --format jsonl

A corpus is parsed in shards, by all processes and machines that `accelerate launch` starts. The same command run again
resumes the work:

    accelerate launch --no_python fast-r2d2 parse --file corpus/*.txt.gz --output trees/
"""

import argparse
import io
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers.utils import logging

from .. import bundled_checkpoint
from ..parsing.tree_parser import METHODS, ParsedSentence, TreeParser
from ..text_files import decode_lines, read_sentences
from .shards import LINES_PER_SHARD, parse_in_shards

FIRST_CHUNK, LARGEST_CHUNK = 32, 4096  # lines that are read, sorted by length and parsed together


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("sentences", nargs="*", help="sentences; - reads one per line from standard input")
    add("--file", type=Path, nargs="+",
        help="text files, plain or .gz, one sentence per line; with --output also .parquet")  # fmt: skip
    add_model_arguments(parser)
    add("--words", action="store_true",
        help="each line is split into words at blanks, as in a treebank, and every word is a leaf")  # fmt: skip
    add("--pieces", action="store_true", help="give trees over word pieces instead of words")
    add("--format", choices=list(FORMATS), help="pretty draws trees; the others print one line per sentence. "
        "Default: pretty in a terminal, else brackets")  # fmt: skip
    group = parser.add_argument_group("parse a corpus in shards")
    group.add_argument("--output", type=Path, help="folder for the shards; finished shards are not parsed again")
    group.add_argument("--shard_lines", type=int, default=LINES_PER_SHARD, help="lines per shard; default: %(default)s")
    group.add_argument("--text_column", default="text", help="column of .parquet files; default: %(default)s")
    group.add_argument("--vectors", action="store_true", help="also store the root vectors, as .safetensors")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a model and tell it how to parse."""
    add = parser.add_argument
    add("--checkpoint", default=bundled_checkpoint(), help="folder, Hub name or bundled name; default: fast-r2d2-tiny")
    add("--method", choices=list(METHODS), default="parser", help="parser: the parser's trees (default); chart: the "
        "best trees of the chart; minimum_risk: trees of minimum risk under the chart; heuristic: R2D2")  # fmt: skip
    add("--no_keep_words", action="store_true", help="allow trees in which a word is no constituent")
    add("--batch_tokens", type=int, default=8192, help="tokens that are parsed together; default: %(default)s")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    _check(options)
    logging.disable_progress_bar()
    options.format = options.format or ("pretty" if sys.stdout.isatty() and not options.output else "brackets")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    if options.output:
        parse_in_shards(options, load_parser, parse_lines, FORMATS[options.format])
    else:
        stream(load_parser(options), lines_to_parse(options), FORMATS[options.format], options.words)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not fit together, before a model is loaded."""
    if bool(options.file) == bool(options.sentences):
        raise ValueError("give either sentences or --file; - reads standard input")
    if options.output and not options.file:
        raise ValueError("--output needs --file")
    if options.vectors and not options.output:
        raise ValueError("--vectors needs --output")
    if options.device:
        _check_device(options.device)
    if options.shard_lines < 1:
        raise ValueError(f"--shard_lines must be >= 1, got {options.shard_lines}")
    for path in options.file or []:
        if not path.exists():
            raise ValueError(f"--file {path} does not exist")
        if options.output and not path.is_file():
            raise ValueError(f"--file {path} is no file; --output needs files, which it can read again")
        if path.suffix == ".parquet" and not options.output:
            raise ValueError(f"--file {path}: Parquet files need --output")


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name} is not available: {str(error).splitlines()[0]}") from error


def load_parser(options: argparse.Namespace, device: str | None = None) -> TreeParser:
    """Load the model that the options name; ``device`` is used if they name none."""
    return TreeParser.from_pretrained(
        options.checkpoint,
        options.method,
        options.device or device or ("cuda" if torch.cuda.is_available() else "cpu"),
        pieces=options.pieces,
        keep_words=not options.no_keep_words,
        with_vectors=bool(getattr(options, "vectors", False)),
        batch_tokens=options.batch_tokens,
    )


def lines_to_parse(options: argparse.Namespace) -> Iterator[str]:
    """The sentences: from files, from standard input or from the command line."""
    if options.file:
        return read_sentences(options.file)
    if options.sentences == ["-"]:
        return (line.strip() for line in decode_lines(sys.stdin.buffer, "standard input"))
    return iter(options.sentences)


def stream(parser: TreeParser, lines: Iterable[str], write: Callable[[ParsedSentence], str], are_words: bool) -> None:
    """Parse lines and print their trees chunk by chunk; print the speed on standard error at the end."""
    start, count = time.perf_counter(), 0
    with tqdm(unit=" sentences", delay=2, file=sys.stderr) as bar:
        for chunk in chunks(lines):
            sys.stdout.write("".join(write(parsed) + "\n" for parsed in parse_lines(parser, chunk, are_words)))
            sys.stdout.flush()
            count += len(chunk)
            bar.update(len(chunk))
    seconds = time.perf_counter() - start
    print(f"{count} sentences in {seconds:.2f} s, {count / seconds:.0f} sentences/s", file=sys.stderr)


def parse_lines(parser: TreeParser, lines: list[str], are_words: bool) -> list[ParsedSentence]:
    """Parse lines of text, or lines of words with blanks between them if ``are_words``."""
    return parser([line.split() for line in lines], is_split_into_words=True) if are_words else parser(lines)


def chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lists of lines. The first lists are short, so that the first trees appear soon."""
    chunk: list[str] = []
    size = FIRST_CHUNK
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk, size = [], min(4 * size, LARGEST_CHUNK)
    if chunk:
        yield chunk


def as_brackets(parsed: ParsedSentence) -> str:
    """The tree in brackets."""
    return parsed.tree.brackets(parsed.leaves)


def as_json(parsed: ParsedSentence) -> str:
    """A JSON object with leaves, brackets, spans and split scores."""
    row = {
        "leaves": parsed.leaves,
        "brackets": as_brackets(parsed),
        "spans": parsed.tree.spans,
        "split_scores": [round(float(score), 4) for score in parsed.split_scores],
    }
    return json.dumps(row, ensure_ascii=False)


def as_drawing(parsed: ParsedSentence) -> str:
    """The drawing of the tree, then its brackets."""
    return f"{parsed.draw()}\n\n{as_brackets(parsed)}\n"


def as_svg(parsed: ParsedSentence) -> str:
    """The picture of the tree, on one line."""
    return parsed._repr_svg_().replace("\n", "")


FORMATS = {"brackets": as_brackets, "jsonl": as_json, "pretty": as_drawing, "svg": as_svg}
