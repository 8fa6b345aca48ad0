"""Fast-R2D2 as an NLTK parser."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nltk import Tree
from nltk.parse.api import ParserI

from tokenization_fast_r2d2.lines import chunks
from tokenization_fast_r2d2.trees import check_min_confidence
from tokenization_fast_r2d2.words import checked_sentences, tokens_with_pieces

from ..embedding import check_limit
from .pretokenized import check_takes_tokens, parse_tokens
from .tree_parser import TreeParser


class FastR2D2NltkParser(ParserI):
    """Gives each sentence one `nltk.Tree`, which is binary unless ``min_confidence`` makes it flat. There is no
    grammar, and the label of every constituent is ``X``.

    ``parse`` and the other methods that `ParserI` derives from `parse_sents` work as with any NLTK parser.
    A sentence that is no list of strings (or, for the methods with ``raw``, no string) is a ValueError that names its
    row, once the sentences before it are parsed.
    The methods of NLTK's trees recurse: a sentence of a thousand tokens may need a higher ``sys.setrecursionlimit``.

    Args:
        parser: a parser of words.
        chunk_size: the number of sentences that are parsed together.
        min_confidence: constituents of which the parser is less sure are left out (see `ParsedSentence.flat`).

    Raises:
        ValueError: if the parser works on word pieces, if ``chunk_size`` is below 1, or if ``min_confidence`` is not
            from 0 to 1.
    """

    def __init__(self, parser: TreeParser, chunk_size: int = 256, min_confidence: float = 0.0):
        check_limit("chunk_size", chunk_size)
        check_takes_tokens(parser)
        self.parser, self.chunk_size, self.min_confidence = parser, chunk_size, check_min_confidence(min_confidence)

    @classmethod
    def from_pretrained(
        cls, checkpoint: str = "fast-r2d2-tiny", chunk_size: int = 256, min_confidence: float = 0.0, **options: Any
    ) -> "FastR2D2NltkParser":
        """Load a parser; ``checkpoint`` and ``options`` are those of `TreeParser.from_pretrained`."""
        return cls(TreeParser.from_pretrained(checkpoint, **options), chunk_size, min_confidence)

    def parse_sents(self, sents: Iterable[Sequence[str]]) -> Iterator[Iterator[Tree]]:
        """For each sentence, an iterator over its one tree (see `parse_tokens`); over none if there are no tokens."""
        for chunk in chunks(checked_sentences(sents, is_split_into_words=True), self.chunk_size):
            parsed = iter(parse_tokens(self.parser, [tokens for tokens in chunk if len(tokens)]))
            for tokens in chunk:
                found = [next(parsed)] if len(tokens) else []
                yield iter([tree.flat(sure, self.min_confidence).to_nltk(tokens) for tree, sure in found])

    def raw_parse_sents(self, texts: Iterable[str]) -> Iterator[Iterator[Tree]]:
        """For each text, an iterator over its one tree, whose leaves are the tokenizer's words; over none for a text
        without words."""
        for chunk in chunks(checked_sentences(texts), self.chunk_size):
            with_words = tokens_with_pieces(self.parser.tokenizer, [chunk])
            parsed = iter(self.parser([text for text in chunk if text in with_words]))
            for text in chunk:
                found = [next(parsed)] if text in with_words else []
                yield iter([sentence.flat(self.min_confidence).to_nltk(sentence.leaves) for sentence in found])

    def raw_parse(self, text: str) -> Iterator[Tree]:
        """An iterator over the one tree of a text; over none for a text without words."""
        return next(self.raw_parse_sents([text]))
