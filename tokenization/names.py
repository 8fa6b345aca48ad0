"""Names: words that stand side by side and both begin with a capital letter, as in ``the New York Stock Exchange``.

A text without punctuation, in lower case, does not tell them from other words. But they mostly are one constituent, or
lie within one (Spitkovsky et al., 2012, "Capitalization Cues Improve Dependency Grammar Induction"). Training and
parsing can use this: see ``names_bonus`` of `FastR2D2Config`.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise


def points_in_names(texts: Sequence[str], word_ids: Sequence[int], bounds: Collection[int]) -> list[int]:
    """Split points within names: between two words that both begin with a capital letter and have no mark but quotes
    between them, and between the pieces of such words, which must not come apart before the name does.

    Args:
        texts: for each piece, its text or that of its word.
        word_ids: for each piece, the number of its word.
        bounds: split points where a mark other than a quote was set aside.
    """
    is_capital: dict[int, bool] = {}
    for word, text in zip(word_ids, texts, strict=True):
        is_capital.setdefault(word, text[:1].isupper())
    joints = list(enumerate(pairwise(word_ids)))
    between = [
        k for k, (word, after) in joints
        if word != after and is_capital[word] and is_capital[after] and k not in bounds
    ]  # fmt: skip
    in_names = {word_ids[k + side] for k in between for side in (0, 1)}
    return sorted(between + [k for k, (word, after) in joints if word == after and word in in_names])


__all__ = ["points_in_names"]
