"""Relative clauses in trees: they belong to the noun in front of them, and end before the verb of the sentence.

A parser that learnt from raw text alone joins them too late: ``((hosted (a delegation)) (which left))`` should be
``(hosted ((a delegation) (which left)))``. And it takes the verb of the sentence into them: ``((the man) (who (called
(said no))))`` should be ``(((the man) (who called)) (said no))``.

Trees tell what kind of word a word is, as far as it is needed here. A noun ends a constituent that begins with a
determiner. A verb is apart (see `FirstWords`), and makes a sentence of the constituent in front of it. A relative
pronoun stands behind nouns and before verbs. Words are known by their first pieces.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor

from pretraining.first_words import MOST_OF_DETERMINERS
from pretraining.right_edges import attach, splits_to_the_right
from tokenization_fast_r2d2.trees import Span

LEAST_COUNT = 50  # of what makes a word a verb or a pronoun
MOST_WORDS_OF_NOUNS, LEAST_OF_NOUNS = 3, 0.15  # of the constituents that they end; share of their places
LEAST_ODDS_OF_VERBS, LEAST_OF_VERBS, MOST_FIRST = 3.0, 0.25, 0.1  # shares: that make sentences; that begin them
LEAST_BEHIND_NOUNS, LEAST_BEFORE_VERBS = 0.55, 0.17  # shares

Row = tuple[list[Span], list[int]]  # the spans of a tree over words, by split point, and the first pieces of its words


class RelativeClauses:
    """Finds determiners, verbs and relative pronouns in trees, and mends relative clauses.

    Args:
        odds: ``(vocab_size,)``, of `FirstWords`.
        trees: trees, and the first pieces of their words, as for `FirstWords`.

    Attributes:
        determiners, verbs, pronouns: first pieces.
    """

    def __init__(self, odds: Tensor, trees: Iterable[tuple[Tensor, Tensor]]):
        rows = [row for batch in trees for row in rows_of(*batch)]
        total = Counter(piece for _, pieces in rows for piece in pieces)
        self.determiners = {piece for piece in total if odds[piece] < MOST_OF_DETERMINERS}
        nouns = find_nouns(rows, total, self.determiners)
        known = {piece for piece, count in total.items() if count >= LEAST_COUNT} - nouns
        verbs = find_verbs(rows, total) & {piece for piece in known if odds[piece] >= LEAST_ODDS_OF_VERBS}
        self.pronouns = find_pronouns(rows, total, nouns, verbs) & known
        self.verbs = verbs - self.pronouns  # (the book) (which (...)) looks like a sentence, too

    def __call__(self, spans: Tensor, pieces: Tensor) -> Tensor:
        """Trees in which relative clauses are mended.

        Args:
            spans: ``(batch, num_words - 1, 2)`` long, trees over words as of `consensus.minimum_risk_trees`.
            pieces: ``(batch, num_words)`` long, the first piece of each word.
        """
        spans = spans.clone()
        for number, (row, words) in enumerate(rows_of(spans, pieces)):
            if places := [split for split, word in enumerate(words[1:]) if word in self.pronouns]:
                for split in places:
                    self._join_with_noun(row, words, split)
                    self._end_before_verb(row, words, split)
                spans[number, : len(row)] = spans.new_tensor(row)
        return spans

    def _join_with_noun(self, spans: list[Span], words: list[int], split: int) -> None:
        """The constituent that splits before the pronoun gets the narrowest left part that is a phrase."""
        start, _ = spans[split]
        for outer in splits_to_the_right(spans, (start, split)):
            if outer == split - 1 or (outer == start and words[start] in self.determiners):
                break
            start = outer + 1
        attach(spans, split, start)

    def _end_before_verb(self, spans: list[Span], words: list[int], split: int) -> None:
        """A sentence that is nothing but a noun and its clause gets the first verb behind that of the clause."""
        whole, first = (0, len(spans)), split + 1
        if spans[split] != whole or not self.verbs.isdisjoint(words[:first]):
            return
        inside = splits_to_the_right(spans, (first, len(spans)))
        ends = [end for end in inside if end > first and words[end + 1] in self.verbs]
        if ends:
            for outer in [split, *inside[: inside.index(ends[0])]]:
                spans[outer] = (spans[outer][0], ends[0])
            spans[ends[0]] = whole


def find_nouns(rows: list[Row], total: Counter[int], determiners: set[int]) -> set[int]:
    ends: Counter[int] = Counter()
    for spans, pieces in rows:
        short = [(i, j) for i, j in spans if j - i < MOST_WORDS_OF_NOUNS]
        ends.update(pieces[j] for i, j in short if pieces[i] in determiners)
    return {piece for piece, count in ends.items() if count > LEAST_OF_NOUNS * total[piece]}


def find_verbs(rows: list[Row], total: Counter[int]) -> set[int]:
    """Words that make a whole sentence of the constituent in front of them, and do not begin one."""
    behind, whole, firsts = Counter[int](), Counter[int](), Counter(pieces[0] for _, pieces in rows)
    for spans, pieces in rows:
        for split, (i, j) in enumerate(spans):
            if i < split < j - 1:  # both parts are constituents
                behind[pieces[split + 1]] += 1
                whole[pieces[split + 1]] += j - i == len(spans)
    return {piece for piece, count in behind.items() if count >= LEAST_COUNT
            and whole[piece] >= LEAST_OF_VERBS * count and firsts[piece] < MOST_FIRST * total[piece]}  # fmt: skip


def find_pronouns(rows: list[Row], total: Counter[int], nouns: set[int], verbs: set[int]) -> set[int]:
    behind, before = Counter[int](), Counter[int]()
    for _, pieces in rows:
        behind.update(piece for noun, piece in zip(pieces, pieces[1:], strict=False) if noun in nouns)
        before.update(piece for piece, verb in zip(pieces, pieces[1:], strict=False) if verb in verbs)
    return {piece for piece, count in total.items()
            if behind[piece] >= LEAST_BEHIND_NOUNS * count and before[piece] >= LEAST_BEFORE_VERBS * count}  # fmt: skip


def rows_of(spans: Tensor, pieces: Tensor) -> Iterator[Row]:
    for row, words in zip(spans.tolist(), pieces.tolist(), strict=True):
        kept = [(first, last) for first, last in row if first >= 0]
        yield kept, words[: len(kept) + 1]
