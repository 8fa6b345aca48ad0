"""A parser as nltk has them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from nltk import Tree
from nltk.parse.api import ParserI

from ..words import tokens_with_pieces
from .pretokenized import check_takes_tokens, parse_tokens
from .tree_parser import TreeParser


class FastR2D2NltkParser(ParserI):
    """Gives each sentence one binary `nltk.Tree`, whose constituents are all called ``X``; there is no grammar.

    ``parse`` and the other methods that `ParserI` derives from `parse_sents` work as with any nltk parser.
    nltk's methods recurse: a sentence of a thousand tokens may need a higher ``sys.setrecursionlimit``.

    Args:
        chunk_size: sentences read before any is parsed.

    Raises:
        ValueError: for a parser of word pieces, or a ``chunk_size`` below 1.
    """

    def __init__(self, parser: TreeParser, chunk_size: int = 256):
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be >= 1, got {chunk_size}")
        check_takes_tokens(parser)
        self.parser, self.chunk_size = parser, chunk_size

    @classmethod
    def from_pretrained(cls, checkpoint: str, chunk_size: int = 256, **options) -> "FastR2D2NltkParser":
        """From a folder or a Hub name; options as of `TreeParser.from_pretrained`."""
        return cls(TreeParser.from_pretrained(checkpoint, **options), chunk_size)

    def parse_sents(self, sents: Iterable[Sequence[str]]) -> Iterator[Iterator[Tree]]:
        """An iterator over one tree for each sentence, over none for a sentence without tokens; see `parse_tokens`."""
        for chunk in _chunks(sents, self.chunk_size):
            trees = iter(parse_tokens(self.parser, [tokens for tokens in chunk if len(tokens)]))
            for tokens in chunk:
                yield iter([next(trees).to_nltk(tokens)] if len(tokens) else [])

    def raw_parse_sents(self, texts: Iterable[str]) -> Iterator[Iterator[Tree]]:
        """The same for texts, over the tokenizer's words; a text without any has no tree."""
        for chunk in _chunks(texts, self.chunk_size):
            with_words = tokens_with_pieces(self.parser.tokenizer, [chunk])
            parsed = iter(self.parser([text for text in chunk if text in with_words]))
            for text in chunk:
                found = [next(parsed)] if text in with_words else []
                yield iter([sentence.tree.to_nltk(sentence.leaves) for sentence in found])

    def raw_parse(self, text: str) -> Iterator[Tree]:
        """An iterator over the one tree of a text."""
        return next(self.raw_parse_sents([text]))


def _chunks(items: Iterable, size: int) -> Iterator[list]:
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


__all__ = ["FastR2D2NltkParser"]
