"""Relative clauses, against a definition on nested trees."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import batch_of, is_word

from pretraining.relative_clauses import RelativeClauses

THE, VERB, PRONOUN, NOUN = [1], [2], [3], [4]
TREES = st.recursive(st.sampled_from([THE, VERB, PRONOUN, NOUN]), lambda below: st.tuples(below, below), max_leaves=12)


@pytest.fixture(scope="module")
def clauses() -> RelativeClauses:
    found = RelativeClauses(torch.ones(9), [])
    found.determiners, found.verbs, found.pronouns = {1}, {2}, {3}
    return found


def words_of(tree) -> list:
    return [tree] if is_word(tree) else [*words_of(tree[0]), *words_of(tree[1])]


def with_noun(left, clause):
    """The two together, with the clause at the narrowest phrase on the right of the other part."""
    if is_word(left) or is_word(left[1]) or left[0] == THE:
        return left, clause
    return left[0], with_noun(left[1], clause)


def joined(tree, split: int):
    left, right = tree
    before = len(words_of(left)) - 1
    if split == before:
        return with_noun(left, right)
    return (joined(left, split), right) if split < before else (left, joined(right, split - before - 1))


def at_first_verb(clause, is_behind: bool = False):
    """The clause before the first verb on its right side that is not its first word's neighbour alone, and the rest."""
    if is_word(clause):
        return None
    left, right = clause
    if words_of(right)[0] == VERB and (is_behind or len(words_of(left)) > 1):
        return left, right
    if cut := at_first_verb(right, True):
        return (left, cut[0]), cut[1]
    return None


def ended(tree, split: int):
    left, clause = tree
    if split != len(words_of(left)) - 1 or VERB in words_of(left) or not (cut := at_first_verb(clause)):
        return tree
    return (left, cut[0]), cut[1]


def mended(tree):
    for split, word in enumerate(words_of(tree)[1:]):
        if word == PRONOUN:
            tree = ended(joined(tree, split), split)
    return tree


@given(st.lists(TREES, min_size=1, max_size=4))
def test_trees_are_those_of_the_definition(clauses, trees):
    spans, pieces = batch_of(trees)
    found = clauses(spans, pieces)
    assert found.equal(batch_of(list(map(mended, trees)))[0]) and spans.equal(batch_of(trees)[0])


HOSTED, MAN, CAR, WHO, SAID, LEFT, HE = [10], [11], [12], [13], [14], [15], [16]


def test_clauses_end_before_the_verb_of_the_sentence_and_belong_to_the_noun():
    clauses = RelativeClauses(torch.ones(20), [])
    clauses.determiners, clauses.verbs, clauses.pronouns = {THE[0]}, {SAID[0], HOSTED[0]}, {WHO[0]}

    def mend(tree):
        return clauses(*batch_of([tree])).equal

    man, car = (THE, MAN), (THE, CAR)
    assert mend(((HE, (HOSTED, man)), (WHO, LEFT)))(batch_of([(HE, (HOSTED, (man, (WHO, LEFT))))])[0])
    assert mend((man, (WHO, (LEFT, (SAID, car)))))(batch_of([((man, (WHO, LEFT)), (SAID, car))])[0])
    assert mend((man, (WHO, (SAID, LEFT))))(batch_of([(man, (WHO, (SAID, LEFT)))])[0])  # the clause's own verb


def test_nouns_verbs_and_pronouns_are_found_by_their_places():
    man, car = (THE, MAN), (THE, CAR)
    seen = [(man, (SAID, (car, (HOSTED, man)))), ((man, (WHO, (SAID, car))), (LEFT, car)), (HE, (SAID, car))]
    odds = torch.ones(20)
    odds[THE[0]], odds[[SAID[0], HOSTED[0], LEFT[0]]] = 0.1, 9.0
    found = RelativeClauses(odds, [batch_of(seen * 50)])
    assert (found.determiners, found.verbs, found.pronouns) == ({THE[0]}, {SAID[0], LEFT[0]}, {WHO[0]})
    few = RelativeClauses(odds, [batch_of(seen * 49)])
    assert (few.verbs, few.pronouns) == (set(), set())
    odds[WHO[0]] = 9.0  # and it is in front of what looks like the rest of a sentence
    found = RelativeClauses(odds, [batch_of([*seen, (man, (WHO, (SAID, car)))] * 50)])
    assert (found.verbs, found.pronouns) == ({SAID[0], LEFT[0]}, {WHO[0]})
    odds[SAID[0]] = 2
    assert RelativeClauses(odds, [batch_of(seen * 50)]).pronouns == set()
