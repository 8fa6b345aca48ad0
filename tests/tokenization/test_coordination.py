"""Which words coordinate, by the text alone; and which commas of a sentence stand in lists."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from modeling_fast_r2d2 import TreeParser
from tokenization_fast_r2d2 import find_coordinators, train_tokenizer
from tokenization_fast_r2d2.coordination import loose_commas
from tokenization_fast_r2d2.language import COMMAS
from tokenization_fast_r2d2.reading import pad_batch, sentences_to_parse

NOUNS = [first + last for first in ("bav", "dol", "fum", "gir", "kes") for last in "abcdefghijklmnopqrstuvwxyz"]


def text(number: int = 300) -> list[str]:
    """Sentences in which neighbours of *ja* come in both orders, and those of *nu* hardly ever."""
    chance = random.Random(0)
    pairs = [chance.sample(NOUNS, 2) for _ in range(20)]
    joined = [f"Tas {' ja '.join(chance.sample(pair, 2))} mor." for pair in chance.choices(pairs, k=number)]
    return joined + [f"Tas {first} nu {last} mor." for first, last in chance.choices(pairs, k=number)]


@pytest.fixture
def frequent(monkeypatch):
    """As many words count as common as the text has that are no nouns."""
    monkeypatch.setattr("tokenization_fast_r2d2.coordination.COMMONEST", 4)


def test_coordinators_are_found_in_raw_text(frequent):
    assert find_coordinators(text()) == find_coordinators(reversed(text())) == ["ja"]
    assert find_coordinators([]) == find_coordinators(text()[300:]) == []
    assert find_coordinators(text(5)) == []  # too few to be sure
    assert find_coordinators(["我和你走，你和我来"] * 100) == []  # words cannot be told
    hindi = [line.replace("ja", "या").replace("bav", "की") for line in text()]  # with signs that are no letters
    assert find_coordinators(hindi) == ["या"]


# Each comma is followed by what it is: 1 loose, 0 not.
@pytest.mark.parametrize("sentence", [
    "She bought apples ,1 pears and plums",
    "She bought apples ,1 pears ,1 figs ,1 nuts or plums .",
    "Apples ,1 pears ,1 and plums",
    "They sell fresh bread ,1 cheap wine and good cheese",
    "old lions ,1 two bears ,1 and elephants ; we saw them",
    "He came ,1 too",
    "In London ,1 England ,0 it rained for two long days and nights",
    "When he came ,0 she left the house",
    "When he came ,0 and she had left the house ,0 it rained again",
    "He said ,0 `` apples are good ''",
    "apples ( red ) ,0 pears and plums",
])  # fmt: skip
def test_commas_in_lists(sentence):
    leaves = [leaf[0] if leaf[0] == "," else leaf for leaf in sentence.split()]
    marks = [leaf for leaf in leaves if not leaf[0].isalpha()]
    places = [sum(leaf[0].isalpha() for leaf in leaves[:k]) for k, leaf in enumerate(leaves) if not leaf[0].isalpha()]
    found = loose_commas([leaf for leaf in leaves if leaf[0].isalpha()], marks, places, ["and", "or"])
    shown = [f",{place in found:d}" for mark, place in zip(marks, places, strict=True) if mark == ","]
    assert shown == [leaf for leaf in sentence.split() if leaf[0] == ","]


@given(st.lists(st.sampled_from(["and", "a", "B", ",", "、", ".", '"', ")"]), max_size=12))
def test_only_commas_are_loose(leaves):
    words = [leaf for leaf in leaves if leaf.isalpha()]
    marks = [leaf for leaf in leaves if not leaf.isalpha()]
    places = [sum(map(str.isalpha, leaves[:k])) for k, leaf in enumerate(leaves) if not leaf.isalpha()]
    found = loose_commas(words, marks, places, {"and"})
    alone = {place for mark, place in zip(marks, places, strict=True) if mark in COMMAS}
    others = {place for mark, place in zip(marks, places, strict=True) if mark in ".)"}
    assert found <= alone - others
    without = loose_commas(words, marks, places, ())
    stops = sorted(alone | others | {len(words)})
    assert without <= found
    for place in without - {len(words)}:
        assert min(stop for stop in stops if stop > place) - place == 1


def test_coordinators_travel_with_the_tokenizer(tmp_path):
    sentences = ["a , b ja c", "a , b ja c d"]
    for coordinators, signs in ((None, [1, 1]), (["ja"], [0, 0])):
        train_tokenizer([*sentences] * 2, 40, show_progress=False, coordinators=coordinators).save_pretrained(tmp_path)
        read = sentences_to_parse(AutoTokenizer.from_pretrained(tmp_path), sentences, set_marks_aside=True)
        assert [row[0] for row in pad_batch(read)["split_signs"].tolist()] == signs


def test_the_bundled_parser_finds_lists():
    parser = TreeParser.from_pretrained("fast-r2d2-tiny")
    [first, second] = parser(["He speaks French, German and Italian.", "In 1990, sales and profits rose."])
    assert first.brackets() == "((He (speaks (((French ,) German) (and Italian)))) .)"
    assert second.brackets().startswith("((((In 1990) ,)")
