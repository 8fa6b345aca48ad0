"""Sentences with known trees that no corpus has: a word or a constituent gives its place to a longer constituent.

A parser that learnt from raw text alone finds *the man who sold the car* at the end of a sentence. In front of a verb,
as in *the man who sold the car lives here*, it takes the verb into the clause. But it is like *the old man* by its
vector, and where one stands the other may (Shi et al., 2021, "Substructure Substitution", 2101.00411), or a word: *he*
and *the old man* both stand on the left of *lives here* in a whole sentence. So constituents have classes, and one of a
class that is found in such a place is put there, its tree with it. The parser learns from the result.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from tokenization_fast_r2d2.padding import pad_sentences
from tokenization_fast_r2d2.reading import ReadSentence
from tokenization_fast_r2d2.trees import Span
from tokenization_fast_r2d2.words import word_spans

NUM_CLASSES = 60
LONGEST_REPLACED, LONGEST_PUT_IN = 5, 10  # words
LEFT_WEIGHT = 9  # how much more often left parts are replaced, since they stand in front of something
ROWS = 256  # sentences that are encoded at once


class WordTree(NamedTuple):
    """A sentence with a binary tree over its words."""

    words: list[list[int]]  # the pieces of each word
    spans: list[Span]  # for each split point between words, the constituent that splits there, inclusive

    @classmethod
    def of(cls, sentence: ReadSentence, spans: Sequence[Span]) -> "WordTree":
        ends = [*sentence.word_split_points, len(sentence.input_ids) - 1]
        starts = [0, *(end + 1 for end in ends[:-1])]
        words = [sentence.input_ids[start : end + 1] for start, end in zip(starts, ends, strict=True)]
        return cls(words, list(spans))

    def put_in(self, place: Span, other: "WordTree", span: Span) -> "WordTree":
        """The same with a constituent of another sentence in the place of one of its own, or of a word."""
        (first, last), (begin, end) = place, span
        words = self.words[:first] + other.words[begin : end + 1] + self.words[last + 1 :]
        longer = (end - begin) - (last - first)
        moved = [(i + longer * (i > last), j + longer * (j >= last)) for i, j in self.spans]
        inside = [(i - begin + first, j - begin + first) for i, j in other.spans[begin:end]]
        return WordTree(words, moved[:first] + inside + moved[last:])


Context = tuple[int, str, int | None]  # class of the parent, side, class of the other part, None for a word


def parts(tree: WordTree, classes: dict[Span, int]) -> Iterator[tuple[Span, Context]]:
    """The two parts of each constituent and where they stand."""
    for split, span in enumerate(tree.spans):
        left, right = (span[0], split), (split + 1, span[1])
        yield left, (classes[span], "left", classes.get(right))
        yield right, (classes[span], "right", classes.get(left))


def model_batch(trees: Sequence[WordTree], pad_token_id: int) -> dict[str, Tensor]:
    """The inputs of a model, with the trees as ``labels``: ``(batch, seq_len - 1, 2)`` long, -1 within words."""
    ids = [[piece for word in tree.words for piece in word] for tree in trees]
    word_ids = [[number for number, word in enumerate(tree.words) for _ in word] for tree in trees]
    batch = pad_sentences(ids, list(map(word_spans, word_ids)), pad_token_id=pad_token_id)
    labels = torch.full((*batch["input_ids"][:, 1:].shape, 2), -1)
    for row, tree in enumerate(trees):
        starts = [0, *accumulate(map(len, tree.words))]
        if tree.spans:
            pieces = [(starts[first], starts[last + 1] - 1) for first, last in tree.spans]
            labels[row, [start - 1 for start in starts[1:-1]]] = torch.tensor(pieces)
    return batch | {"labels": labels}


def constituent_vectors(model, trees: Sequence[WordTree]) -> np.ndarray:
    """``(split points, hidden_size)`` float32: vectors of the constituents of all trees, in the order of ``spans``, by
    a `FastR2D2Model` in evaluation."""
    found = [np.zeros((0, model.config.hidden_size), np.float32)]
    for start in range(0, len(trees), ROWS):
        batch = model_batch(trees[start : start + ROWS], model.config.pad_token_id)
        labels = batch.pop("labels")
        widths = (labels[..., 1] - labels[..., 0]).float()  # scores of the same trees: a constituent splits first
        row, split = (labels[..., 0] >= 0).nonzero(as_tuple=True)
        with torch.inference_mode():
            output = model(**batch, split_scores=widths, encoding="forced", return_dict=True)
        found.append(output.last_hidden_state[row, batch["input_ids"].shape[1] + split].float().numpy())
    return np.concatenate(found)


class Substitution:
    """Constituents of many sentences, by classes that k-means finds, to put in the place of shorter ones and of words.

    Args:
        model: a `FastR2D2Model` in evaluation, on the CPU.
        trees: sentences from which constituents are taken.
        copies: how many new sentences are made of one, at most.

    Raises:
        ValueError: if no sentence has two words.
    """

    def __init__(self, model, trees: Sequence[WordTree], copies: int):
        self.model, self.copies = model, copies
        vectors = constituent_vectors(model, trees)
        if not len(vectors):
            raise ValueError("no sentence of two or more words, from which constituents could be taken")
        self.mean, self.scale = vectors.mean(0), vectors.std(0) + 1e-6
        clusters = MiniBatchKMeans(min(NUM_CLASSES, len(vectors)), n_init=3, random_state=0, batch_size=8192)
        self.centres = clusters.fit((vectors - self.mean) / self.scale).cluster_centers_
        self.found: list[list[tuple[WordTree, Span]]] = [[] for _ in self.centres]
        self.standing: dict[Context, list[int]] = defaultdict(list)  # the classes of the constituents that stand there
        for tree, classes in zip(trees, self._classes_of(trees, vectors), strict=True):
            for span, number in classes.items():
                if width(span) <= min(LONGEST_PUT_IN, len(tree.words) - 1):  # no whole sentence
                    self.found[number].append((tree, span))
            for span, context in parts(tree, classes):
                if span in classes:
                    self.standing[context].append(classes[span])
        for found in self.found:
            found.sort(key=lambda item: width(item[1]))
        self.widths = [[width(span) for _, span in found] for found in self.found]

    def classes(self, vectors: np.ndarray) -> np.ndarray:
        """The nearest centres; by numpy, since OpenMP of scikit-learn hangs in workers that were forked."""
        products = ((vectors - self.mean) / self.scale) @ self.centres.T
        return (np.square(self.centres).sum(1) / 2 - products).argmin(1)

    def _classes_of(self, trees: Sequence[WordTree], vectors: np.ndarray) -> Iterator[dict[Span, int]]:
        numbers = iter(self.classes(vectors).tolist())
        return ({span: next(numbers) for span in tree.spans} for tree in trees)

    def __call__(self, trees: Sequence[WordTree], random: np.random.Generator) -> list[WordTree]:
        """New sentences from these, each with a longer constituent somewhere before its end."""
        made = []
        for tree, classes in zip(trees, self._classes_of(trees, constituent_vectors(self.model, trees)), strict=True):
            if places := self._places(tree, classes):
                weights = np.array([weight for *_, weight in places])
                chosen = random.choice(len(places), size=self.copies, p=weights / weights.sum())
                made += [self._one(tree, *places[number][:2], random) for number in chosen]
        return [tree for tree in made if tree is not None]

    def _places(self, tree: WordTree, classes: dict[Span, int]) -> list[tuple[Span, list[int], int]]:
        """What may be replaced, with the classes of what is found in such a place, and how often it is. The other part
        is a constituent, since nothing is known of words."""
        last = len(tree.words) - 1
        return [
            (part, self.standing[context], LEFT_WEIGHT if context[1] == "left" else 1)
            for part, context in parts(tree, classes)
            if part[1] < last
            and width(part) <= LONGEST_REPLACED
            and context[-1] is not None
            and context in self.standing
        ]

    def _one(self, tree: WordTree, place: Span, classes: list[int], random: np.random.Generator) -> WordTree | None:
        number = classes[random.integers(len(classes))]
        least = random.integers(width(place), LONGEST_PUT_IN) + 1  # long ones are rare, and are what is to be learnt
        found, longer = self.found[number], bisect_left(self.widths[number], least)
        return tree.put_in(place, *found[random.integers(longer, len(found))]) if longer < len(found) else None


def width(span: Span) -> int:
    return span[1] - span[0] + 1
