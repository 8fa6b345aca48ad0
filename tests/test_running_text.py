"""Running text: its sentences, its words, and trees that can be laid over it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from modeling_fast_r2d2.parsing.running_text import split_texts
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from tokenization_fast_r2d2 import train_tokenizer
from tokenization_fast_r2d2.reading import sentences_to_parse

TEXT = """  Dr. Smith doesn't know C++.  He paid 1,234.56 dollars; write to
bob.smith@mail.example.org or see https://example.com/a?b=1&c=2!

A heading

It was 5 p.m. in the U.S. when "it" rained."""
SENTENCES = [
    "Dr. Smith does n't know C++ .",
    "He paid 1,234.56 dollars ; write to bob.smith@mail.example.org or see https://example.com/a?b=1&c=2 !",
    "A heading",
    'It was 5 p.m. in the U.S. when " it " rained .',
]


def test_a_text_is_sentences_of_a_linguists_words(tokenizer):
    [sentences] = split_texts([TEXT], tokenizer)
    assert [" ".join(words) for words, _ in sentences] == SENTENCES
    for words, offsets in sentences:
        assert [TEXT[start:end] for start, end in offsets] == words


def test_texts_without_words_have_no_sentences_and_others_keep_their_places(tokenizer):
    texts = ["", "Yes.", " \n\t\n ", "\x00", "It rains. It pours."]
    assert [len(found) for found in split_texts(texts, tokenizer)] == [0, 1, 0, 0, 2]


@given(st.text("ab.?!\"'“”«») \n"))
def test_sentences_have_all_that_is_visible(tokenizer, text):
    [found] = split_texts([text], tokenizer)
    assert "".join(word for words, _ in found for word in words) == "".join(text.split())


def test_abbreviations_travel_with_the_tokenizer(tmp_path):
    text = "Ana saw Sen. Bo at 9. She met Eli. Eli fled."
    ends = {None: 1, (): 4, ("sen",): 3, ("0", "sen"): 2}
    for abbreviations, number in ends.items():
        train_tokenizer(["a b"] * 2, 40, show_progress=False, abbreviations=abbreviations).save_pretrained(tmp_path)
        [sentences] = split_texts([text], AutoTokenizer.from_pretrained(tmp_path))
        assert len(sentences) == number


@pytest.mark.parametrize("pieces", [False, True])
def test_constituents_lie_over_the_text(model, tokenizer, pieces):
    parser = TreeParser(model, tokenizer, pieces=pieces)
    [sentences] = parser.parse_texts([TEXT])
    assert len(sentences) == 4
    for parsed, sentence in zip(sentences, SENTENCES, strict=True):
        shown = [TEXT[start:end] for start, end in parsed.offsets]
        assert "".join(shown) == sentence.replace(" ", "") and len(shown) == len(parsed.leaves)
        for (first, last), (start, end) in zip(parsed.tree.spans, parsed.span_offsets, strict=True):
            assert "".join(TEXT[start:end].split()) == "".join(shown[first : last + 1])


@given(st.text("ab1 ,.'\"-()他，%\n"), st.booleans())
def test_offsets_give_back_the_leaves_and_nothing_is_lost(tokenizer, text, aside):
    [read] = sentences_to_parse(tokenizer, [text], set_marks_aside=aside)
    assert "".join(read.leaves).replace(" ", "") == ("".join(text.split()) or tokenizer.unk_token)
    assert sorted(set(read.word_ids)) == list(range(len(read.words))) and len(read.input_ids) == len(read.word_ids)
    if text.strip():
        assert [text[start:end] for start, end in read.offsets] == read.leaves
    words = text.split()
    [given_words] = sentences_to_parse(tokenizer, [words], is_split_into_words=True, set_marks_aside=aside)
    assert [" ".join(words)[start:end] for start, end in given_words.offsets] == (given_words.leaves if words else [""])
