"""Find phrases of a text that say something like the given ones.

    fast-r2d2 neighbours "the old bridge" "won the election" --file corpus.txt

Phrases are constituents of the text's trees, compared by their vectors. With --index they are kept in a file, and the
next search takes a second:

    fast-r2d2 neighbours "the old bridge" --file corpus.txt.gz --index corpus.phrases
    fast-r2d2 neighbours "a famous singer" --index corpus.phrases
"""

import argparse
from pathlib import Path

from .options import VECTORS_CHECKPOINT, add_threads_argument, check_can_be_written, check_model_options

MOST_LINES, MOST_WORDS = 20_000, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("phrases", nargs="+", help="the phrases to look for")
    add("--file", type=Path, nargs="+", help="text files, plain or .gz, one sentence per line")
    add("--index", type=Path, help="file that keeps the phrases of the text; it is made if it is not there")
    add("--count", type=int, default=10, help="phrases that are shown; default: %(default)s")
    add("--lines", type=int, default=MOST_LINES, help="read at most so many lines with text; default: %(default)s")
    add("--max_words", type=int, default=MOST_WORDS, help="words of the longest phrases; default: %(default)s")
    add("--checkpoint", default=VECTORS_CHECKPOINT, help="folder, Hub name or bundled name; default: %(default)s")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")
    add_threads_argument(parser)


def run(options: argparse.Namespace) -> None:
    for name, least in (("count", 1), ("lines", 1), ("max_words", 2)):
        if getattr(options, name) < least:
            raise ValueError(f"--{name} must be >= {least}, got {getattr(options, name)}")
    for path in options.file or []:
        if not path.is_file():
            raise ValueError(f"--file {path} is no file")
    if not options.file and not (options.index and options.index.exists()):
        raise ValueError("give --file, the text to look in, or an --index that was made before")
    if not options.file and (options.lines, options.max_words) != (MOST_LINES, MOST_WORDS):
        raise ValueError("--lines and --max_words are for the making of an index, which this one was made with; give "
                         "--file, too, or leave them out")  # fmt: skip
    if options.index and (options.index.is_dir() or not options.index.absolute().parent.is_dir()):
        raise ValueError(f"--index {options.index} must be a file, in a folder that exists")
    if options.index and not options.index.exists():
        check_can_be_written(options.index, "--index")
    check_model_options([options.checkpoint], options.threads)
    from . import searching  # the library, which takes seconds to import

    searching.run(options)
