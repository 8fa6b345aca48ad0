"""spaCy documents get one tree per sentence over their own tokens, however they are batched, and keep it when saved."""

import os
import subprocess
import sys

import nltk
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_fast_r2d2 import bundled_checkpoint
from modeling_fast_r2d2.parsing.pretokenized import parse_tokens
from modeling_fast_r2d2.parsing.spacy import USER_DATA, FastR2D2Component, set_extensions

TEXTS = [
    "The old man bought a new car. Dogs bark.",
    "",
    "I don't know (yet).  \n\n He left   early, it seems!",
    "Yes",
    " \n ",
    "It costs 5km of \x00 soft\xadware? 日本 ☃.",
]


@pytest.fixture
def nlp():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("fast_r2d2", config={"checkpoint": bundled_checkpoint()})
    return nlp


@pytest.fixture
def two_trees(nlp):
    """``((Two dogs) ((barked loudly) .))`` and ``((They ate) .)``."""
    doc = nlp("Two dogs barked loudly. They ate.")
    doc.user_data[USER_DATA][:] = [(0, 1), (0, 4), (2, 3), (2, 4), (-1, -1), (5, 6), (5, 7)]
    return doc


def bounds(spans) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in spans]


def trees(doc) -> list[str]:
    return [sentence._.parse_string for sentence in doc.sents]


def test_trees_are_those_over_the_tokens(nlp):
    parser = nlp.get_pipe("fast_r2d2").parser
    for doc in map(nlp, TEXTS):
        for sentence in doc.sents:
            words = [token.text for token in sentence]
            [tree] = parse_tokens(parser, [words])
            wider = [span for span in sentence._.constituents if len(span) > 1]
            assert bounds(wider) == [(sentence.start + i, sentence.start + j + 1) for i, j, _ in tree]
            assert sentence._.parse_string.count("(X ") == max(len(words) - 1, 1)


@settings(max_examples=50)
@given(st.text(max_size=30) | st.lists(st.sampled_from("The cat don't ( . ! \n \x00 5km".split(" "))).map(" ".join))
def test_constituents_of_any_text_nest_and_have_all_tokens(nlp, text):
    doc = nlp(text)
    assert [token for sentence in doc.sents for token in sentence] == list(doc)
    for sentence in doc.sents:
        found = list(sentence._.constituents)
        assert found[0] == sentence and len(set(bounds(found))) == len(found) == 2 * len(sentence) - 1
        assert [span.start for span in found if len(span) == 1] == [token.i for token in sentence]
        for span in found:
            halves = list(span._.children)
            assert all(half._.parent == span for half in halves)
            assert bounds(halves) == ([(span.start, halves[0].end), (halves[0].end, span.end)] if halves else [])
            assert bool(halves) == (len(span) > 1) == bool(span._.labels)
            assert list(span._.constituents)[0] == span
        assert sentence._.parent is None


def test_attributes_of_a_tree_worked_out_by_hand(two_trees):
    doc = two_trees
    assert bounds(doc[0:5]._.constituents) == [(0, 5), (0, 2), (0, 1), (1, 2), (2, 5), (2, 4), (2, 3), (3, 4), (4, 5)]
    assert bounds(doc[2:5]._.children) == [(2, 4), (4, 5)]
    assert doc[3]._.parent == doc[2:4] and doc[2:4]._.parent == doc[2:5] and doc[2:5]._.parent == doc[0:5]
    assert doc[5]._.parent == doc[5:7] and doc[4]._.parent == doc[2:5] and doc[0:5]._.parent is None
    assert (doc[2:4]._.labels, doc[3]._.labels) == (("X",), ())
    assert trees(doc) == ["(X (X Two dogs) (X (X barked loudly) .))", "(X (X They ate) .)"]
    assert doc[0]._.parse_string == "(X Two)"
    for token, tag in zip(doc[2:4], ("VBD", "$("), strict=True):
        token.tag_ = tag
    assert doc[2:5]._.parse_string == "(X (X (VBD barked) ($-LRB- loudly)) .)"
    assert nltk.Tree.fromstring(doc[2:5]._.parse_string).leaves() == ["barked", "loudly", "."]


