"""Alignment of predicted and gold trees, so that both have the same leaves."""

import itertools
from collections.abc import Sequence

from .labelled_trees import LabelledTree, spelling

GRANULARITIES = ("words", "pieces")
UNKNOWN = {"[unk]", "<unk>"}  # leaves that may stand for a word or a part of it


def align(
    predicted: Sequence[LabelledTree], gold: Sequence[LabelledTree], granularity: str = "words"
) -> tuple[list[LabelledTree], list[LabelledTree]]:
    """Give predicted and gold trees the same leaves. Predicted leaves may be pieces of the gold words.

    Args:
        predicted: one tree per gold tree, in the same order. The leaves of the two may differ in case, in accents, in
            the ``##`` of a piece that continues a word, and in the way brackets and slashes are escaped.
        gold: the gold trees.
        granularity: ``"words"`` keeps the predicted constituents that begin and end with a word. ``"pieces"`` turns
            every gold word into a constituent over the predicted pieces.

    Returns:
        The predicted and the gold trees.

    Raises:
        ValueError: if the lists have different lengths, or if predicted leaves do not spell the gold words. The message
            names the tree and the word.
    """
    if granularity not in GRANULARITIES:
        raise ValueError(f"granularity must be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
    if len(predicted) != len(gold):
        first = min(len(predicted), len(gold))
        extra = (predicted if len(predicted) > len(gold) else gold)[first].place
        raise ValueError(
            f"{len(predicted)} predicted trees for {len(gold)} gold trees; give one for each, in the same order "
            f"(the first without a partner: {extra})"
        )
    pairs = [_align(tree, gold_tree, granularity) for tree, gold_tree in zip(predicted, gold, strict=True)]
    return [tree for tree, _ in pairs], [gold_tree for _, gold_tree in pairs]


def _align(tree: LabelledTree, gold: LabelledTree, granularity: str) -> tuple[LabelledTree, LabelledTree]:
    if not gold.words:  # there is nothing to score, whatever a parser made of an empty line
        return gold, gold
    word_ids = _words_of_leaves(tree, gold) if tree.word_ids is None else tree.word_ids
    if granularity == "words":
        return tree.to_words(word_ids, gold.words), gold
    pieces: list[list[str]] = [[] for _ in gold.words]
    for word, leaf in zip(word_ids, tree.words, strict=True):
        pieces[word].append(leaf)
    return tree, gold.expand(pieces)


def _words_of_leaves(tree: LabelledTree, gold: LabelledTree) -> list[int]:
    """The number of the gold word to which each predicted leaf belongs."""
    if not UNKNOWN.isdisjoint(leaf.lower() for leaf in tree.words):
        return _words_of_leaves_with_unknown(tree, gold)
    word_ids: list[int] = []
    for word, target in enumerate(gold.words):
        spelled, wanted = "", {spelling(target), target.casefold().replace("\\", "")}  # with and without accents
        while not word_ids or word_ids[-1] != word or spelled not in wanted:
            leaf = tree.words[len(word_ids)] if len(word_ids) < tree.num_leaves else None
            if leaf is not None:
                spelled += _spelling_of_leaf(leaf, is_first=not spelled)
            if leaf is None or not any(form.startswith(spelled) for form in wanted):
                raise _other_words(tree, gold, word, leaf)
            word_ids.append(word)
    if len(word_ids) < tree.num_leaves:
        raise _other_words(tree, gold, gold.num_leaves, tree.words[len(word_ids)])
    return word_ids


def _words_of_leaves_with_unknown(tree: LabelledTree, gold: LabelledTree) -> list[int]:
    """The same if there are unknown leaves. Each stands for one or more characters of a word, as few as possible."""
    parts = [None if leaf.lower() in UNKNOWN else _spelling_of_leaf(leaf, False) for leaf in tree.words]
    starts = SpelledWords(list(map(spelling, gold.words))).starts(parts)
    if starts is None:
        raise _other_words(tree, gold, 0, tree.words[0])
    return starts


class SpelledWords:
    """Words as one text, into which leaves are fitted, where an unknown leaf may be one or more characters of a word.

    A set of positions in the text is one integer: its bit ``r`` is set if it has the position with ``r`` characters to
    the right of it. A leaf moves a whole set in a few operations on integers. Thousands of unknown leaves, each with
    many possible ends, therefore take no longer than known ones.

    Args:
        words: the spelling of each word.
    """

    def __init__(self, words: list[str]):
        self.words, self.text = words, "".join(words)
        self.word_of = [number for number, word in enumerate(words) for _ in word]  # of each character
        self.ends = list(itertools.accumulate(map(len, words)))
        size = len(self.text)
        self.all = (1 << size) - 1  # as a set of characters: bit r is the character with r others to its right
        self.first_characters = sum(
            1 << (size - 1 - end + len(word)) for end, word in zip(self.ends, words, strict=True) if word
        )
        self.found: dict[str, int] = {}

    def starts(self, parts: list[str | None]) -> list[int] | None:
        """The number of the word in which each part starts.

        Args:
            parts: the parts of the text from left to right; None stands for one or more unknown characters of a word.

        Returns:
            One number per part; None if the parts do not spell the words, or if a word is empty.
        """
        if not all(self.words):
            return None
        fits = [1]  # from right to left: the positions from which the remaining parts spell the remaining text
        for part in reversed(parts):
            fits.append(self._before_any(fits[-1]) if part is None else (fits[-1] << len(part)) & self._positions(part))
        size, position, starts = len(self.text), 0, []
        if not fits.pop() >> size & 1:
            return None
        for part, after in zip(parts, reversed(fits), strict=True):
            word = self.word_of[min(position, size - 1)]
            starts.append(word)
            position = self._shortest_end(position, word, after) if part is None else position + len(part)
        return starts

    def _shortest_end(self, position: int, word: int, ends: int) -> int:
        """The first of the possible ends of an unknown part that starts at the position."""
        size, last = len(self.text), len(self.text) - self.ends[word]
        within_word = (ends >> last) & ((1 << (size - position - last)) - 1)
        return size - last - (within_word.bit_length() - 1)

    def _before_any(self, ends: int) -> int:
        """The positions from which one or more characters of a word lead to one of the ends."""
        last = ends & self.all  # now bit r stands for the character that ends there
        below = ~self.first_characters & self.all
        # Adding carries each bit up to the first character of its word.
        is_reached = (((last & below) + below) | last) & self.first_characters
        return ((((is_reached << 1) - last) | last) & self.all) << 1

    def _positions(self, part: str) -> int:
        """The positions at which the part stands within a word."""
        if part not in self.found:
            size, bits, start = len(self.text), bytearray(len(self.text) // 8 + 1), self.text.find(part)
            while start >= 0 and part:
                if self.word_of[start] == self.word_of[start + len(part) - 1]:
                    bits[(size - start) // 8] |= 1 << (size - start) % 8
                start = self.text.find(part, start + 1)
            self.found[part] = int.from_bytes(bits, "little") if part else 2 * self.all + 1
        return self.found[part]


def _spelling_of_leaf(leaf: str, is_first: bool) -> str:
    is_continued = leaf.startswith("##") and len(leaf) > 2 and not is_first
    return spelling(leaf[2:] if is_continued else leaf)


def _other_words(tree: LabelledTree, gold: LabelledTree, word: int, leaf: str | None) -> ValueError:
    expected = repr(gold.words[word]) if word < gold.num_leaves else "the end"
    problem = f"{'the end' if leaf is None else repr(leaf)} is predicted for {expected}"
    return ValueError(
        f"{tree.place or 'a predicted tree'} and {gold.place or 'its gold tree'} have different words: "
        f"at word {word + 1}, {problem}; parse the gold sentences themselves, read with the same preprocessing"
    )
