"""Texts as people have them become paragraphs, whatever their layout."""

import json
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretraining.text_forms import form_of, paragraphs

PARAGRAPHS = [
    "The old man bought a new car, which his neighbours, who had never liked him, called a waste of his savings.",
    "It rained all day. Nobody went out, and the streets were empty until the evening, when the shops opened.",
    "She asked him why he had come, and he told her, as he had told everyone else, that he was only passing through.",
]


def as_conllu(texts):
    for number, text in enumerate(texts):
        yield f"# sent_id = {number}"
        yield f"# text = {text}"
        yield from (f"{place}\t{word}" for place, word in enumerate(text.split(), start=1))
        yield ""


def as_extracts(texts):
    return ['<doc id="1" url="u" title="A = b">', *texts, "</doc>"]


def as_json(texts):
    return [json.dumps({"id": "1", "title": "t", "text": "\n".join(texts)})]


def as_book(texts):
    return [line for text in texts for line in [*textwrap.wrap(text, 45), ""]]


@pytest.mark.parametrize(
    "write, form",
    [(as_conllu, "CoNLL-U"), (as_extracts, "extracts"), (as_json, "JSON lines"), (as_book, "wrapped"), (list, "lines")],
)
def test_every_form_gives_the_same_paragraphs(write, form):
    lines = list(write(PARAGRAPHS))
    assert form_of(lines) == form and list(filter(None, paragraphs(lines))) == PARAGRAPHS


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=30), max_size=20))
def test_whatever_is_read_no_line_is_lost_without_a_form(lines):
    lines = [line.strip() for line in lines]
    if form_of(lines) == "lines":
        assert list(paragraphs(lines)) == lines


def test_short_lines_in_lower_case_are_not_joined():
    sentences = [
        "the cat sleeps",
        "a dog barks at the moon",
        "it rained",
        "nobody came but the old man and his dog",
    ] * 20
    assert form_of(sentences) == "lines" and form_of(" ".join(sentences).split()) == "lines"


def test_a_text_may_begin_with_many_blank_lines():
    assert list(filter(None, paragraphs([""] * 6000 + PARAGRAPHS))) == PARAGRAPHS


@pytest.mark.parametrize("around", [["A sentence of a tutorial.", "# text = The cat sleeps."], ["# A heading"]])
def test_a_line_that_looks_like_conllu_does_not_make_it_such(around):
    lines = [*around, "# Another one"] * 5
    assert form_of(lines) == "lines" and list(paragraphs(lines)) == lines
