"""Running text: where its sentences are, and the words of each, as everywhere else."""

from collections.abc import Sequence

import regex
from transformers import PreTrainedTokenizerBase

from tokenization_fast_r2d2.sentences import sentence_spans
from tokenization_fast_r2d2.trees import Span
from tokenization_fast_r2d2.words import checked_sentences, words_of_texts

Sentence = tuple[list[str], list[Span]]  # words, and for each its first character and the one after its last

# Lines up to a blank one; a sentence may go on in the next line, but not in the next paragraph.
PARAGRAPH = regex.compile(r"\S.*?(?=\n\s*\n|\Z)", regex.DOTALL)


def split_texts(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[list[Sentence]]:
    """The sentences of texts in any script, by Unicode's sentence ends (see `sentence_spans`).

    Args:
        texts: of any length; sentences do not go across blank lines.
        tokenizer: the model's. It knows the abbreviations of its language, and its rule finds the words (see
            `words_of_texts`).

    Returns:
        For each text its sentences. A sentence is its words, marks among them, and their offsets in the text: the first
        character of each word, and the one after its last. A text without words has no sentences.

    Raises:
        ValueError: as `checked_sentences` raises it.
    """
    texts = list(checked_sentences(texts))
    spans = [_spans(text, tokenizer.init_kwargs.get("abbreviations")) for text in texts]
    shown = [text[start:end] for text, of_text in zip(texts, spans, strict=True) for start, end in of_text]
    words = iter(words_of_texts(tokenizer, shown))
    found = ([[(start + i, start + j) for i, j in next(words)] for start, _ in of_text] for of_text in spans)
    return [
        [([text[i:j] for i, j in offsets], offsets) for offsets in of_text if offsets]
        for text, of_text in zip(texts, found, strict=True)
    ]


def _spans(text: str, abbreviations: list[str] | None) -> list[Span]:
    """The first character of each sentence of a text, and the one after its last."""
    found = ((paragraph.start(), sentence_spans(paragraph[0], abbreviations)) for paragraph in PARAGRAPH.finditer(text))
    return [(place + start, place + end) for place, of_paragraph in found for start, end in of_paragraph]
