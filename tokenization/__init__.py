"""Tokenizers, word spans and batches for Fast-R2D2."""

from modeling_fast_r2d2.padding import pad_spans
from modeling_fast_r2d2.text_files import read_lines, read_sentences
from modeling_fast_r2d2.words import tokenize_sentences, word_spans

from .collators import DataCollatorForFastR2D2, DataCollatorForFastR2D2Pairs
from .corpora import SENTENCE_RULES, clean_wikitext
from .training import task_token_ids, train_tokenizer

__all__ = [
    "SENTENCE_RULES",
    "DataCollatorForFastR2D2",
    "DataCollatorForFastR2D2Pairs",
    "clean_wikitext",
    "tokenize_sentences",
    "pad_spans",
    "read_lines",
    "read_sentences",
    "task_token_ids",
    "train_tokenizer",
    "word_spans",
]
