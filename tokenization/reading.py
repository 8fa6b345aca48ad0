"""Sentences as a parser reads them, and its trees over the words and the punctuation of the text."""

import itertools
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .coordination import loose_commas
from .language import are_marks, are_opening, begins_name, is_quote, pairs_of
from .padding import pad_sentences, pad_split_signs
from .trees import BinaryTree, put_back
from .words import (
    Span,
    check_can_tokenize,
    checked_sentences,
    tokenize_all_words,
    tokenize_words,
    word_spans,
    words_with_pieces,
)

Item = TypeVar("Item")


@dataclass(frozen=True)
class ReadSentence:
    """A sentence split into the pieces that the model sees and the punctuation marks that it does not see.

    Attributes:
        input_ids: the token id of each piece.
        word_ids: the word number of each piece, from 0, without gaps.
        atom_spans: the spans of the words that have two or more pieces, inclusive.
        bounds: the split points between pieces where a mark other than a quote was set aside, but not those of
            `loose_commas`.
        words: the text of each word.
        marks: the text of each mark that was set aside.
        places: for each mark, the number of words before it.
        piece_offsets, word_offsets, mark_offsets: the first character of each piece, word and mark in the text, and the
            one after its last.
    """

    input_ids: list[int]
    word_ids: list[int]
    atom_spans: list[Span]
    bounds: list[int]
    words: list[str]
    marks: list[str]
    places: list[int]
    piece_offsets: list[Span]
    word_offsets: list[Span]
    mark_offsets: list[Span]

    @property
    def names(self) -> list[int]:
        """The split points within names, which mostly are one constituent or lie within one (Spitkovsky et al., 2012,
        "Capitalization Cues Improve Dependency Grammar Induction"); see ``names_bonus`` of `FastR2D2Config`.

        They lie between two words that both may be in a name, with no bound between them, and between the pieces of
        such words, which must not come apart before the name does.
        """
        may_be = [begins_name(word) for word in self.words]
        joints, bounds = list(enumerate(itertools.pairwise(self.word_ids))), set(self.bounds)
        between = [k for k, (i, j) in joints if i != j and may_be[i] and may_be[j] and k not in bounds]
        in_names = {self.word_ids[k + side] for k in between for side in (0, 1)}
        return sorted(between + [k for k, (i, j) in joints if i == j and i in in_names])

    @property
    def unit_begins(self) -> list[int]:
        """The pieces that begin a unit of the text, besides the first. Marks part units, whether they were set aside or
        not; a mark that was not is a unit of its own."""
        joints = enumerate(itertools.pairwise(self.word_ids), start=1)
        if self.marks:
            after_marks = set(self.places)
            return [piece for piece, (i, j) in joints if i != j and j in after_marks]
        is_mark = are_marks(self.words)
        return [piece for piece, (i, j) in joints if is_mark[i] or is_mark[j]]

    @property
    def leaves(self) -> list[str]:
        """The words and the marks, in the order of the text."""
        return self.in_text_order(self.words, self.marks)

    @property
    def offsets(self) -> list[Span]:
        """The first character of each leaf in the text, and the one after its last."""
        return self.in_text_order(self.word_offsets, self.mark_offsets)

    def in_text_order(self, of_words: list[Item], of_marks: list[Item]) -> list[Item]:
        """What belongs to words and what belongs to marks, in the order of the text."""
        merged: list[Item] = []
        start = 0
        for mark, place in zip(of_marks, self.places, strict=True):
            merged += [*of_words[start:place], mark]
            start = place
        return merged + of_words[start:]

    @property
    def piece_word_ids(self) -> list[int]:
        """A word number for each piece and each mark, in the order of the text; here a mark counts as a word."""
        of_pieces = [word + bisect_right(self.places, word) for word in self.word_ids]
        of_marks = [place + number for number, place in enumerate(self.places)]
        return sorted(of_pieces + of_marks)

    @property
    def word_split_points(self) -> list[int]:
        """The split points that lie between the pieces of two different words."""
        return [k for k in range(len(self.word_ids) - 1) if self.word_ids[k] != self.word_ids[k + 1]]

    def with_pieces_as_words(self, pieces: list[str]) -> "ReadSentence":
        """The same sentence, in which every piece is a word of its own with the given text."""
        places = [bisect_left(self.word_ids, place) for place in self.places]
        numbers, offsets = list(range(len(pieces))), self.piece_offsets
        return replace(self, word_ids=numbers, words=pieces, places=places, word_offsets=offsets)

    def word_tree(self, spans: Tensor | np.ndarray) -> BinaryTree:
        """The tree over the words, without the marks.

        Args:
            spans: ``(seq_len - 1, 2)``, this sentence's row of ``output.spans``.
        """
        return BinaryTree.from_spans(spans[: len(self.word_ids) - 1]).to_words(self.word_ids)

    def tree(self, spans: Tensor | np.ndarray) -> BinaryTree:
        """The tree over the leaves, which are words and marks; the argument is that of `word_tree`."""
        tree, opens = self.word_tree(spans), are_opening(self.marks)
        return put_back(tree, self.places, opens, pairs_of(self.marks, opens)) if self.marks else tree

    def scores(self, split_scores: np.ndarray, tree: BinaryTree) -> np.ndarray:
        """The scores of the split points between leaves. Every span of ``tree`` splits at its highest score.

        Two words split at the model's score. A mark has none, so it splits halfway between the score above it and the
        highest score below it, or 1 beyond the one if there is no other. Where a span constraint or a tie made the
        tree, a score that is not below the one above it is lowered to just below it.

        Args:
            split_scores: ``(seq_len - 1,)``, this sentence's row of ``output.split_scores``.
            tree: the parser's tree, from `tree`.

        Returns:
            ``(leaves - 1,)`` in the same dtype; no constituent has two equal highest scores.
        """
        scores = np.full(tree.num_leaves - 1, np.nan, split_scores.dtype)
        leaves = [word + bisect_right(self.places, word) for word in range(len(self.words))]
        between = itertools.pairwise(leaves)
        for (first, last), score in zip(between, split_scores[self.word_split_points], strict=True):
            scores[min(range(first, last), key=tree.depths.__getitem__)] = score  # between the words, not beside a mark
        return _along_tree(scores, tree)


