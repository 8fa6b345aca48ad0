"""Predicted trees beside gold ones, over the same leaves."""

import itertools
from collections.abc import Sequence

from .labelled_trees import LabelledTree, spelling

GRANULARITIES = ("words", "pieces")
UNKNOWN = {"[unk]", "<unk>"}  # leaves that may stand for a word or a part of it


def align(
    predicted: Sequence[LabelledTree], gold: Sequence[LabelledTree], granularity: str = "words"
) -> tuple[list[LabelledTree], list[LabelledTree]]:
    """Both over the same leaves, where the predicted ones may be pieces of the gold words.

    Args:
        predicted: tree for tree with ``gold``. Leaves may differ in case, in ``##`` before a piece that continues a
            word, and in how brackets and slashes are escaped.
        granularity: ``"words"``: of a predicted tree over pieces, what begins and ends with a word is kept.
            ``"pieces"``: every gold word becomes a constituent of the predicted pieces.

    Raises:
        ValueError: for lists of different lengths; naming the tree and the word, where leaves do not spell the gold
            words.
    """
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity must be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
    if len(predicted) != len(gold):
        first = min(len(predicted), len(gold))
        extra = (predicted if len(predicted) > len(gold) else gold)[first].place
        raise ValueError(
            f"{len(predicted)} predicted trees for {len(gold)} gold ones; give one for each, in the same order "
            f"(the first without another: {extra})"
        )
    pairs = [_align(tree, gold_tree, granularity) for tree, gold_tree in zip(predicted, gold, strict=True)]
    return [tree for tree, _ in pairs], [gold_tree for _, gold_tree in pairs]


def _align(tree: LabelledTree, gold: LabelledTree, granularity: str) -> tuple[LabelledTree, LabelledTree]:
    if not gold.words:  # nothing to score: whatever a parser made of an empty line will do
        return gold, gold
    word_ids = _words_of_leaves(tree, gold) if tree.word_ids is None else tree.word_ids
    if granularity == "words":
        return tree.to_words(word_ids, gold.words), gold
    pieces: list[list[str]] = [[] for _ in gold.words]
    for word, leaf in zip(word_ids, tree.words, strict=True):
        pieces[word].append(leaf)
    return tree, gold.expand(pieces)


def _words_of_leaves(tree: LabelledTree, gold: LabelledTree) -> list[int]:
    """The gold word of each leaf."""
    if not UNKNOWN.isdisjoint(leaf.lower() for leaf in tree.words):
        return _words_of_leaves_with_unknown(tree, gold)
    word_ids: list[int] = []
    for word, target in enumerate(gold.words):
        spelled, wanted = "", {spelling(target), target.casefold().replace("\\", "")}
        while not word_ids or word_ids[-1] != word or spelled not in wanted:
            leaf = tree.words[len(word_ids)] if len(word_ids) < tree.num_leaves else None
            if leaf is not None:
                spelled += _spelling_of_leaf(leaf, is_first=not spelled)
            if leaf is None or not any(form.startswith(spelled) for form in wanted):
                _refuse(tree, gold, word, leaf)
            word_ids.append(word)
    if len(word_ids) < tree.num_leaves:
        _refuse(tree, gold, gold.num_leaves, tree.words[len(word_ids)])
    return word_ids


def _words_of_leaves_with_unknown(tree: LabelledTree, gold: LabelledTree) -> list[int]:
    """The same where unknown leaves stand for one or more characters of a word: the shortest that let the rest fit."""
    parts = [None if leaf.lower() in UNKNOWN else _spelling_of_leaf(leaf, False) for leaf in tree.words]
    starts = Spelled(list(map(spelling, gold.words))).starts(parts)
    if starts is None:
        _refuse(tree, gold, 0, tree.words[0])
    return starts


class Spelled:
    """Words as one text, and sets of places in it as the bits of an integer: bit ``r`` where ``r`` characters remain.

    A set moves by one part of the text in a few operations on integers, so that thousands of unknown leaves, each of
    which may end anywhere in its word, take no longer than known ones.
    """

    def __init__(self, words: list[str]):
        self.words, self.text = words, "".join(words)
        self.word_of = [number for number, word in enumerate(words) for _ in word]
        self.ends = list(itertools.accumulate(map(len, words)))
        size = len(self.text)
        self.all = (1 << size) - 1
        self.tops = sum(1 << (size - 1 - end + len(word)) for end, word in zip(self.ends, words, strict=True) if word)
        self.found: dict[str, int] = {}

    def starts(self, parts: list[str | None]) -> list[int] | None:
        """The word in which each part starts, None for parts that do not spell the words; a part that is None is any
        one or more characters of a word."""
        if not all(self.words):
            return None
        fits = [1]  # from the end: places from which the parts that are left fit
        for part in reversed(parts):
            fits.append(self._before_any(fits[-1]) if part is None else (fits[-1] << len(part)) & self._places(part))
        size, place, starts = len(self.text), 0, []
        if not fits.pop() >> size & 1:
            return None
        for part in parts:
            word = self.word_of[min(place, size - 1)]
            starts.append(word)
            after = fits.pop()
            if part is None:
                last = size - self.ends[word]
                within = (after >> last) & ((1 << (size - place - last)) - 1)
                place = size - last - (within.bit_length() - 1)
            else:
                place += len(part)
        return starts

    def _before_any(self, places: int) -> int:
        """From which one or more characters of a word lead to one of the places."""
        last = places & self.all  # a place is also the character before it
        below = ~self.tops & self.all
        is_reached = (((last & below) + below) | last) & self.tops  # the first characters of words with such places
        return ((((is_reached << 1) - last) | last) & self.all) << 1

    def _places(self, part: str) -> int:
        """Where the part stands, within a word."""
        if part not in self.found:
            size, bits, place = len(self.text), bytearray(len(self.text) // 8 + 1), self.text.find(part)
            while place >= 0 and part:
                if self.word_of[place] == self.word_of[place + len(part) - 1]:
                    bits[(size - place) // 8] |= 1 << (size - place) % 8
                place = self.text.find(part, place + 1)
            self.found[part] = int.from_bytes(bits, "little") if part else 2 * self.all + 1
        return self.found[part]


def _spelling_of_leaf(leaf: str, is_first: bool) -> str:
    is_continued = leaf.startswith("##") and len(leaf) > 2 and not is_first
    return spelling(leaf[2:] if is_continued else leaf)


def _refuse(tree: LabelledTree, gold: LabelledTree, word: int, leaf: str | None) -> None:
    expected = repr(gold.words[word]) if word < gold.num_leaves else "the end"
    problem = f"{'the end' if leaf is None else repr(leaf)} is predicted for {expected}"
    raise ValueError(
        f"{tree.place or 'a predicted tree'} and {gold.place or 'its gold tree'} are over different words: "
        f"at word {word + 1}, {problem}; parse the gold sentences themselves, read with the same preprocessing"
    )
