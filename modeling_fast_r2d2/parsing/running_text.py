"""Running text: where its sentences and words are, by spaCy's rules.

spaCy is well kept, knows the rules of some 70 languages, and gives sentences and words with their characters at once.
Its words are a treebank's: ``do n't`` are two, while ``1,234.56``, ``C++``, URLs and e-mail addresses are not split.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from ..trees import Span
from ..words import checked_sentences

if TYPE_CHECKING:
    from spacy import Language

Sentence = tuple[list[str], list[Span]]  # words, and for each its first character and the one after its last

# Lines up to a blank one; a sentence may go on in the next line, but not in the next paragraph.
PARAGRAPH = re.compile(r"\S.*?(?=\n\s*\n|\Z)", re.DOTALL)


def split_texts(texts: Sequence[str], language: str = "en") -> list[list[Sentence]]:
    """The sentences of texts.

    Args:
        texts: of any length.
        language: the code of the language for spaCy, such as ``"en"``, ``"zh"`` or ``"xx"`` for any.

    Returns:
        For each text its sentences. A sentence is its words and their offsets in the text: the first character of each
        word, and the one after its last. A text without words has no sentences.

    Raises:
        ImportError: if spaCy is not installed.
        ValueError: as `checked_sentences` raises it, or if spaCy does not know the language.
    """
    rules = _rules(language)
    return [list(_split(rules, text)) for text in checked_sentences(texts)]


def _split(rules: "Language", text: str) -> Iterator[Sentence]:
    for paragraph in PARAGRAPH.finditer(text):
        start = paragraph.start()
        for sentence in rules(paragraph[0]).sents:
            words = [token for token in sentence if not token.is_space]
            if words:
                offsets = [(start + word.idx, start + word.idx + len(word)) for word in words]
                yield [word.text for word in words], offsets


@cache
def _rules(language: str) -> "Language":
    try:
        import spacy
    except ImportError as error:
        raise ImportError("splitting text into sentences needs spaCy: pip install 'fast-r2d2[spacy]'") from error
    try:
        rules = spacy.blank(language)
    except ImportError as error:  # spaCy's error for a language that it does not know, or that needs a library
        raise ValueError(f"spaCy has no rules for language {language!r}: {str(error).splitlines()[0]}") from error
    rules.add_pipe("sentencizer")
    rules.max_length = 2**31 - 1  # spaCy's limit is meant for components that need memory
    return rules


__all__ = ["Sentence", "split_texts"]
