"""The work of `fast-r2d2 neighbours`: an index of phrases is made or read, and searched."""

import argparse
import sys
from itertools import islice
from typing import Any

import torch
from transformers.utils import logging

from modeling_fast_r2d2.parsing.phrases import Neighbour, PhraseIndex, vector_of
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.text_files import checksum
from tokenization_fast_r2d2.lines import read_sentences

from .model import check_device, use_threads
from .options import counted

BOLD, PLAIN = "\033[1m", "\033[0m"


def run(options: argparse.Namespace) -> None:
    """Search as the options say, which are checked already."""
    logging.disable_progress_bar()
    if options.device:
        check_device(options.device)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    parser = TreeParser.from_pretrained(options.checkpoint, device=device, with_vectors=True)
    use_threads(options.threads, parser.model)
    vectors = [vector_of(parser, phrase) for phrase in options.phrases]  # a bad phrase shows before a text is encoded
    index = read_or_build(parser, options)
    in_terminal = sys.stdout.isatty()
    for phrase, vector in zip(options.phrases, vectors, strict=True):
        found = index.nearest(vector, options.count)
        print(drawn(phrase, found) if in_terminal else plain(phrase, found))


def read_or_build(parser: TreeParser, options: argparse.Namespace) -> PhraseIndex:
    """The index in the file, or a new one of the text, which is kept if there is a name for it.

    Raises:
        ValueError: if the index is of another model, or of other text than is given.
    """
    source = source_of(options)
    if options.index and options.index.exists():
        index = PhraseIndex.load(options.index)
        for name, now in source.items():
            if index.source.get(name) != now:
                raise ValueError(f"{options.index} was made with {name} {index.source.get(name)!r}, now it is {now!r}; "
                                 "delete the file, or give what it was made with")  # fmt: skip
        if not index.fits(parser):
            raise ValueError(f"{options.index} has the vectors of another model; delete the file")
        return index
    lines = islice(filter(None, read_sentences(options.file)), options.lines)
    index = PhraseIndex.build(parser, lines, options.max_words, source, sys.stderr.isatty())
    print(f"{counted(len(index), 'phrase')} of {counted(len(index.sentences), 'sentence')}", file=sys.stderr)
    if options.index:
        index.save(options.index)
    return index


def source_of(options: argparse.Namespace) -> dict[str, Any]:
    """What an index depends on besides the model; nothing if no text is given. A file may move, and not change."""
    if not options.file:
        return {}
    files = [[path.name, checksum(path)[:16]] for path in options.file]
    return {"files": files, "lines": options.lines, "max_words": options.max_words}


def drawn(phrase: str, found: list[Neighbour]) -> str:
    """For a terminal: cosines, and sentences with the phrases in bold."""
    rows = []
    for cosine, words, (first, last) in found:
        inside = BOLD + " ".join(words[first : last + 1]) + PLAIN
        rows.append(f"  {cosine:.2f}  {' '.join([*words[:first], inside, *words[last + 1 :]])}")
    return "\n".join([f"{BOLD}{phrase}{PLAIN}", *rows, ""])


def plain(phrase: str, found: list[Neighbour]) -> str:
    """A line for each, with tabs: the given phrase, the cosine, the found one and its sentence."""
    return "\n".join(
        f"{phrase}\t{neighbour.cosine:.4f}\t{neighbour.phrase}\t{' '.join(neighbour.words)}" for neighbour in found
    )
