"""Sentences as a parser reads them, and its trees over what stands in the text."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .punctuation import as_character, is_genitive, is_opening, is_punctuation, is_quote, put_back, set_aside
from .trees import BinaryTree
from .words import Span, pad_spans, show_all_words, tokenize_sentences, word_spans


@dataclass(frozen=True)
class ReadSentence:
    """What the model sees of a sentence, and what it does not.

    Attributes:
        input_ids: one for each piece.
        word_ids: of the pieces, without gaps.
        atom_spans: of the words of several pieces.
        bounds: split points between pieces where a mark other than a quote was set aside.
        words: one for each number in ``word_ids``.
        marks: what was set aside.
        places: for each mark, how many words stand before it.
    """

    input_ids: list[int]
    word_ids: list[int]
    atom_spans: list[Span]
    bounds: list[int]
    words: list[str]
    marks: list[str]
    places: list[int]

    @property
    def leaves(self) -> list[str]:
        """Words and marks in their order."""
        leaves, start = [], 0
        for mark, place in zip(self.marks, self.places, strict=True):
            leaves += [*self.words[start:place], mark]
            start = place
        return leaves + self.words[start:]

    @property
    def piece_word_ids(self) -> list[int]:
        """For each piece and mark, in their order, the number of its word, marks counted too."""
        of_pieces = [word + bisect_right(self.places, word) for word in self.word_ids]
        return sorted([*of_pieces, *(place + number for number, place in enumerate(self.places))])

    def over_pieces(self, pieces: list[str]) -> "ReadSentence":
        """The same with each piece a word."""
        places = [bisect_left(self.word_ids, place) for place in self.places]
        return replace(self, word_ids=list(range(len(pieces))), words=pieces, places=places)

    @property
    def between_words(self) -> list[int]:
        """Split points between pieces of two words."""
        return [k for k in range(len(self.word_ids) - 1) if self.word_ids[k] != self.word_ids[k + 1]]

    def over_their_pieces(self, spans: Sequence[Span]) -> Tensor:
        """Spans of words, ``(spans, 2)`` long, as spans of pieces."""
        starts = torch.tensor([0, *(k + 1 for k in self.between_words), len(self.word_ids)])
        words = torch.tensor(spans, dtype=torch.long).view(-1, 2)
        return torch.stack([starts[words[:, 0]], starts[words[:, 1] + 1] - 1], dim=-1)

    def word_tree(self, spans) -> BinaryTree:
        """Over the words, of a row of ``output.spans``."""
        return BinaryTree.from_spans(spans[: len(self.word_ids) - 1]).to_words(self.word_ids)

    def tree(self, spans) -> BinaryTree:
        """The same over the leaves."""
        tree, before, opens = self.word_tree(spans), Counter(), []
        for mark in self.marks:
            opens.append(is_opening(mark, before[mark]))
            before[mark] += 1
        return put_back(tree, self.places, opens) if self.marks else tree

    def scores(self, split_scores: np.ndarray) -> np.ndarray:
        """Between the leaves, of a row of ``output.split_scores``; on either side of a mark, that of the words' split
        point next to it, and 0 where there is none."""
        scores = split_scores[self.between_words]
        if not self.marks:
            return scores
        if not len(scores):
            return np.zeros(len(self.words) + len(self.marks) - 1, split_scores.dtype)
        repeats = np.bincount(np.clip(self.places, 1, len(scores)) - 1, minlength=len(scores))
        return np.repeat(scores, 1 + repeats)


def sentences_to_parse(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str] | Sequence[Sequence[str]],
    *,
    is_split_into_words: bool = False,
    set_marks_aside: bool = False,
) -> list[ReadSentence]:
    """Encode sentences, with or without the punctuation between their words; one of nothing else keeps it.

    Args:
        sentences: texts, or lists of words if ``is_split_into_words``; words that the tokenizer would drop are shown as
            unknown, so that each is a leaf.
    """
    shown = show_all_words(tokenizer, sentences) if is_split_into_words else sentences
    encoded = tokenize_sentences(tokenizer, shown, is_split_into_words=is_split_into_words)
    if is_split_into_words:
        encoded["words"] = [list(words) or [tokenizer.unk_token] for words in sentences]
    rows = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
    if not set_marks_aside:
        return [_whole(row) for row in rows]
    if is_split_into_words:
        return [_without_marks_among_words(row) for row in rows]
    return [_without_marks(text, row) for text, row in zip(sentences, rows, strict=True)]


def pad_batch(sentences: Sequence[ReadSentence], keep_words: bool = True) -> dict[str, Tensor]:
    """What a model takes, and ``bounds`` ``(batch, seq_len - 1)`` bool."""
    ids = [torch.tensor(sentence.input_ids) for sentence in sentences]
    lengths = torch.tensor([len(row) for row in ids])
    input_ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    batch = {"input_ids": input_ids, "attention_mask": (torch.arange(input_ids.shape[1]) < lengths[:, None]).long()}
    if keep_words:
        batch["atom_spans"] = pad_spans([sentence.atom_spans for sentence in sentences])
    return batch | {"bounds": pad_bounds([sentence.bounds for sentence in sentences], input_ids.shape[1])}


def pad_bounds(bounds: Sequence[Sequence[int]], seq_len: int) -> Tensor:
    """Lists of split points to ``(batch, seq_len - 1)`` bool."""
    padded = torch.zeros(len(bounds), seq_len - 1, dtype=torch.bool)
    for row, splits in enumerate(bounds):
        padded[row, splits] = True
    return padded


def raise_at_bounds(model, batch: dict[str, Tensor], bounds_bonus: float) -> dict[str, Tensor]:
    """A batch of `pad_batch` as a model takes it; where punctuation stood, with the parser's scores, raised."""
    batch = dict(batch)
    bounds = batch.pop("bounds")
    if bounds_bonus and bounds.any():
        scores = model.parse(**batch).split_scores
        batch["split_scores"] = scores + bounds_bonus * bounds.to(scores)
    return batch


