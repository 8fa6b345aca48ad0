"""Running text: where its sentences are, by spaCy's rules, and the words of each, as everywhere else.

spaCy is well kept, and knows the abbreviations of some 70 languages. Its sentences are mended where quotes stand.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import regex
from transformers import PreTrainedTokenizerBase

from tokenization_fast_r2d2.trees import Span
from tokenization_fast_r2d2.words import checked_sentences, words_of_texts

if TYPE_CHECKING:
    from spacy import Language

Sentence = tuple[list[str], list[Span]]  # words, and for each its first character and the one after its last

# Lines up to a blank one; a sentence may go on in the next line, but not in the next paragraph.
PARAGRAPH = regex.compile(r"\S.*?(?=\n\s*\n|\Z)", regex.DOTALL)
# Before a sentence's first word: the quotes and brackets that belong to it. spaCy gives them to the sentence before.
OPENING = regex.compile(r"(?<=\s)(?:[\"'\p{Ps}\p{Pi}`¿¡]+|[\p{Ps}\p{Pi}`]+\s+)$")
# A sentence does not end here if a small letter follows: "Why?" asked Mary.
QUOTED = regex.compile(r"[.?!…。！？]\s?[\"'’\p{Pf}\p{Pe}]*[\"'’\p{Pf}」』]\s+$")

LONGEST_MARKS = 20  # characters between two sentences: blanks, quotes and brackets


def split_texts(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, language: str = "en") -> list[list[Sentence]]:
    """The sentences of texts. A closing quote stays with its sentence.

    Args:
        texts: of any length.
        tokenizer: the model's, whose rule finds the words (see `words_of_texts`).
        language: the code of the language for spaCy, such as ``"en"``, ``"zh"`` or ``"xx"`` for any.

    Returns:
        For each text its sentences. A sentence is its words, marks among them, and their offsets in the text: the first
        character of each word, and the one after its last. A text without words has no sentences.

    Raises:
        ImportError: if spaCy is not installed.
        ValueError: as `checked_sentences` raises it, or if spaCy does not know the language.
    """
    rules = _rules(language)
    texts = list(checked_sentences(texts))
    spans = [_sentence_spans(rules, text) for text in texts]
    shown = [text[start:end] for text, of_text in zip(texts, spans, strict=True) for start, end in of_text]
    words = iter(words_of_texts(tokenizer, shown))
    found = ([[(start + i, start + j) for i, j in next(words)] for start, _ in of_text] for of_text in spans)
    return [
        [([text[i:j] for i, j in offsets], offsets) for offsets in of_text if offsets]
        for text, of_text in zip(texts, found, strict=True)
    ]


def _sentence_spans(rules: "Language", text: str) -> list[Span]:
    """The first character of each sentence, and the one after its last; blanks at its end may be in it."""
    spans: list[Span] = []
    for paragraph in PARAGRAPH.finditer(text):
        start, end = paragraph.span()
        for sentence in rules(paragraph[0]).sents:
            place = paragraph.start() + sentence.start_char
            near = max(start, place - LONGEST_MARKS)
            if QUOTED.search(text, near, place) and text[place].islower():
                continue
            opening = OPENING.search(text, near, place)
            place = opening.start() if opening else place
            if place > start:
                spans.append((start, place))
                start = place
        spans.append((start, end))
    return spans


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
