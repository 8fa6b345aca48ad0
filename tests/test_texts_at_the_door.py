"""What is no text is refused by row, wherever texts enter; streams give what came before."""

import json

import numpy as np
import pandas
import pytest
from transformers import pipeline

from fast_r2d2_entry_points.command_line import main
from modeling_fast_r2d2 import FastR2D2Model, TreeParser, bundled_checkpoint
from modeling_fast_r2d2.parsing.nltk import FastR2D2NltkParser
from tokenization_fast_r2d2 import tokenize_sentences, train_tokenizer
from tokenization_fast_r2d2.lines import chunks
from tokenization_fast_r2d2.processing_fast_r2d2 import FastR2D2Processor

SURROGATE = "a \udcff b"
NO_TEXTS = [None, 3, 2.5, float("nan"), True, b"a cat", ["a", "cat"], SURROGATE, "\ud800\udc00"]
NO_WORDS = [None, 3, "a cat", b"a cat", {"a": "cat"}, {"cat"}, ["a", None], ["a", 3], [["a"]], ["a", SURROGATE]]


HARD = [
    "Don't touch the stove.",
    "\"We cannot see the cats' tails,\" said O'Neill's AT&T man (a well-known one).",
    "He paid $1,234.56 or 3.5% at 10:30 to bob@mail.example.org, see https://example.com/a?b=1&c=2!",
    "I’d’ve seen 👩‍👩‍👧👍🏽 and C++ in the U.S.",
    "他說，我們去。",
    "It is said That He Saw The cat, in the house.",  # where the bonuses of names and of marks change the tree
]


@pytest.fixture
def parser() -> TreeParser:
    return TreeParser.from_pretrained("fast-r2d2-tiny")


@pytest.mark.parametrize("sentence", NO_TEXTS, ids=ascii)
def test_a_row_that_is_no_text_is_named_at_every_door(parser, sentence):
    rows = ["a cat", sentence]
    embedder, nltk = FastR2D2Model.from_pretrained(bundled_checkpoint()), FastR2D2NltkParser(parser)
    for door in (
        parser,
        embedder.encode,
        lambda texts: tokenize_sentences(parser.tokenizer, texts),
        lambda texts: train_tokenizer(texts, show_progress=False),
        lambda texts: train_tokenizer(texts, kind="word", show_progress=False),
        lambda texts: list(nltk.raw_parse_sents(texts)),
    ):
        with pytest.raises(ValueError, match="^row 1: a (text must be a string|lone surrogate)"):
            door(rows)
    with pytest.raises(ValueError, match="^row 0: a "):
        embedder.constituents(sentence)


@pytest.mark.parametrize("words", NO_WORDS, ids=ascii)
def test_a_row_that_is_no_list_of_words_is_named_at_every_door(parser, words):
    rows = [["a", "cat"], words]
    for door in (
        lambda given: parser(given, is_split_into_words=True),
        lambda given: tokenize_sentences(parser.tokenizer, given, is_split_into_words=True),
        lambda given: list(FastR2D2NltkParser(parser).parse_sents(given)),
    ):
        with pytest.raises(ValueError, match="^row 1( must be a list of strings|, word .: a )"):
            door(rows)


@pytest.mark.parametrize("sentences", ["a cat", b"a cat", None, 3, {"text": "a cat"}], ids=ascii)
def test_what_is_no_list_of_sentences_is_refused(parser, sentences):
    doors = [parser, lambda given: tokenize_sentences(parser.tokenizer, given)]
    if not isinstance(sentences, bytes):  # whose parts are numbers
        doors.append(FastR2D2Processor.from_pretrained(bundled_checkpoint()))
    for door in doors:
        with pytest.raises(ValueError, match="sentences must be a list of sentences, got one .*; put it in a list"):
            door(sentences)


def test_a_table_is_refused_and_its_column_is_welcome(parser):
    table = pandas.DataFrame({"text": ["a cat", "it rained"], "label": [0, 1]})
    encode = FastR2D2Model.from_pretrained(bundled_checkpoint()).encode
    for door in (parser, encode, parser.parse_texts, lambda texts: train_tokenizer(texts, show_progress=False)):
        with pytest.raises(ValueError, match="sentences must be a list of sentences, got a DataFrame; give one column"):
            door(table)
    with pytest.raises(ValueError, match="a text must be a string"):
        pipeline("constituency-parsing", model=parser.model, tokenizer=parser.tokenizer)(table)
    for column in (table["text"], table["text"].to_numpy(), iter(table["text"])):
        assert [parsed.leaves for parsed in parser(column)] == [["a", "cat"], ["it", "rained"]]
    assert encode(table["text"]).shape[0] == 2


@pytest.mark.parametrize(("offsets", "message"), [
    ([[(0, 1), (2, 5)]], "word_offsets must have one row per sentence, 2, got 1"),
    ([[(0, 1), (2, 5)], [(0, 2)]], "row 1 must have one pair of word_offsets per word, 2, got 1"),
])  # fmt: skip
def test_words_without_offsets_are_refused(parser, offsets, message):
    rows = [["a", "cat"], ["it", "rained"]]
    with pytest.raises(ValueError, match=message):
        parser(rows, is_split_into_words=True, word_offsets=offsets)
    whole = [[(0, 1), (2, 5)], np.array([(0, 2), (5, 11)])]
    assert [tuple(span) for span in parser(rows, True, whole)[1].offsets] == [(0, 2), (5, 11)]


