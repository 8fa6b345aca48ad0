"""Tokenizers, word spans and batches for Fast-R2D2."""

from .collators import DataCollatorForFastR2D2, DataCollatorForFastR2D2Pairs, pad_spans
from .corpora import SENTENCE_RULES, clean_wikitext, read_sentences
from .encoding import encode_sentences, word_spans
from .training import task_token_ids, train_tokenizer

__all__ = [
    "SENTENCE_RULES",
    "DataCollatorForFastR2D2",
    "DataCollatorForFastR2D2Pairs",
    "clean_wikitext",
    "encode_sentences",
    "pad_spans",
    "read_sentences",
    "task_token_ids",
    "train_tokenizer",
    "word_spans",
]
