"""Sentences whose subjects have relative clauses. Text has few of them, so a parser hardly learns where such a clause
ends: ``(((the man) (who (sold (the car)))) left)``."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pretraining.relative_clauses import RelativeClauses
from pretraining.substitution import WordTree
from tokenization_fast_r2d2.trees import Span

LONGEST_CLAUSE, COPIES = 10, 3  # words; sentences that are made of one


class ClausesInSubjects:
    """Makes sentences whose subjects have a relative clause, of those whose subjects have none.

    Args:
        kinds: knows words, and to which noun a clause belongs.
        trees: trees in which relative clauses are mended. Clauses are taken from them.
    """

    def __init__(self, kinds: RelativeClauses, trees: Iterable[WordTree]):
        self.kinds = kinds
        self.clauses = [(tree, clause) for tree in trees for clause in self._clauses_of(tree)]

    def _clauses_of(self, tree: WordTree) -> Iterator[Span]:
        """Right parts with a verb that open with a pronoun or, behind the noun of an object, with another opener."""
        kinds, pieces = self.kinds, first_pieces(tree)
        for split, (first, last) in enumerate(tree.spans):
            opener, behind_object = pieces[split + 1], 0 < first < split and pieces[split] in kinds.nouns
            is_open = opener in kinds.pronouns or (opener in kinds.openers and behind_object)
            is_short = split + 1 < last <= split + LONGEST_CLAUSE and (first, last) != (0, len(tree.spans))
            if is_open and is_short and not kinds.verbs.isdisjoint(pieces[split + 2 : last + 1]):
                yield split + 1, last

    def __call__(self, trees: Sequence[WordTree], random: np.random.Generator) -> list[WordTree]:
        """New sentences from these, each with a clause from elsewhere."""
        ends = [self._end_of_subject(tree) if self.clauses else None for tree in trees]
        return [self._with_clause(tree, end, *self.clauses[random.integers(len(self.clauses))])
                for tree, end in zip(trees, ends, strict=True) if end is not None for _ in range(COPIES)]  # fmt: skip

    def _end_of_subject(self, tree: WordTree) -> int | None:
        """The last word of a subject without a clause, if the sentence parts into a subject and what begins like a
        verb."""
        if not tree.spans:
            return None
        kinds, pieces, end = self.kinds, first_pieces(tree), tree.spans.index((0, len(tree.spans)))
        is_plain = pieces[end] in kinds.nouns and (kinds.verbs | kinds.openers).isdisjoint(pieces[: end + 1])
        return end if is_plain and pieces[end + 1] not in kinds.nouns | kinds.determiners else None

    def _with_clause(self, tree: WordTree, end: int, other: WordTree, clause: Span) -> WordTree:
        begin = end + 1
        subject = WordTree([*tree.words[:begin], []], [*tree.spans[:end], (0, begin)])  # an empty word for the clause
        subject = subject.put_in((begin, begin), other, clause)
        self.kinds.join_with_noun(subject.spans, first_pieces(subject), end)
        return tree.put_in((0, end), subject, (0, len(subject.spans)))


def first_pieces(tree: WordTree) -> list[int]:
    return [word[0] for word in tree.words]