def test_other_strings_and_lists_are_welcome(parser):
    assert [parsed.leaves for parsed in parser(np.array(["a cat", "\U0001f600 it"]))] == [["a", "cat"], ["😀", "it"]]
    rows = [("a", "cat"), np.array(["it", "rained"])]
    assert [parsed.leaves for parsed in parser(rows, is_split_into_words=True)] == [["a", "cat"], ["it", "rained"]]
    assert len(parser(text for text in ("a cat, asleep", "it rained"))) == 2
    assert parser([]) == []


def test_the_command_line_names_the_argument_in_one_line(capsys):
    with pytest.raises(SystemExit) as exit_code:
        main(["parse", "the cat sat", SURROGATE, "never read"])
    captured = capsys.readouterr()
    assert exit_code.value.code == 2 and captured.out.count("\n") == 1 and "sat" in captured.out
    assert "error: row 1: a lone surrogate, '\\udcff', at character 2" in captured.err
    assert captured.err.count("\n") == 1


def test_a_stream_gives_what_was_read_before_an_error(parser, tmp_path, capsys):
    (tmp_path / "lines.txt").write_bytes(b"the cat sat\nit rained\nB\xe4r\n")
    with pytest.raises(SystemExit):
        main(["parse", "--file", str(tmp_path / "lines.txt")])
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2 and "lines.txt, line 3: not UTF-8" in captured.err
    trees, nltk = [], FastR2D2NltkParser(parser)
    with pytest.raises(ValueError, match="^row 2: a text must be a string"):
        for found in nltk.raw_parse_sents(["the cat sat", "it rained", None]):
            trees += found
    assert len(trees) == 2


def failing(count, error):
    yield from range(count)
    raise error


@pytest.mark.parametrize("count", range(9))
def test_no_item_before_an_error_is_lost(count):
    found = []
    with pytest.raises(OSError, match="gone"):
        for chunk in chunks(failing(count, OSError("gone")), 2, 4):
            found += chunk
    assert found == list(range(count))


def test_every_door_reads_the_same_words_and_gives_the_same_tree(parser, model, tmp_path, capsys):
    import spacy

    import views
    from modeling_fast_r2d2.parsing.spacy import FastR2D2Component

    expected = [(parsed.leaves, parsed.tree) for parsed in parser(HARD)]
    assert expected[0][0] == ["Do", "n't", "touch", "the", "stove", "."]
    brackets = [tree.brackets(leaves) for leaves, tree in expected]
    given_words = parser([leaves for leaves, _ in expected], is_split_into_words=True)
    assert [(parsed.leaves, parsed.tree) for parsed in given_words] == expected
    [*found] = parser.parse_texts(HARD)
    assert [(parsed.leaves, parsed.tree) for [parsed] in found] == expected
    (tmp_path / "texts.txt").write_text("\n\n".join(HARD), encoding="utf-8")
    for arguments in (HARD, ["--text", *HARD], ["--file", str(tmp_path / "texts.txt")],
                      ["--text", "--file", str(tmp_path / "texts.txt")]):  # fmt: skip
        main(["parse", "--format", "brackets", *arguments])
        assert [line for line in capsys.readouterr().out.splitlines() if line] == brackets
    pipe = pipeline("constituency-parsing", model=model, tokenizer=parser.tokenizer)
    assert [result["brackets"] for result in pipe(HARD)] == brackets
    trees = [tree for trees in FastR2D2NltkParser(parser).raw_parse_sents(HARD) for tree in trees]
    assert trees == [tree.to_nltk(leaves) for leaves, tree in expected]
    component = FastR2D2Component(parser)
    for leaves, tree in expected:  # spaCy's own tokens, where they are the same
        starts = [True] + [False] * (len(leaves) - 1)
        doc = component(spacy.tokens.Doc(spacy.blank("en").vocab, leaves, sent_starts=starts))
        spans = {(span.start, span.end - 1) for span in next(doc.sents)._.constituents if len(span) > 1}
        assert spans == set(tree.spans)
    for text, (leaves, _) in zip(HARD, expected, strict=True):
        text = f"It is so. \n {text}"
        copied = json.loads(views.copy_view(views.sentences_of(text)[1], "parser", "JSON"))
        assert copied["leaves"] == leaves == [text[start:end] for start, end in copied["leaf_offsets"]]


@pytest.mark.parametrize("punctuation", ["aside", "keep"])
def test_every_door_gives_the_vectors_of_the_same_words(parser, punctuation):
    embedder = FastR2D2Model.from_pretrained(bundled_checkpoint(), punctuation=punctuation)
    with_vectors = TreeParser(embedder, parser.tokenizer, with_vectors=True)
    texts = [*HARD, "...", "Yes!"]
    expected = np.stack([parsed.vector for parsed in with_vectors(texts)])
    np.testing.assert_allclose(embedder.encode(texts), expected, atol=1e-5)
    processor = FastR2D2Processor.from_pretrained(bundled_checkpoint())
    processor.punctuation = punctuation  # which it reads from the model's configuration
    np.testing.assert_allclose(embedder.sentence_vectors(**processor(texts)).detach(), expected, atol=1e-5)
    constituents = embedder.constituents(HARD[0])
    leaves = [constituent.words[0] for constituent in constituents if len(constituent.words) == 1]
    assert leaves == ["Do", "n't", "touch", "the", "stove", *(["."] if punctuation == "keep" else [])]
    for row, text in enumerate(HARD):  # so the trees are the same
        np.testing.assert_allclose(embedder.constituents(text)[0].vector, expected[row], atol=1e-5)
