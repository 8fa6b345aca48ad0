"""Parse sentences, one per line, and print their trees in the same order.

    fast-r2d2 parse "The cat sat on the mat"
    fast-r2d2 parse --file text.txt > trees.txt
    cat text.txt | fast-r2d2 parse - --format jsonl

With --text lines are running text, in which sentences are found. Paragraphs end at blank lines:

    fast-r2d2 parse --text --file story.txt --format jsonl > trees.jsonl

A corpus is parsed in shards, by all processes and machines that `accelerate launch` starts. The same command run again
resumes the work:

    fast-r2d2 parse --file corpus/*.txt.gz --output trees/
    accelerate launch --no_python fast-r2d2 parse --file corpus/*.txt.gz --output trees/

On a machine without a GPU, `torchrun --nproc_per_node 2 --no_python` starts two processes; accelerate starts one.
"""

import argparse
import sys
from pathlib import Path

from . import options as shared
from .formats import FORMATS

LINES_PER_SHARD, LONGEST_LINE = 100_000, 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("sentences", nargs="*", help="sentences; - reads one per line from standard input")
    add("--file", type=Path, nargs="+",
        help="text files, plain or .gz, one sentence per line; with --output also .parquet")  # fmt: skip
    add(
        "--checkpoint", default=shared.DEFAULT_CHECKPOINT, help="folder, Hub name or bundled name; default: %(default)s"
    )
    add("--method", choices=shared.METHODS, default="parser", help="parser: the parser's trees (default); chart: the "
        "best trees of the chart; minimum_risk: those that both agree on most; heuristic: R2D2")  # fmt: skip
    add("--no_keep_words", action="store_true", help="allow trees in which a word is no constituent")
    add("--batch_tokens", type=int, default=8192, help="tokens that are parsed together; default: %(default)s")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")
    shared.add_threads_argument(parser)
    add("--text", action="store_true", help="find the sentences of running text, in any language")
    add("--words", action="store_true",
        help="each line is split into words at blanks, as in a treebank, and every word is a leaf")  # fmt: skip
    add("--pieces", action="store_true", help="give trees over word pieces instead of words")
    add("--min_confidence", type=float, default=0.0, help="leave out constituents of which the parser is less sure, so "
        "that trees are flat there; 0 to 1, default: %(default)s")  # fmt: skip
    add("--format", choices=[*FORMATS, "svg"], help="pretty draws trees; svg is a picture; the others print one "
        "line per sentence. Default: pretty in a terminal, else brackets")  # fmt: skip
    add("--max_characters", type=int, default=LONGEST_LINE,
        help="how long a line of a file may be, since time and memory grow with it; default: %(default)s")  # fmt: skip
    add("--output", type=Path, help="folder for the shards of a corpus, or for one picture per sentence")
    group = parser.add_argument_group("parse a corpus in shards; finished shards are not parsed again")
    group.add_argument(
        "--shard_lines", type=int, default=LINES_PER_SHARD, help="lines or paragraphs per shard; default: %(default)s"
    )
    group.add_argument("--text_column", default="text", help="column of .parquet files; default: %(default)s")
    group.add_argument("--vectors", action="store_true", help="also store the root vectors, as .safetensors")


def run(options: argparse.Namespace) -> None:
    options.format = options.format or ("pretty" if sys.stdout.isatty() and not options.output else "brackets")
    _check(options)
    from . import parsing  # the library, which takes seconds to import

    parsing.run(options)


def _check(options: argparse.Namespace) -> None:
    """Refuse what does not fit together or is missing, before the library is imported."""
    if bool(options.file) == bool(options.sentences):
        raise ValueError("give either sentences or --file; - reads standard input")
    if "-" in options.sentences and len(options.sentences) > 1:
        raise ValueError("- reads standard input; give it alone")
    if options.text and options.words:
        raise ValueError("--text finds sentences and their words, --words takes words as given; give one")
    if options.output and not options.file and options.format != "svg":
        raise ValueError("--output needs --file")
    if options.output:
        shared.check_can_be_folder(options.output)
    if options.vectors and (not options.output or options.format == "svg"):
        raise ValueError("--vectors needs --output, and a --format other than svg")
    if not 0 <= options.min_confidence <= 1:
        raise ValueError(f"--min_confidence must be from 0 to 1, got {options.min_confidence}")
    for name in ("shard_lines", "batch_tokens", "max_characters"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} must be >= 1, got {getattr(options, name)}")
    shared.check_model_options([options.checkpoint], options.threads)
    _check_files(options)
    if options.output and shared.number_of_processes() > 1:
        shared.require("accelerate", "train", "parsing with several processes")


def _check_files(options: argparse.Namespace) -> None:
    for path in options.file or []:
        if not path.exists():
            raise ValueError(f"--file {path} does not exist")
        if options.output and options.format != "svg" and not path.is_file():
            raise ValueError(f"--file {path} is no file; --output needs files, which it can read again")
        if path.suffix == ".parquet":
            if not options.output:
                raise ValueError(f"--file {path}: Parquet files need --output")
            shared.require("pyarrow", "train", f"--file {path}")
