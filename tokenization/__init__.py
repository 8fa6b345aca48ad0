"""Tokenizers, word spans and batches for Fast-R2D2."""

from .collators import DataCollatorForFastR2D2, DataCollatorForFastR2D2Pairs
from .coordination import find_coordinators
from .language import clean_wikitext
from .lines import read_lines, read_sentences
from .padding import pad_spans
from .sentences import SENTENCE_RULES, find_abbreviations
from .training import task_token_ids, train_tokenizer
from .words import tokenize_sentences, word_spans

__all__ = [
    "SENTENCE_RULES",
    "DataCollatorForFastR2D2",
    "DataCollatorForFastR2D2Pairs",
    "clean_wikitext",
    "find_abbreviations",
    "find_coordinators",
    "tokenize_sentences",
    "pad_spans",
    "read_lines",
    "read_sentences",
    "task_token_ids",
    "train_tokenizer",
    "word_spans",
]
