"""Words and marks of texts: a treebank's, with what belongs together whole, and nothing lost."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tokenization_fast_r2d2 import train_tokenizer
from tokenization_fast_r2d2.reading import sentences_to_parse
from tokenization_fast_r2d2.word_rules import CUTS, find_words
from tokenization_fast_r2d2.words import words_of_texts

ENGLISH = [  # written, and the words
    ("Don't touch the stove.", "Do n't touch the stove ."),
    ("DON’T! It’s, I'd've, let's", "DO N’T ! It ’s , I 'd 've , let 's"),
    ("The cats' tails can't be John's", "The cats ' tails ca n't be John 's"),
    ("We cannot; we're gonna, but they won't", "We can not ; we 're gon na , but they wo n't"),
    ("O'Neill's ma'am said rock 'n' roll in the '90s, 'em", "O'Neill 's ma'am said rock 'n' roll in the '90s , 'em"),
    ("'Why?' she said (yes).", "' Why ? ' she said ( yes ) ."),
    ("word(s), dog,cat yes—no wait...what?!", "word ( s ) , dog , cat yes — no wait ... what ? !"),
    ("Mr. Smith of the U.S.-based Inc. left the U.S.", "Mr. Smith of the U.S.-based Inc. left the U.S."),
    ("$5, US$1,234.56, 3.5% at 10:30 -5 .5 1990-2000", "$ 5 , US$ 1,234.56 , 3.5 % at 10:30 -5 .5 1990-2000"),
    ("a 62%-owned x_y (1/2)", "a 62%-owned x_y ( 1/2 )"),
    ("See https://en.wikipedia.org/wiki/Tree_(graph)'s.", "See https://en.wikipedia.org/wiki/Tree_(graph) 's ."),
    ("(www.x.org/a?b=c), x.org/y. Not www.x.org.", "( www.x.org/a?b=c ) , x.org/y . Not www.x.org ."),
    ("Mail bob.o-neill+x@mail.example.org!", "Mail bob.o-neill+x@mail.example.org !"),
    ("C++, C#, AT&T, well-known and/or R&D @bob #tag", "C++ , C# , AT&T , well-known and/or R&D @bob #tag"),
    ("👩‍👩‍👧👍🏽❤️🇩🇪🇫🇷ok5️⃣ 😀😀", "👩‍👩‍👧 👍🏽 ❤️ 🇩🇪 🇫🇷 ok5️⃣ 😀 😀"),
    ("[UNK]a [MASK] isn't [b]", "[UNK] a [MASK] is n't [ b ]"),
    ("a\x00b \x00 \u200b co\xadop", "a b co\xadop"),
]
SPLIT = [  # as treebanks have them
    "`` Do n't , '' he said -LRB- at Inc. . -RRB- 's 1\\/2 of S&P 500 's cats ' , -LCB- ... -RCB-",
    "The $ 5 U.S. car , 3.5 % -- ca n't you see ? '",
]
OTHERS = [  # no English rule harms them
    ("L'homme d'aujourd'hui ; qu'il a-t-il", "L'homme d'aujourd'hui ; qu'il a-t-il"),
    ("Foto's van 's avonds, EU:n «sí» ¿qué?", "Foto's van 's avonds , EU:n « sí » ¿ qué ?"),
    ('צה"ל ג\'ורג\' "שלום"', 'צה"ל ג\'ורג\' " שלום "'),
    ("邮箱abc@example.com。看https://x.org/a，谢谢", "邮箱 abc@example.com 。 看 https://x.org/a ， 谢谢"),
    ("か\u3099くせいか\u3099 www.x.org/aได้", "か\u3099くせいか\u3099 www.x.org/a ได้"),
    ("oʻzbek o’zbek o‘zbek ‘ha’", "oʻzbek o’zbek o‘zbek ‘ ha ’"),
    ("이른바‘갑질’ 논란", "이른바 ‘ 갑질 ’ 논란"),
    ("ราคา ๑๒,๓๔๕ บาท", "ราคา ๑๒,๓๔๕ บาท"),  # numbers in digits of their own stay whole
    ("値は３．５％と１２，３４５ ၁၂၃ ခု", "値は ３．５ ％ と １２，３４５ ၁၂၃ ခု"),
    ("2010，2011年", "2010 ， 2011 年"),
    ("हिन्दी भाषा। Կարո՞ղ צה״ל می‌خواهم", "हिन्दी भाषा । Կարո՞ղ צה״ל می‌خواهم"),
]
ANY_TEXT = st.text(st.sampled_from("ab1 ,.'’\"-()@/:&+#%$他か，\u0301\u200d👩🇩️n't\x00[]UNK\n")) | st.text()


def words(text, rule="english"):
    return [text[start:end] for (start, end), _ in find_words(text, rule, ("[UNK]", "[MASK]"))]


@pytest.mark.parametrize(("text", "found"), [*ENGLISH, *((text, text) for text in SPLIT)])
def test_english_words_are_a_treebanks(text, found):
    assert words(text) == found.split(" ")


@pytest.mark.parametrize(("text", "found"), OTHERS)
def test_words_of_other_languages_are_not_cut(text, found):
    assert words(text, "plain") == found.split(" ")


def test_scripts_without_blanks_have_the_tokenizers_words(tokenizer):
    text = "他說3.5。GDP、かなカナ"
    characters = train_tokenizer([text] * 2, 40, "character", show_progress=False)
    for tokens, kana in ((tokenizer, ["かなカナ"]), (characters, list("かなカナ"))):
        [found] = words_of_texts(tokens, [text])
        assert [text[i:j] for i, j in found] == [*"他說", "3.5", "。", "GDP", "、", *kana]


@pytest.mark.parametrize("kind", ["wordpiece", "character"])
def test_voiced_kana_are_read_alike_in_both_forms(kind):
    composed = "プールでおよぐ。"
    tokenizer = train_tokenizer([composed] * 2, 60, kind, show_progress=False)
    decomposed = unicodedata.normalize("NFD", composed)
    one, other = sentences_to_parse(tokenizer, [composed, decomposed])
    assert one.input_ids == other.input_ids and [unicodedata.normalize("NFC", w) for w in other.words] == one.words


def test_a_rule_travels_with_its_tokenizer(tmp_path):
    train_tokenizer(["do n't"] * 2, 40, word_rule="english", show_progress=False).save_pretrained(tmp_path)
    train_tokenizer(["do n't"] * 2, 40, show_progress=False).save_pretrained(tmp_path / "plain")
    places = [words_of_texts(AutoTokenizer.from_pretrained(at), ["don't"]) for at in (tmp_path, tmp_path / "plain")]
    assert places == [[[(0, 2), (2, 5)]], [[(0, 5)]]]
    with pytest.raises(ValueError, match="word_rule must be one of plain, english, got 'klingon'"):
        train_tokenizer(["a"], 40, word_rule="klingon")


@given(ANY_TEXT, st.sampled_from(list(CUTS)))
def test_words_are_in_order_and_nothing_between_them_is_visible(text, rule):
    place = 0
    for (start, end), _ in [*find_words(text, rule, ("[UNK]",)), ((len(text), len(text)), False)]:
        assert place <= start <= end and not any(map(str.isprintable, text[place:start].replace(" ", "")))
        assert start == len(text) or text[start:end].split() == [text[start:end]]
        place = end


@given(st.lists(st.sampled_from("do n't cats ' 's Mr. U.S. 3.5 `` '' -LRB- can ,".split())))
def test_reading_what_was_read_changes_nothing(tokens):
    once = words(" ".join(tokens))
    assert words(" ".join(once)) == once
