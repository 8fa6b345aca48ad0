"""Predicted trees beside gold ones, over the same leaves."""

import re
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
    parts = [".+?" if leaf.lower() in UNKNOWN else re.escape(_spelling_of_leaf(leaf, False)) for leaf in tree.words]
    pattern = "\n?".join(f"({part})" for part in parts)  # a dot matches no line end, so no leaf reaches over one
    text = "\n".join(map(spelling, gold.words))
    found = re.fullmatch(pattern, text)
    if not found:
        _refuse(tree, gold, 0, tree.words[0])
    return [text.count("\n", 0, found.start(group)) for group in range(1, len(parts) + 1)]


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
