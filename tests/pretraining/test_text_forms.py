"""Texts as people have them become paragraphs, whatever their layout."""

import json
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretraining.text_forms import document_paragraphs, form_of, paragraphs

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


@pytest.mark.parametrize("write, form", [
    (as_conllu, "CoNLL-U"), (as_extracts, "extracts"), (as_json, "JSON lines"), (as_book, "wrapped"), (list, "lines"),
])  # fmt: skip
def test_every_form_gives_the_same_paragraphs(write, form):
    lines = list(write(PARAGRAPHS))
    assert form_of(lines) == form and list(filter(None, paragraphs(lines, "text"))) == PARAGRAPHS


def test_documents_in_json_may_be_wrapped_and_some_may_be_empty():
    rows = [{"id": 1, "body": "\n".join(as_book([text]))} for text in PARAGRAPHS] + [{"id": 2, "body": None}, {"id": 3}]
    lines = [json.dumps(row) for row in rows]
    assert list(filter(None, paragraphs(lines, "body"))) == PARAGRAPHS
    with pytest.raises(ValueError, match=r"a\.jsonl has no key 'text' but id, body; give --text_column"):
        paragraphs(lines, "text", "a.jsonl")
    cut = [*lines, *lines[3:] * 3, lines[0][:30]]
    assert list(filter(None, paragraphs(cut, "body"))) == PARAGRAPHS
    with pytest.raises(ValueError, match=r"a\.json\.gz is not JSON with an object per line"):
        paragraphs(["[", *lines, "]"] * 2 + ["["] * 5, "body", "a.json.gz")


def test_the_form_of_a_document_is_no_files():
    for text in (json.dumps({"a": 1}), "# sent_id = 3", "# text = 5"):
        assert document_paragraphs(text) == [text]


def test_a_title_is_no_part_of_the_text_below_it():
    title, body = "लड़के की किताब और उसके दोस्तों की कहानी का पहला भाग", "लड़के ने किताब पढ़ी और फिर वह खेलने चला गया। " * 4
    assert document_paragraphs(f"{title}\n{body}") == [title, body.strip()]
    lines = [title, body.strip(), ""] * 60
    assert list(paragraphs(lines)) == lines


def test_sentences_go_on_in_scripts_without_small_letters():
    text = "लड़के ने किताब पढ़ी और फिर वह अपने दोस्तों के साथ नदी के किनारे खेलने चला गया। शाम को वे सब घर लौट आए।"
    lines = list(as_book([text] * 3))
    assert form_of(lines) == "wrapped" and list(paragraphs(lines)) == [text] * 3
    assert form_of([part + "।" for part in text.split("।")] * 20) == "lines"


def test_conllu_without_text_is_refused():
    lines = [line for line in as_conllu(PARAGRAPHS) if not line.startswith("# text")]
    with pytest.raises(ValueError, match=r"b\.conllu is CoNLL-U without lines `# text"):
        paragraphs(lines, "text", "b.conllu")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=30), max_size=20))
def test_whatever_is_read_no_line_is_lost_without_a_form(lines):
    lines = [line.strip() for line in lines]
    if form_of(lines) == "lines":
        assert list(paragraphs(lines)) == lines


def test_short_lines_in_lower_case_are_not_joined():
    sentences = ["the cat sleeps", "a dog barks at the moon", "it rained", "nobody came but the old man and his dog"]
    assert form_of(sentences * 20) == "lines" and form_of(" ".join(sentences * 20).split()) == "lines"


def test_a_text_may_begin_with_many_blank_lines():
    assert list(filter(None, paragraphs([""] * 6000 + PARAGRAPHS))) == PARAGRAPHS


@pytest.mark.parametrize("around", [["A sentence of a tutorial.", "# text = The cat sleeps."], ["# A heading"]])
def test_a_line_that_looks_like_conllu_does_not_make_it_such(around):
    lines = [*around, "# Another one"] * 5
    assert form_of(lines) == "lines" and list(paragraphs(lines)) == lines


def test_a_damaged_row_or_missing_comments_do_not_make_conllu_raw_text():
    rows = ["1\tDe\tde\tDET\t_\t_\t2\tdet\t_\t_", "2\tman\tman\tNOUN\t_\t_\t0\troot\t_\t_", ""]
    lines = ["# text = De man", *rows] * 9
    assert [*paragraphs([*lines, "# text = De man", *rows[:1], "x\tman", ""])] == ["De man"] * 10
    with pytest.raises(ValueError, match="CoNLL-U without lines"):
        paragraphs(rows * 9)
