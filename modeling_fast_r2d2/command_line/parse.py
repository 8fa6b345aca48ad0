"""Parse sentences, a line each, and print their trees in the same order, a line each.

    fast-r2d2 parse "The cat sat on the mat"
    fast-r2d2 parse --file text.txt > trees.txt
    cat text.txt | fast-r2d2 parse - --format jsonl

Or a corpus, in shards, by as many processes and machines as `accelerate launch` starts; run again, it goes on:

    accelerate launch --no_python fast-r2d2 parse --file corpus/*.txt.gz --output trees/
"""

import argparse
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
from .shards import LINES_IN_A_SHARD, parse_in_shards

LARGEST_CHUNK = 4096  # lines read, sorted by length and parsed together


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("sentences", nargs="*", help="sentences; - reads standard input, a sentence a line")
    add("--file", type=Path, nargs="+", help="text files, plain or .gz, a sentence a line; with --output also .parquet")
    add_model_arguments(parser)
    add("--words", action="store_true", help="lines are words already, with blanks between them, as a treebank's: each "
        "is a leaf, whatever the tokenizer would make of it")  # fmt: skip
    add("--pieces", action="store_true", help="trees over word pieces, not words")
    add("--format", choices=list(FORMATS), help="brackets, JSON, SVG: a line a sentence; pretty: drawn. By default "
        "pretty in a terminal, else brackets")  # fmt: skip
    group = parser.add_argument_group("a corpus, in shards")
    group.add_argument("--output", type=Path, help="folder for the shards; what is finished there is not done again")
    group.add_argument("--shard_lines", type=int, default=LINES_IN_A_SHARD, help="lines of a shard")
    group.add_argument("--text_column", default="text", help="of .parquet files")
    group.add_argument("--vectors", action="store_true", help="also store the vectors of the roots, .safetensors")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of all commands that parse."""
    add = parser.add_argument
    add("--checkpoint", default=bundled_checkpoint(), help="folder, Hub name or bundled name; default: fast-r2d2-tiny")
    add("--method", choices=list(METHODS), default="parser",
        help="whose trees: the parser's; the best of the chart; of minimum risk under the chart; R2D2's")  # fmt: skip
    add("--no_keep_words", action="store_true", help="let the parser split words, too")
    add("--batch_tokens", type=int, default=8192, help="tokens parsed at once")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")


def run(options: argparse.Namespace) -> None:
    if bool(options.file) == bool(options.sentences):
        raise ValueError("give sentences, or --file; - reads standard input")
    if options.output and not options.file:
        raise ValueError("--output takes the texts of --file")
    if options.vectors and not options.output:
        raise ValueError("--vectors are stored with --output alone")
    if options.device:
        _check_device(options.device)
    if options.shard_lines < 1:
        raise ValueError(f"--shard_lines must be >= 1, got {options.shard_lines}")
    for path in options.file or []:
        if not path.is_file():
            raise ValueError(f"--file {path} is not there")
        if path.suffix == ".parquet" and not options.output:
            raise ValueError(f"--file {path}: Parquet is read with --output alone")
    logging.disable_progress_bar()
    options.format = options.format or ("pretty" if sys.stdout.isatty() and not options.output else "brackets")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    if options.output:
        parse_in_shards(options, load_parser, parse_lines, FORMATS[options.format])
    else:
        stream(load_parser(options), lines_to_parse(options), FORMATS[options.format], options.words)


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name} is not there: {str(error).splitlines()[0]}") from error


def load_parser(options: argparse.Namespace, device: str | None = None) -> TreeParser:
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
    if options.file:
        return read_sentences(options.file)
    if options.sentences == ["-"]:
        return (line.strip() for line in decode_lines(sys.stdin.buffer, "standard input"))
    return iter(options.sentences)


def stream(parser: TreeParser, lines: Iterable[str], write: Callable[[ParsedSentence], str], are_words: bool) -> None:
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
    """Trees of lines of text, or of words with blanks between them."""
    return parser([line.split() for line in lines], is_split_into_words=True) if are_words else parser(lines)


def chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lists of lines: short ones at first, so that something is to be seen at once."""
    chunk, size = [], 32
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk, size = [], min(4 * size, LARGEST_CHUNK)
    if chunk:
        yield chunk


def as_brackets(parsed: ParsedSentence) -> str:
    return parsed.tree.brackets(parsed.leaves)


def as_json(parsed: ParsedSentence) -> str:
    row = {
        "leaves": parsed.leaves,
        "brackets": as_brackets(parsed),
        "spans": parsed.tree.spans,
        "split_scores": [round(float(score), 4) for score in parsed.split_scores],
    }
    return json.dumps(row, ensure_ascii=False)


def as_drawing(parsed: ParsedSentence) -> str:
    return f"{parsed.draw()}\n\n{as_brackets(parsed)}\n"


def as_svg(parsed: ParsedSentence) -> str:
    return parsed._repr_svg_().replace("\n", "")


FORMATS = {"brackets": as_brackets, "jsonl": as_json, "pretty": as_drawing, "svg": as_svg}