def sentences_to_parse(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str] | Sequence[Sequence[str]],
    *,
    is_split_into_words: bool = False,
    word_offsets: Sequence[Sequence[Span]] | None = None,
    set_marks_aside: bool = False,
    max_length: int | None = None,
) -> list[ReadSentence]:
    """Tokenize sentences for a parser.

    Args:
        sentences: texts, whose words `words_of_texts` finds; or lists of words if ``is_split_into_words``. The model
            sees ``[UNK]`` for a given word that the tokenizer would drop, so that each word is a leaf.
        word_offsets: where the given words stand in a text; by default they are joined by single blanks.
        set_marks_aside: take out the punctuation between words, so that the model does not see it. A sentence of
            nothing but punctuation keeps it.
        max_length: the number of pieces to keep of each sentence, punctuation included; None keeps all.

    Raises:
        ValueError: if the tokenizer is slow, if words and ``word_offsets`` differ in number, or as `checked_sentences`
            raises it.
    """
    check_can_tokenize(tokenizer, max_length)
    sentences = list(checked_sentences(sentences, is_split_into_words))
    if is_split_into_words and word_offsets is not None:
        _check_offsets(word_offsets, sentences)
    if is_split_into_words:
        given, offsets = sentences, [_joined(words) for words in sentences] if word_offsets is None else word_offsets
        encoded = tokenize_all_words(tokenizer, given, max_length)
    else:
        texts = [str(text) for text in sentences]
        offsets, pieces = words_with_pieces(tokenizer, texts)
        given = [[text[i:j] for i, j in places] for text, places in zip(texts, offsets, strict=True)]
        encoded = tokenize_words(tokenizer, given, pieces, max_length)
    encoded["words"] = [list(words) or [tokenizer.unk_token] for words in given]
    encoded["word_offsets"] = [list(places) or [(0, 0)] for places in offsets]
    read = [_read_words(dict(zip(encoded, row, strict=True))) for row in zip(*encoded.values(), strict=True)]
    coordinators = tokenizer.init_kwargs.get("coordinators", ())
    return [_set_marks_aside(sentence, coordinators) for sentence in read] if set_marks_aside else read


def _check_offsets(word_offsets: Sequence[Sequence[Span]], sentences: Sequence[Any]) -> None:
    if len(word_offsets) != len(sentences):
        raise ValueError(f"word_offsets must have one row per sentence, {len(sentences)}, got {len(word_offsets)}")
    for row, (offsets, words) in enumerate(zip(word_offsets, sentences, strict=True)):
        if len(offsets) != len(words):
            raise ValueError(f"row {row} must have one pair of word_offsets per word, {len(words)}, got {len(offsets)}")


