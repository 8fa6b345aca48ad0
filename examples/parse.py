"""Parse sentences: draw their trees and print them in brackets.

    python examples/parse.py                                    # ten sentences
    python examples/parse.py "The cat sat on the mat."
    python examples/parse.py --file text.txt --no-drawing       # one sentence a line
    cat text.txt | python examples/parse.py -                   # standard input

Runs offline on the bundled checkpoint; a million-line file needs no more memory than its first thousand lines.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from tqdm import tqdm
from transformers import AutoTokenizer
from transformers.utils import logging

from modeling_fast_r2d2 import BinaryTree, FastR2D2ForConstituencyParsing, FastR2D2Model, bundled_checkpoint
from tokenization_fast_r2d2 import DataCollatorForFastR2D2, encode_sentences, read_sentences

LINES_AT_ONCE = 1000  # read, sorted by length and parsed together


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("sentences", nargs="*", help="sentences; - reads standard input, a sentence a line")
    add("--file", type=Path, help="text file, plain or .gz, a sentence a line")
    add("--checkpoint", default=bundled_checkpoint(), help="folder or Hub name; default: the bundled fast-r2d2-tiny")
    add("--encoding", choices=["forced", "chart", "heuristic"], default="forced",
        help="whose tree: the parser's (forced encoding follows it; the default), the best of the pruned chart, or "
             "R2D2's")  # fmt: skip
    add("--pieces", action="store_true", help="trees over word pieces, not words")
    add("--no-drawing", action="store_true", help="brackets only")
    add("--batch-size", type=int, default=32)
    options = parser.parse_args(arguments)
    if options.batch_size < 1:
        parser.error(f"--batch-size must be >= 1, got {options.batch_size}")
    if options.file and options.sentences:
        parser.error("give sentences or --file, not both")
    if options.file and not options.file.is_file():
        parser.error(f"--file {options.file} is not there")
    return options


def sentences_to_parse(options: argparse.Namespace) -> Iterator[str]:
    if options.file:
        return read_sentences(options.file)
    if options.sentences == ["-"]:
        return (line.strip() for line in sys.stdin)
    if options.sentences:
        return iter(options.sentences)
    return read_sentences(Path(__file__).with_name("sentences.txt"))


class TreeParser:
    """A tokenizer and a model: texts to trees with their leaves."""

    def __init__(self, checkpoint: str, encoding: str = "forced", pieces: bool = False, batch_size: int = 32):
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        # The tree of forced encoding is the parser's, and takes no encoder to find.
        is_forced = encoding == "forced"
        model_class = FastR2D2ForConstituencyParsing if is_forced else FastR2D2Model
        self.model = model_class.from_pretrained(checkpoint).eval()
        self.arguments = {} if is_forced else {"encoding": encoding}
        self.collate = DataCollatorForFastR2D2(self.tokenizer)
        self.pieces, self.batch_size = pieces, batch_size

    def __call__(self, texts: list[str]) -> list[tuple[BinaryTree, list[str]]]:
        """Trees and leaves in the order of the texts; like lengths are parsed together."""
        encoded = encode_sentences(self.tokenizer, texts)
        order = sorted(range(len(texts)), key=lambda row: len(encoded["input_ids"][row]))
        results = [None] * len(texts)
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, spans in zip(rows, self._spans(encoded, rows), strict=True):
                tree = BinaryTree.from_spans(spans)
                if self.pieces:
                    results[row] = tree, self.tokenizer.convert_ids_to_tokens(encoded["input_ids"][row])
                else:
                    results[row] = tree.to_words(encoded["word_ids"][row]), encoded["words"][row]
        return results

    @torch.inference_mode()
    def _spans(self, encoded: dict[str, list], rows: list[int]) -> torch.Tensor:
        features = [{key: encoded[key][row] for key in ("input_ids", "atom_spans")} for row in rows]
        return self.model(**self.collate(features), **self.arguments).spans


def chunks(sentences: Iterable[str]) -> Iterator[list[str]]:
    """Lists of sentences: short ones at first, so that something is to be seen at once."""
    sentences, size = iter(sentences), 32
    while chunk := list(itertools.islice(sentences, size)):
        yield chunk
        size = LINES_AT_ONCE


def print_trees(trees: list[tuple[BinaryTree, list[str]]], drawing: bool) -> None:
    for tree, leaves in trees:
        if drawing:
            print(tree.draw(leaves), end="\n\n")
        print(tree.brackets(leaves), end="\n\n" if drawing else "\n")


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    logging.disable_progress_bar()
    parser = TreeParser(options.checkpoint, options.encoding, options.pieces, options.batch_size)
    start, count = time.perf_counter(), 0
    with tqdm(unit=" sentences", delay=2, file=sys.stderr) as bar:
        for chunk in chunks(sentences_to_parse(options)):
            print_trees(parser(chunk), not options.no_drawing)
            count += len(chunk)
            bar.update(len(chunk))
    seconds = time.perf_counter() - start
    print(f"{count} sentences in {seconds:.2f} s, {count / seconds:.0f} sentences/s", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # the reader, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
