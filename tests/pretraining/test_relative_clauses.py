"""Relative clauses, against a definition on nested trees; and sentences that are made with them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_trees import batch_of, is_word

from pretraining.relative_clauses import RelativeClauses
from pretraining.subject_clauses import COPIES, ClausesInSubjects
from pretraining.substitution import WordTree

THE, VERB, PRONOUN, NOUN, HE, THAT = [1], [2], [3], [4], [5], [6]
WORDS = st.sampled_from([THE, VERB, PRONOUN, NOUN, HE, THAT])
TREES = st.recursive(WORDS, lambda below: st.tuples(below, below), max_leaves=12)


@pytest.fixture(scope="module")
def clauses() -> RelativeClauses:
    found = RelativeClauses(torch.ones(9), [])
    found.determiners, found.verbs, found.pronouns, found.subjects, found.openers = {1}, {2}, {3}, {5}, {3, 6}
    found.nouns = {4}
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


def at_verb(clause, own: int, place: int = 0):
    """What stands before the first verb on the right side of a clause, behind its ``own`` word and no subject, and the
    rest. ``place`` words stand in front."""
    if is_word(clause):
        return None
    left, right = clause
    begin = place + len(words_of(left))
    if begin > own and words_of(right)[0] == VERB and words_of(left)[-1] != HE:
        return left, right
    if cut := at_verb(right, own, begin):
        return (left, cut[0]), cut[1]
    return None


def ended(tree, split: int):
    left, clause = tree
    if split != len(words_of(left)) - 1 or VERB in words_of(left):
        return tree
    own, words = 1, words_of(clause)
    if words[1:2] in ([THE], [HE]):
        own = words.index(VERB) if VERB in words else len(words)
    cut = at_verb(clause, own)
    return ((left, cut[0]), cut[1]) if cut else tree


def mended(tree):
    for split, word in enumerate(words_of(tree)[1:]):
        tree = joined(tree, split) if word == PRONOUN else tree
        tree = ended(tree, split) if word in (PRONOUN, THAT) else tree
    return tree


@given(st.lists(TREES, min_size=1, max_size=4))
def test_trees_are_those_of_the_definition(clauses, trees):
    spans, pieces = batch_of(trees)
    found = clauses(spans, pieces)
    assert found.equal(batch_of(list(map(mended, trees)))[0]) and spans.equal(batch_of(trees)[0])


HOSTED, MAN, CAR, WHO, SAID, LEFT = [10], [11], [12], [13], [14], [15]


def test_clauses_end_before_the_verb_of_the_sentence_and_belong_to_the_noun():
    clauses = RelativeClauses(torch.ones(20), [])
    clauses.determiners, clauses.verbs, clauses.pronouns = {THE[0]}, {SAID[0], HOSTED[0]}, {WHO[0]}
    clauses.subjects, clauses.openers = {HE[0]}, {WHO[0], THAT[0]}

    def mend(tree):
        return clauses(*batch_of([tree])).equal

    man, car = (THE, MAN), (THE, CAR)
    assert mend(((HE, (HOSTED, man)), (WHO, LEFT)))(batch_of([(HE, (HOSTED, (man, (WHO, LEFT))))])[0])
    assert mend((man, (WHO, (LEFT, (SAID, car)))))(batch_of([((man, (WHO, LEFT)), (SAID, car))])[0])
    assert mend((man, (WHO, (SAID, LEFT))))(batch_of([(man, (WHO, (SAID, LEFT)))])[0])  # the clause's own verb
    assert mend((man, (THAT, (HE, (HOSTED, (SAID, car))))))(batch_of([((man, (THAT, (HE, HOSTED))), (SAID, car))])[0])
    told = ((man, (WHO, (HOSTED, (HE, HOSTED)))), (SAID, car))  # in the words of "who said he was ill"
    assert mend((man, (WHO, (HOSTED, (HE, (HOSTED, (SAID, car)))))))(batch_of([told])[0])


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
    more = [*seen, (HE, (HOSTED, man)), (HE, (SAID, (car, (THAT, (HE, LEFT)))))]
    found = RelativeClauses(odds, [batch_of(more * 50)])
    assert (found.subjects, found.openers) == ({HE[0]}, {WHO[0], THAT[0]})
    assert found.verbs == {SAID[0], LEFT[0], HOSTED[0]}
    odds[SAID[0]] = 2
    assert RelativeClauses(odds, [batch_of(seen * 50)]).pronouns == set()


def word_tree(tree) -> WordTree:
    spans, _ = batch_of([tree])
    return WordTree(words_of(tree), list(map(tuple, spans[0].tolist())))


@given(TREES, TREES)
def test_subjects_get_clauses(clauses, tree, clause):
    make, relative = ClausesInSubjects(clauses, []), (PRONOUN, clause)
    make.clauses = [(word_tree((NOUN, relative)), (1, len(words_of(relative))))]
    expected = []
    if not is_word(tree):
        (*others, noun), following = words_of(tree[0]), words_of(tree[1])[0]
        is_plain = noun == NOUN and not any(word in others for word in (VERB, PRONOUN, THAT))
        if is_plain and following not in (NOUN, THE):
            expected = [word_tree((with_noun(tree[0], relative), tree[1]))] * COPIES
    assert make([word_tree(tree)], np.random.default_rng(0)) == expected


def test_clauses_of_objects_and_of_pronouns_are_taken(clauses):
    who, that, noun = (PRONOUN, (VERB, NOUN)), (THAT, (HE, VERB)), (THE, NOUN)
    trees = [
        (HE, (VERB, (noun, who))), (HE, (VERB, (noun, that))), ((noun, who), VERB), ((noun, that), VERB),
        (noun, who), (HE, (VERB, that)), (HE, (VERB, (noun, (PRONOUN, NOUN)))),
    ]  # fmt: skip
    for length, kept in ((10, 3), (2, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pretraining.subject_clauses.LONGEST_CLAUSE", length)
            make = ClausesInSubjects(clauses, map(word_tree, trees))
        found = [tree.words[first : last + 1] for tree, (first, last) in make.clauses]
        assert found == [words_of(who), words_of(that), words_of(who)][:kept]
    assert ClausesInSubjects(clauses, [])([word_tree((NOUN, VERB))], np.random.default_rng(0)) == []