def pad_batch(sentences: Sequence[ReadSentence], keep_words: bool = True) -> dict[str, Tensor]:
    """A batch of what a model reads.

    Args:
        keep_words: include ``atom_spans``, so that the parser keeps words whole.

    Returns:
        The tensors of `pad_sentences`, and ``split_signs`` ``(batch, seq_len - 1)`` int8 of `pad_split_signs`.
    """
    batch = pad_sentences(
        [sentence.input_ids for sentence in sentences],
        [sentence.atom_spans for sentence in sentences] if keep_words else None,
    )
    bounds, names = [sentence.bounds for sentence in sentences], [sentence.names for sentence in sentences]
    return batch | {"split_signs": pad_split_signs(bounds, names, batch["input_ids"].shape[1])}


def _along_tree(scores: np.ndarray, tree: BinaryTree) -> np.ndarray:
    """The scores, with numbers for NaN, and lowered where one is not below its parent's; see `ReadSentence.scores`."""
    number = scores.dtype.type  # rounds to the dtype
    found = [*scores.tolist(), math.inf]  # the last one is above the root, whose parent is -1
    below = [-math.inf] * len(found)  # the highest given score below each split point
    for _, _, k in reversed(tree.triples):  # children before parents
        parent, highest = tree.parents[k], below[k] if math.isnan(found[k]) else found[k]
        below[parent] = max(below[parent], highest)
    for _, _, k in tree.triples:
        above = found[tree.parents[k]]
        if math.isnan(found[k]):
            found[k] = float(number(_between(below[k], above)))
        if found[k] >= above:
            found[k] = float(np.nextafter(number(above), number(-math.inf)))
    return np.array(found[:-1], scores.dtype)


def _between(low: float, high: float) -> float:
    """The middle of two scores; 1 beyond the only one that is finite, and 0 if none is."""
    if math.isinf(low):
        return 0.0 if math.isinf(high) else high - 1
    return low + 1 if math.isinf(high) else (low + high) / 2


def _read_words(row: dict[str, Any]) -> ReadSentence:
    """The words that have pieces, marks among them. The offsets of a piece lie within those of its word."""
    word_ids = row["word_ids"]
    count = word_ids[-1] + 1
    words, places = row["words"][:count], row["word_offsets"][:count]
    pieces = []
    for word, (start, end) in zip(word_ids, row["offsets"], strict=True):
        first, last = places[word]
        pieces.append((min(first + start, last), min(first + end, last)))
    return ReadSentence(row["input_ids"], word_ids, row["atom_spans"], [], words, [], [], pieces, places, [])


def _joined(words: Sequence[str]) -> list[Span]:
    """Where words stand in the text that joins them by single blanks."""
    starts = itertools.accumulate((len(word) + 1 for word in words), initial=0)
    return [(start, start + len(word)) for start, word in zip(starts, words, strict=False)]


def _set_marks_aside(whole: ReadSentence, coordinators: Collection[str]) -> ReadSentence:
    """The sentence without the words that are nothing but punctuation; a genitive's apostrophe stays.

    Args:
        coordinators: as for `loose_commas`.
    """
    is_kept = [not is_mark for is_mark in are_marks(whole.words)]
    if all(is_kept) or not any(is_kept):
        return whole
    kept_so_far = list(itertools.accumulate(map(int, is_kept)))  # through each word
    words, marks = _parted(whole.words, is_kept)
    word_offsets, mark_offsets = _parted(whole.word_offsets, is_kept)
    _, places = _parted(kept_so_far, is_kept)
    pieces = [piece for piece, word in enumerate(whole.word_ids) if is_kept[word]]
    ids, offsets = [whole.input_ids[piece] for piece in pieces], [whole.piece_offsets[piece] for piece in pieces]
    word_ids = [kept_so_far[whole.word_ids[piece]] - 1 for piece in pieces]
    parting = {place for place, mark in zip(places, marks, strict=True) if not is_quote(mark)}
    parting -= loose_commas(words, marks, places, coordinators)
    bounds = [k for k, (i, j) in enumerate(itertools.pairwise(word_ids)) if i != j and j in parting]
    return ReadSentence(
        ids, word_ids, word_spans(word_ids), bounds, words, marks, places, offsets, word_offsets, mark_offsets
    )


def _parted(items: Sequence[Item], is_kept: Sequence[bool]) -> tuple[list[Item], list[Item]]:
    """The kept items and the others."""
    return list(itertools.compress(items, is_kept)), list(itertools.compress(items, map(operator.not_, is_kept)))
