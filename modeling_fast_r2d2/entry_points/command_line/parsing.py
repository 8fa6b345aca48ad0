"""The work of `fast-r2d2 parse`: a stream of texts becomes a stream of trees, pictures or shards."""

import argparse
import re
import sys
import time
from itertools import chain, islice

import torch
from tqdm import tqdm
from transformers.utils import logging

from modeling_fast_r2d2.parsing.tree_parser import ParsedSentence, TreeParser
from modeling_fast_r2d2.text_files import write_text
from tokenization_fast_r2d2.lines import chunks

from .formats import as_lines
from .options import counted
from .shards import parse_in_shards
from .texts import Text, texts_to_parse
from .threads import use_threads

FIRST_CHUNK, LARGEST_CHUNK = 32, 4096  # texts that are read, sorted by length and parsed together


def run(options: argparse.Namespace) -> None:
    """Parse as the options say, which are checked already."""
    logging.disable_progress_bar()
    if options.device:
        _check_device(options.device)
    if options.format == "svg":
        write_pictures(options)
    elif options.output:
        parse_in_shards(options, load_parser, parse_texts)
    else:
        stream(options)


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name} is not available: {str(error).splitlines()[0]}") from error


def load_parser(options: argparse.Namespace, device: str | None = None) -> TreeParser:
    """Load the model that the options name; ``device`` is used if they name none."""
    parser = TreeParser.from_pretrained(
        options.checkpoint,
        options.method,
        options.device or device or ("cuda" if torch.cuda.is_available() else "cpu"),
        pieces=options.pieces,
        keep_words=not options.no_keep_words,
        with_vectors=bool(getattr(options, "vectors", False)),
        batch_tokens=options.batch_tokens,
    )
    use_threads(options.threads, parser.model)
    return parser


def stream(options: argparse.Namespace) -> None:
    """Parse texts and print their trees chunk by chunk; print the speed on standard error at the end."""
    parser = load_parser(options)
    start, count = time.perf_counter(), 0
    with tqdm(unit=" sentences", delay=2, file=sys.stderr, disable=None) as bar:  # in a terminal only
        for chunk in chunks(texts_to_parse(options), FIRST_CHUNK, LARGEST_CHUNK):
            parsed = parse_texts(parser, chunk, options)
            sys.stdout.write(as_lines(chunk, parsed, options.format))
            sys.stdout.flush()
            found = sum(map(len, parsed))
            count += found
            bar.update(found)
    seconds = time.perf_counter() - start
    print(f"{counted(count, 'sentence')} in {seconds:.2f} s, {count / seconds:.0f} sentences/s", file=sys.stderr)


def parse_texts(parser: TreeParser, texts: list[Text], options: argparse.Namespace) -> list[list[ParsedSentence]]:
    """The sentences of each text: several only with ``--text``, none for a blank text."""
    given = [text.text for text in texts if not text.is_blank]
    if options.text:
        found = iter(parser.parse_texts(given, options.language))
    elif options.words:
        places = [[found.span() for found in re.finditer(r"\S+", text)] for text in given]
        words = [[text[i:j] for i, j in spans] for text, spans in zip(given, places, strict=True)]
        found = iter([sentence] for sentence in parser(words, is_split_into_words=True, word_offsets=places))
    else:
        found = iter([sentence] for sentence in parser(given))
    return [[] if text.is_blank else [_moved(sentence, text.start) for sentence in next(found)] for text in texts]


def _moved(sentence: ParsedSentence, start: int) -> ParsedSentence:
    return sentence._replace(offsets=[(first + start, end + start) for first, end in sentence.offsets])


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
        for number, sentence in enumerate(parsed):
            write_text(options.output / f"{number:06}.svg", sentence._repr_svg_())
        return
    pictures = [sentence._repr_svg_() for sentence in islice(parsed, 2)]
    if len(pictures) > 1:
        raise ValueError("an SVG file has one picture, and there are several sentences; --output names a folder")
    sys.stdout.write("".join(f"{picture}\n" for picture in pictures))
