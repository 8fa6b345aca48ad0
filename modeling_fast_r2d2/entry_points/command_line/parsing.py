"""The work of `fast-r2d2 parse`: a stream of texts becomes a stream of trees, pictures or shards."""

import argparse
import gc
import sys
import time
from itertools import chain, islice

from tqdm import tqdm
from transformers.utils import logging

from modeling_fast_r2d2.text_files import write_text
from tokenization_fast_r2d2.lines import chunks

from .formats import as_lines
from .model import check_device, load_parser, parse_texts
from .options import counted
from .shards import parse_in_shards
from .texts import texts_to_parse

FIRST_CHUNK, LARGEST_CHUNK = 32, 4096  # texts that are read, sorted by length and parsed together
NEW_OBJECTS = 100_000  # between searches for cycles, of which trees have none; Python's 700 cost a tenth of the time


def run(options: argparse.Namespace) -> None:
    """Parse as the options say, which are checked already."""
    logging.disable_progress_bar()
    gc.set_threshold(NEW_OBJECTS)
    if options.device:
        check_device(options.device)
    if options.format == "svg":
        write_pictures(options)
    elif options.output:
        parse_in_shards(options)
    else:
        stream(options)


def stream(options: argparse.Namespace) -> None:
    """Parse texts and print their trees chunk by chunk; print the speed on standard error at the end."""
    parser = load_parser(options)
    start, count = time.perf_counter(), 0
    with tqdm(unit=" sentences", delay=2, file=sys.stderr, disable=None) as bar:  # in a terminal only
        for chunk in chunks(texts_to_parse(options), FIRST_CHUNK, LARGEST_CHUNK):
            parsed = parse_texts(parser, chunk, options)
            sys.stdout.write(as_lines(chunk, parsed, options.format, options.min_confidence))
            sys.stdout.flush()
            found = sum(map(len, parsed))
            count += found
            bar.update(found)
    seconds = time.perf_counter() - start
    print(f"{counted(count, 'sentence')} in {seconds:.2f} s, {count / seconds:.0f} sentences/s", file=sys.stderr)


def write_pictures(options: argparse.Namespace) -> None:
    """One SVG on standard output, or ``000000.svg``, ``000001.svg``, ... in the folder ``options.output``.

    Raises:
        ValueError: if there are several sentences, and no folder.
    """
    parser = load_parser(options)
    texts = chunks(texts_to_parse(options), FIRST_CHUNK, LARGEST_CHUNK)
    parsed = (found for chunk in texts for found in chain(*parse_texts(parser, chunk, options)))
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        count = 0
        for count, sentence in enumerate(parsed, start=1):
            write_text(options.output / f"{count - 1:06}.svg", sentence.svg(options.min_confidence))
        older = [path for path in options.output.glob("*.svg") if path.stem.isdecimal() and int(path.stem) >= count]
        if older:
            more = f"{counted(len(older), 'picture')} of earlier sentences, too: {min(older).name} and on"
            print(f"{options.output} has {more}", file=sys.stderr)
        return
    pictures = [sentence.svg(options.min_confidence) for sentence in islice(parsed, 2)]
    if len(pictures) > 1:
        raise ValueError("an SVG file has one picture, and there are several sentences; --output names a folder")
    sys.stdout.write("".join(f"{picture}\n" for picture in pictures))
