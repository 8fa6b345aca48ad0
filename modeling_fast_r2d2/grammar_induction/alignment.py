"""Alignment of predicted and gold trees, so that both have the same leaves."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

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
        ValueError: if the lists have different lengths, if predicted leaves do not spell the gold words (the message
            names the tree and, unless it has unknown leaves, the word), or if the granularity is unknown.
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
                raise _other_words(tree, gold, _difference(gold, word, leaf))
            word_ids.append(word)
        if word + 1 == gold.num_leaves or spelling(gold.words[word + 1]):
            rest = itertools.islice(tree.words, len(word_ids), None)
            accents = itertools.takewhile(lambda leaf: not _spelling_of_leaf(leaf, is_first=False), rest)
            word_ids += [word for _ in accents]  # leaves of nothing else, as of Thai or Hindi characters
    if len(word_ids) < tree.num_leaves:
        raise _other_words(tree, gold, _difference(gold, gold.num_leaves, tree.words[len(word_ids)]))
    return word_ids


def _words_of_leaves_with_unknown(tree: LabelledTree, gold: LabelledTree) -> list[int]:
    """The same if there are unknown leaves. Each stands for one or more characters of a word, as few as possible."""
    parts = [None if leaf.lower() in UNKNOWN else _spelling_of_leaf(leaf, False) for leaf in tree.words]
    word_ids = words_of_parts(list(map(spelling, gold.words)), parts)
    if word_ids is None:
        raise _other_words(tree, gold, "between its unknown leaves it spells others")
    return word_ids


def words_of_parts(words: list[str], parts: list[str | None]) -> list[int] | None:
    """Fit parts into words from left to right; no part goes beyond its word.

    Args:
        words: the spelling of each word.
        parts: None stands for one or more unknown characters, as few as possible.

    Returns:
        The number of the word in which each part starts, or of the one before an empty part; None if the parts do not
        spell the words, or if a word is empty.
    """
    text, ends = "".join(words), list(itertools.accumulate(map(len, words)))
    word_of = [number for number, word in enumerate(words) for _ in word]  # of each character
    # The least number of characters from each part on.
    least = list(itertools.accumulate([1 if part is None else len(part) for part in reversed(parts)], initial=0))[::-1]

    def is_possible(number: int, start: int) -> bool:
        words_left = len(words) - word_of[start] if start < len(text) else 0
        return words_left <= len(parts) - number and least[number] <= len(text) - start

    def ends_of(part: str | None, start: int) -> Iterable[int]:
        last = ends[word_of[start]] if start < len(text) else start
        if part is None:
            return range(start + 1, last + 1)
        return [start + len(part)] if text.startswith(part, start) and start + len(part) <= last else []

    starts: list[int] = []
    untried: list[Iterator[int]] = [iter([0] if all(words) else [])]  # for each part: where else it may start
    refuted: set[tuple[int, int]] = set()  # parts and starts from which the rest does not fit
    while untried:
        number, start = len(starts), next(untried[-1], None)
        if start is None:
            untried.pop()
            refuted |= {(number - 1, starts.pop())} if starts else set()
        elif number == len(parts) and start == len(text):
            return [word_of[max(0, place - (part == ""))] for place, part in zip(starts, parts, strict=True)]
        elif number < len(parts) and (number, start) not in refuted and is_possible(number, start):
            starts.append(start)
            untried.append(iter(ends_of(parts[number], start)))
    return None


def _spelling_of_leaf(leaf: str, is_first: bool) -> str:
    is_continued = leaf.startswith("##") and len(leaf) > 2 and not is_first
    return spelling(leaf[2:] if is_continued else leaf)


def _difference(gold: LabelledTree, word: int, leaf: str | None) -> str:
    expected = repr(gold.words[word]) if word < gold.num_leaves else "the end"
    return f"at word {word + 1}, {'the end' if leaf is None else repr(leaf)} is predicted for {expected}"


def _other_words(tree: LabelledTree, gold: LabelledTree, problem: str) -> ValueError:
    return ValueError(
        f"{tree.place or 'a predicted tree'} and {gold.place or 'its gold tree'} have different words: "
        f"{problem}; parse the gold sentences themselves, read with the same preprocessing"
    )
