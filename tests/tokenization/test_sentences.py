"""Where sentences end, in any script; and which words are abbreviations, by the text alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization_fast_r2d2.sentences import find_abbreviations, split_text


@pytest.mark.parametrize("sentences", [
    ["Mr. Smith went to the U.S. in 1999.", "He came back.", '"Why?" asked Mary.', "He left."],
    ["El Sr. García llegó.", "¿Qué tal?", "¡Bien!", "«Sí.»", "Dijo que no."],
    ["Am 3. Oktober kam z. B. Herr Müller.", "Er ging..."],
    ["वह घर गया।", "वह सो गया।"],
    ["هل ذهبت؟", "نعم ذهبت."],
    ["그러면 안 돼.", "다시 해.", "그는 학교에 갔다."],
    ["Նա եկավ։", "Նա գնաց։"],
    ["The end . . .", "It is over"],
    ["« Pourquoi ? » demanda Marie.", "« Oui. »", "Il part."],
    ["„Guten Tag.“", "Er ging.", "„Wie geht's?“ fragte sie.", "»Gut.«", "Sie ging.", "(„Ja.“)", "Ende."],
    ["He said , `` Go . ''", "She went ."],
    ['He said, "Go."', "She went."],
    ["He left.", '"Why?" she asked.', "(It rained.)", "“Stop!” he cried.", "‘No.’", "She fell."],
    ["it rained.", "it poured!", "yes."],
    ["«Привет!» — сказал он.", "— Да."],
    ["משפט.\u200f", "זה."],
    ["NATO არის აქ.", "ეს არის წიგნი."],
    ["He said no... and left.", "Nothing.", "It was 5 p.m. when Yahoo! bought it."],
    ["You can't.", "It was Mary’s.", "She is at AT&T.", "It has 20°C.", "Il l'a."],
    ["J.-P. O'B. Smith and d'A. Camus left.", "It rained."],
])  # fmt: skip
def test_sentences_of_any_script_end_where_unicode_says(sentences):
    assert split_text("  ".join(sentences)) == sentences


def test_scripts_without_blanks_need_none_after_a_sentence():
    found = split_text("吾輩は猫である。名前はまだ無い！「何？」")
    assert found == ["吾輩は猫である。", "名前はまだ無い！", "「何？」"]
    assert split_text("値は３．５だ．次へ⁉はい") == ["値は３．５だ．", "次へ⁉", "はい"]
    assert split_text("មួយ។ពីរ") == ["មួយ។", "ពីរ"]


def test_a_number_of_a_list_goes_with_its_item():
    text = "What to know:\n1. Stay in.\n 12. It was May 3. He left in 7. I know."
    assert split_text(text, {"mr"}) == ["What to know:\n1. Stay in.", "12. It was May 3.", "He left in 7.", "I know."]
    assert split_text("1. Item one", set()) == ["1. Item one"]


@given(st.text(max_size=60))
def test_sentences_of_a_paragraph_lose_nothing_but_blanks(text):
    assert "".join("".join(split_text(text)).split()) == "".join(text.split())


@given(st.lists(st.sampled_from(["He", "met", "Dr.", "Sgt.", "Eli.", "Ada.", "3.", "fin", "B.", "U.S."]), max_size=12))
def test_a_full_stop_ends_a_sentence_unless_its_word_is_listed(words):
    assert split_text("See pp. 3-4 and No. 5. It ends.", {"pp"}) == ["See pp. 3-4 and No. 5.", "It ends."]
    found = split_text(" ".join(words), {"dr", "sgt", "0"})
    small = ("met", "fin")
    ends = [a in ("Eli.", "Ada.") and b not in (*small, "3.") for a, b in zip(words, words[1:], strict=False)]
    assert len(found) == sum(ends) + bool(words)


def test_abbreviations_are_found_in_raw_text():
    """Short words that mostly have a full stop, and not only at the end; never words that end sentences."""
    text = ["Gov. Lee met Eli. Eli met Gov. Kim in Ulm.", "He saw Eli and Gov. Ray.", "Then Kim left for Ulm."] * 5
    assert find_abbreviations(text) == ["gov"]
    assert find_abbreviations([*text, *["He met a Gov today."] * 20]) == []  # a word, too
    assert find_abbreviations([*text, *["He will gov well."] * 20]) == ["gov"]  # another word
    assert find_abbreviations([*text, *["That is what they gov."] * 20]) == []  # one that ends sentences
    assert find_abbreviations(text[:3]) == []  # too few to be sure
    german = ["Am 3. Mai kam Prof. Ott.", "Am 24. Juni war Prof. Ott fort."] * 5
    assert find_abbreviations(german) == ["0", "prof"]
    assert find_abbreviations([*german, *["Er hat 12 Kinder und 2 Hunde."] * 5]) == ["prof"]
