"""Relative clauses in trees: they belong to the noun in front of them, and end before the verb of the sentence.

A parser that learnt from raw text alone joins them too late: ``((hosted (a delegation)) (which left))`` should be
``(hosted ((a delegation) (which left)))``. And it takes the verb of the sentence into them: ``((the man) (who (called
(said no))))`` should be ``(((the man) (who called)) (said no))``.

Trees and neighbours tell what kind of word a word is, as far as it is needed here. A noun ends a constituent that
begins with a determiner. The commonest verbs are apart (see `FirstWords`), and make sentences of the constituents in
front of them. A relative pronoun stands behind nouns and before such verbs. What begins sentences and stands before
verbs is a subject, such as *he*, and what stands behind subjects and pronouns is a verb, too. What stands behind nouns
and before subjects opens a clause, as *that* does. Words are known by their first pieces.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from torch import Tensor

from pretraining.first_words import MOST_OF_DETERMINERS
from pretraining.right_edges import attach, splits_to_the_right
from tokenization_fast_r2d2.trees import Span

LEAST_COUNT = 50  # of a word of which something is said, but for verbs behind subjects
MOST_WORDS_OF_NOUNS, LEAST_OF_NOUNS = 3, 0.15  # of the constituents that they end; share of their places
LEAST_ODDS_OF_VERBS, LEAST_OF_VERBS, MOST_FIRST = 3.0, 0.25, 0.1  # shares: that make sentences; that begin them
LEAST_BEHIND_NOUNS, LEAST_BEFORE_VERBS = 0.55, 0.15  # shares: of pronouns; of the best pronoun
SHARE_OF_BEST = 0.38  # of pronouns and of subjects: before verbs, by the share of the best
LEAST_FIRST = 0.2  # share of subjects that begin sentences
LEAST_BEHIND_SUBJECTS, FEWEST_BEHIND_SUBJECTS, FEWEST_VERBS = 0.05, 3, 8  # of verbs: share, number, of how many
OPENERS_BEHIND_NOUNS, OPENERS_BEFORE_SUBJECTS = 0.25, 0.1  # shares

Row = tuple[list[Span], list[int]]  # the spans of a tree over words, by split point, and the first pieces of its words


class RelativeClauses:
    """Finds determiners, verbs and what opens clauses in trees, and mends relative clauses.

    Args:
        odds: ``(vocab_size,)``, of `FirstWords`.
        trees: trees, and the first pieces of their words, as for `FirstWords`.

    Attributes:
        determiners, nouns, pronouns, subjects, verbs, openers: first pieces. Pronouns open clauses, too.
    """

    def __init__(self, odds: Tensor, trees: Iterable[tuple[Tensor, Tensor]]):
        rows = [row for batch in trees for row in rows_of(*batch)]
        words = Neighbours(pieces for _, pieces in rows)
        self.determiners = {piece for piece in words.total if odds[piece] < MOST_OF_DETERMINERS}
        self.nouns = find_nouns(rows, words.total, self.determiners)
        known = {piece for piece, count in words.total.items() if count >= LEAST_COUNT} - self.nouns
        common = find_verbs(rows, words) & {piece for piece in known if odds[piece] >= LEAST_ODDS_OF_VERBS}
        are_behind, are_before = words.behind(self.nouns), words.before(common)
        self.pronouns = near_best(are_before, known & at_least(LEAST_BEHIND_NOUNS, are_behind), LEAST_BEFORE_VERBS)
        begin = {piece for piece in known if words.firsts[piece] >= LEAST_FIRST * words.total[piece]}
        self.subjects = near_best(are_before, begin)  # he, they, there
        verbs = find_verbs_behind(self.subjects | self.pronouns, words)
        openers = known & at_least(OPENERS_BEHIND_NOUNS, are_behind)
        openers &= at_least(OPENERS_BEFORE_SUBJECTS, words.before(self.subjects))
        self.openers = self.pronouns | (openers - verbs)
        self.verbs = (verbs | common) - self.openers  # (the book) (which (...)) looks like a sentence, too

    def __call__(self, spans: Tensor, pieces: Tensor) -> Tensor:
        """Trees in which relative clauses are mended.

        Args:
            spans: ``(batch, num_words - 1, 2)`` long, trees over words as of `consensus.minimum_risk_trees`.
            pieces: ``(batch, num_words)`` long, the first piece of each word.
        """
        spans = spans.clone()
        for number, (row, words) in enumerate(rows_of(spans, pieces)):
            for split, word in enumerate(words[1:]):
                if word in self.pronouns:
                    self.join_with_noun(row, words, split)
                if word in self.openers:
                    self._end_before_verb(row, words, split)
            spans[number, : len(row)] = spans.new_tensor(row).view(-1, 2)
        return spans

    def join_with_noun(self, spans: list[Span], words: list[int], split: int) -> None:
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
        are_verbs = [word in self.verbs for word in words]
        own = first + 1  # the verb of the clause, as in "who called", unless it has a subject, as in "that he wrote"
        if not (self.subjects | self.determiners).isdisjoint(words[own : own + 1]):
            own = are_verbs.index(True, own) if any(are_verbs[own:]) else len(words)
        inside = splits_to_the_right(spans, (first, len(spans)))
        ends = [end for end in inside if end >= own and are_verbs[end + 1] and words[end] not in self.subjects]
        if ends:
            for outer in [split, *inside[: inside.index(ends[0])]]:
                spans[outer] = (spans[outer][0], ends[0])
            spans[ends[0]] = whole


class Neighbours:
    """Counts of words and of pairs of neighbours."""

    def __init__(self, sentences: Iterable[list[int]]):
        self.total, self.firsts, self.pairs = Counter[int](), Counter[int](), Counter[tuple[int, int]]()
        for words in sentences:
            self.total.update(words)
            self.firsts.update(words[:1])
            self.pairs.update(itertools.pairwise(words))

    def before(self, others: Collection[int]) -> dict[int, float]:
        """For each word, in which share of its places it stands before one of the others."""
        return self._shares((word, count) for (word, other), count in self.pairs.items() if other in others)

    def behind(self, others: Collection[int]) -> dict[int, float]:
        return self._shares((word, count) for (other, word), count in self.pairs.items() if other in others)

    def _shares(self, counted: Iterable[tuple[int, int]]) -> dict[int, float]:
        counts = Counter[int]()
        for word, count in counted:
            counts[word] += count
        return {word: counts[word] / count for word, count in self.total.items()}


def at_least(least: float, shares: dict[int, float]) -> set[int]:
    return {word for word, share in shares.items() if share >= least}


def near_best(shares: dict[int, float], words: set[int], least: float = 0.0) -> set[int]:
    """Those of these words that have nearly the largest share; none if even that is less than ``least``."""
    best = max((shares[word] for word in words), default=0.0)
    return {word for word in words if best > least and shares[word] >= SHARE_OF_BEST * best}


def find_nouns(rows: list[Row], total: Counter[int], determiners: set[int]) -> set[int]:
    ends: Counter[int] = Counter()
    for spans, pieces in rows:
        short = [(i, j) for i, j in spans if j - i < MOST_WORDS_OF_NOUNS]
        ends.update(pieces[j] for i, j in short if pieces[i] in determiners)
    return {piece for piece, count in ends.items() if count > LEAST_OF_NOUNS * total[piece]}


def find_verbs(rows: list[Row], words: Neighbours) -> set[int]:
    """Words that make a whole sentence of the constituent in front of them, and do not begin one."""
    behind, whole = Counter[int](), Counter[int]()
    for spans, pieces in rows:
        for split, (i, j) in enumerate(spans):
            if i < split < j - 1:  # both parts are constituents
                behind[pieces[split + 1]] += 1
                whole[pieces[split + 1]] += j - i == len(spans)
    often = {piece for piece, count in behind.items() if LEAST_COUNT <= count <= whole[piece] / LEAST_OF_VERBS}
    return {piece for piece in often if words.firsts[piece] < MOST_FIRST * words.total[piece]}


def find_verbs_behind(subjects: set[int], words: Neighbours) -> set[int]:
    shares, total = words.behind(subjects), words.total
    often = {piece for piece in at_least(LEAST_BEHIND_SUBJECTS, shares) if total[piece] >= FEWEST_VERBS}
    return {piece for piece in often if shares[piece] * total[piece] >= FEWEST_BEHIND_SUBJECTS}


def rows_of(spans: Tensor, pieces: Tensor) -> Iterator[Row]:
    for row, words in zip(spans.tolist(), pieces.tolist(), strict=True):
        kept = [(first, last) for first, last in row if first >= 0]
        yield kept, words[: len(kept) + 1]