def _whole(row: dict) -> ReadSentence:
    numbers = {word: number for number, word in enumerate(dict.fromkeys(row["word_ids"]))}
    word_ids = [numbers[word] for word in row["word_ids"]]
    return ReadSentence(row["input_ids"], word_ids, row["atom_spans"], [], row["words"], [], [])


def _without_marks(text: str, row: dict) -> ReadSentence:
    """Of a text: words are what stands between blanks and marks."""
    offsets = row["offsets"]
    kept, word_ids, bounds = set_aside(text, offsets, row["word_ids"])
    if not kept or len(kept) == len(offsets) == 1:
        return _whole(row)
    reach: list[Span] = []
    for piece, word in zip(kept, word_ids, strict=True):
        start, end = offsets[piece]
        reach[word:] = [(reach[word][0] if word < len(reach) else start, end)]
    marks, places, is_kept = [], [], set(kept)
    words_before = np.searchsorted([start for start, _ in reach], [start for start, _ in offsets], side="left")
    for piece, (start, end) in enumerate(offsets):
        if piece in is_kept:
            continue
        mark = text[start:end]
        if piece and offsets[piece - 1][1] == start and piece - 1 not in is_kept and marks[-1][0] == mark:
            marks[-1] += mark
        else:
            marks.append(mark)
            places.append(int(words_before[piece]))
    ids = [row["input_ids"][piece] for piece in kept]
    return ReadSentence(ids, word_ids, word_spans(word_ids), bounds, [text[i:j] for i, j in reach], marks, places)


def _without_marks_among_words(row: dict) -> ReadSentence:
    """Of given words: marks are those of nothing but punctuation, genitives apart."""
    whole = _whole(row)
    is_kept = np.array([
        not is_punctuation(as_character(word)) or is_genitive(word, before)
        for before, word in zip(["", *whole.words], whole.words, strict=False)
    ])  # fmt: skip
    if is_kept.all() or not is_kept.any():
        return whole
    number = np.cumsum(is_kept) - 1  # of each word among those kept
    marks = [word for word, keep in zip(whole.words, is_kept, strict=True) if not keep]
    places = (number[~is_kept] + 1).tolist()
    pieces = [piece for piece, word in enumerate(whole.word_ids) if is_kept[word]]
    word_ids = [int(number[whole.word_ids[piece]]) for piece in pieces]
    told = {place for place, mark in zip(places, marks, strict=True) if not is_quote(mark)}
    bounds = [k for k in range(len(pieces) - 1) if word_ids[k] != word_ids[k + 1] and word_ids[k + 1] in told]
    ids = [whole.input_ids[piece] for piece in pieces]
    words = [word for word, keep in zip(whole.words, is_kept, strict=True) if keep]
    return ReadSentence(ids, word_ids, word_spans(word_ids), bounds, words, marks, places)


__all__ = ["ReadSentence", "pad_batch", "pad_bounds", "raise_at_bounds", "sentences_to_parse"]