def test_what_is_no_constituent_is_refused(two_trees):
    doc = two_trees
    for span in (doc[1:3], doc[0:8], doc[4:6], doc[0:0], doc[3:3], doc[8:8]):
        for name in ("constituents", "children", "parent", "labels", "parse_string"):
            with pytest.raises(ValueError, match="are no constituent"):
                getattr(span._, name)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_batches_do_not_change_trees(nlp, batch_size):
    docs = list(nlp.pipe(iter(TEXTS), batch_size=batch_size))
    assert [doc.text for doc in docs] == TEXTS
    assert [trees(doc) for doc in docs] == [trees(nlp(text)) for text in TEXTS]


def test_blank_tokens_do_not_change_the_tree_over_the_others(nlp):
    def constituents_without_blanks(text):
        spans = ([token.text for token in span if not token.is_space] for span in nlp(text)[:]._.constituents)
        return {" ".join(words) for words in spans} - {""}

    tight = "The old man bought a new car"
    assert constituents_without_blanks("\n The old  man   bought a \n\n new car ") == constituents_without_blanks(tight)


def test_trees_survive_saving(nlp):
    docs = list(nlp.pipe(TEXTS))
    attributes = ["ORTH", "SENT_START"]
    saved = spacy.tokens.DocBin(attributes, store_user_data=True, docs=docs).to_bytes()
    from_bin = list(spacy.tokens.DocBin().from_bytes(saved).get_docs(spacy.blank("en").vocab))
    assert list(map(trees, from_bin)) == list(map(trees, docs))
    from_bytes = [spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes()) for doc in docs]
    assert list(map(trees, from_bytes)) == list(map(trees, docs))


def test_pipelines_are_saved_with_their_configuration(nlp, tmp_path):
    chart = spacy.blank("en")
    chart.add_pipe("sentencizer")
    chart.add_pipe("fast_r2d2", config={"checkpoint": bundled_checkpoint(), "method": "chart"})
    for pipeline, method in ((nlp, "parser"), (chart, "chart")):
        pipeline.to_disk(tmp_path / method)
        loaded = spacy.load(tmp_path / method)
        assert loaded.get_pipe_meta("fast_r2d2").factory == "fast_r2d2"
        assert loaded.config["components"]["fast_r2d2"]["method"] == method
        assert trees(loaded(TEXTS[0])) == trees(pipeline(TEXTS[0]))


def test_documents_that_cannot_be_parsed_or_are_not_are_refused(nlp):
    component = FastR2D2Component(nlp.get_pipe("fast_r2d2").parser)
    with pytest.raises(ValueError, match="Sentence boundaries unset"):
        component(spacy.blank("en")("a b"))
    with pytest.raises(ValueError, match="the document is not parsed"):
        spacy.blank("en")("a b")[0:1]._.parent  # noqa: B018
    doc = nlp("New York is big")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    with pytest.raises(ValueError, match="had 4 tokens when parsed and now has 3; parse it again"):
        doc[0]._.parent  # noqa: B018
    with pytest.raises(ValueError, match="method must be one of parser, chart"):
        spacy.blank("en").add_pipe("fast_r2d2", config={"checkpoint": bundled_checkpoint(), "method": "other"})


def test_without_a_checkpoint_the_bundled_one_parses(nlp):
    default = spacy.blank("en")
    default.add_pipe("sentencizer")
    default.add_pipe("fast_r2d2")
    text = "The old man bought a new car."
    assert list(default(text).sents)[0]._.parse_string == list(nlp(text).sents)[0]._.parse_string


def test_attributes_of_another_package_are_not_replaced():
    ours = spacy.tokens.Span.remove_extension("labels")
    spacy.tokens.Span.set_extension("labels", default=())
    with pytest.raises(ValueError, match="'labels' already exists on Span"):
        set_extensions()
    spacy.tokens.Span.set_extension("labels", getter=ours[2], force=True)


@pytest.mark.slow
def test_the_package_needs_no_spacy():
    script = (
        "import sys; sys.modules['spacy'] = None\n"
        "import modeling_fast_r2d2.parsing.nltk\n"
        "try:\n    import modeling_fast_r2d2.parsing.spacy\nexcept ImportError as error:\n    print(error)"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "the spaCy component needs spaCy: pip install 'fast-r2d2[spacy]'\n"
