"""The model of a command, with as many CPU threads as it is worth, and the trees that it gives to texts."""

import argparse
import os
import re

import torch
from transformers import PreTrainedModel

from modeling_fast_r2d2.parsing.tree_parser import ParsedSentence, TreeParser

from .texts import Text

SMALL = 5_000_000  # parameters


def load_parser(options: argparse.Namespace, device: str | None = None) -> TreeParser:
    """Load the model that the options of ``fast-r2d2 parse`` name; ``device`` is used if they name none."""
    parser = TreeParser.from_pretrained(
        options.checkpoint,
        options.method,
        options.device or device or ("cuda" if torch.cuda.is_available() else "cpu"),
        pieces=options.pieces,
        keep_words=not options.no_keep_words,
        with_vectors=options.vectors,
        batch_tokens=options.batch_tokens,
    )
    use_threads(options.threads, parser.model)
    return parser


def check_device(name: str) -> None:
    """Raise ValueError if there is no such device."""
    try:
        torch.zeros(1, device=name).item()  # meta has no values
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name} is not available: {str(error).splitlines()[0]}") from error


def use_threads(number: int | None, model: PreTrainedModel) -> None:
    """Set the number of threads of this process.

    The operations of a small model take microseconds. A second thread saves little of that on an idle machine, and on
    a busy one the first waits for it ten times as long.

    Args:
        number: the user's choice; None leaves it to OMP_NUM_THREADS, and without that to the size of the model.
        model: the model that will run.
    """
    if number is not None:
        torch.set_num_threads(number)
    elif "OMP_NUM_THREADS" not in os.environ and model.num_parameters() < SMALL:
        torch.set_num_threads(1)


def parse_texts(parser: TreeParser, texts: list[Text], options: argparse.Namespace) -> list[list[ParsedSentence]]:
    """The sentences of each text: several only with ``--text``, none for a blank text."""
    given = [text.text for text in texts if not text.is_blank]
    if options.text:
        found = iter(parser.parse_texts(given))
    elif options.words:
        places = [[found.span() for found in re.finditer(r"\S+", text)] for text in given]
        words = [[text[i:j] for i, j in spans] for text, spans in zip(given, places, strict=True)]
        found = iter([sentence] for sentence in parser(words, is_split_into_words=True, word_offsets=places))
    else:
        found = iter([sentence] for sentence in parser(given))
    return [[] if text.is_blank else [_moved(sentence, text.start) for sentence in next(found)] for text in texts]


def _moved(sentence: ParsedSentence, start: int) -> ParsedSentence:
    return sentence._replace(offsets=[(first + start, end + start) for first, end in sentence.offsets])
