"""spaCy documents get one tree per sentence over their own tokens, however they are batched, and keep it when saved."""

import os
import shutil
import subprocess
import sys

import nltk
import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import TreeParser, bundled_checkpoint
from modeling_fast_r2d2.parsing import spacy as component
from modeling_fast_r2d2.parsing.pretokenized import parse_tokens
from modeling_fast_r2d2.parsing.spacy import FastR2D2Component, set_extensions

TEXTS = [
    "The old man bought a new car. Dogs bark.", "", "I don't know (yet).  \n\n He left   early, it seems!", "Yes",
    " \n ", "It costs 5km of \x00 soft\xadware? 日本 ☃.",
]  # fmt: skip


def english(**config) -> spacy.Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("fast_r2d2", config=config)
    return nlp


@pytest.fixture
def nlp():
    return english(checkpoint=bundled_checkpoint())


@pytest.fixture
def two_trees(nlp):
    """``((Two dogs) ((barked loudly) .))`` and ``((They ate) .)``."""
    doc = nlp("Two dogs barked loudly. They ate.")
    rows = doc.user_data["._.", "fast_r2d2", 0, None]
    rows[:-1, 1:] = [(0, 1), (0, 4), (2, 3), (2, 4), (-1, -1), (5, 6), (5, 7)]
    return doc


def bounds(spans) -> list[tuple[int, int]]:
    return [(span.start, span.end) for span in spans]


def leaves(span) -> list:
    return [token for token in span if not token.is_space]


def trees(doc) -> list[str]:
    return [sentence._.parse_string for sentence in doc.sents]


def test_trees_are_those_over_the_tokens_without_whitespace(nlp):
    parser = nlp.get_pipe("fast_r2d2").parser
    for doc in map(nlp, TEXTS):
        for sentence in filter(leaves, doc.sents):
            tokens = leaves(sentence)
            [(tree, sure)] = parse_tokens(parser, [[token.text for token in tokens]])
            wider = [span for span in sentence._.constituents if len(leaves(span)) > 1]
            assert bounds(wider) == [(tokens[i].i, tokens[j].i + 1) for i, j, _ in tree]
            assert sentence._.parse_string.count("(X ") == max(len(tokens) - 1, 1)
            confidences = dict(zip(tree.spans, sure.tolist(), strict=True))
            in_preorder = [confidences[i, j] for i, j, _ in tree]
            assert [span._.confidence for span in wider] == pytest.approx(in_preorder, abs=1e-5)
            assert tokens[0]._.confidence == 1


@given(st.text(max_size=30) | st.lists(st.sampled_from("The cat don't ( . ! \n \x00 5km".split(" "))).map(" ".join))
def test_constituents_of_any_text_nest_and_have_all_tokens_but_whitespace(nlp, text):
    doc = nlp(text)
    assert [token for sentence in doc.sents for token in sentence] == list(doc)
    for sentence in doc.sents:
        found, tokens = list(sentence._.constituents), leaves(sentence)
        assert len(set(bounds(found))) == len(found) == max(2 * len(tokens) - 1, 0)
        assert [span.start for span in found if len(leaves(span)) == 1] == [token.i for token in tokens]
        for span in found:
            assert not span[0].is_space and not span[-1].is_space
            halves = list(span._.children)
            assert all(half._.parent == span for half in halves)
            assert not halves or leaves(halves[0]) + leaves(halves[1]) == leaves(span)
            assert bool(halves) == (len(leaves(span)) > 1) == bool(span._.labels)
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


def test_trees_survive_saving_and_joining(nlp):
    docs = list(nlp.pipe(TEXTS))
    attributes = ["ORTH", "SENT_START"]
    saved = spacy.tokens.DocBin(attributes, store_user_data=True, docs=docs).to_bytes()
    from_bin = list(spacy.tokens.DocBin().from_bytes(saved).get_docs(spacy.blank("en").vocab))
    assert list(map(trees, from_bin)) == list(map(trees, docs))
    joined = spacy.tokens.Doc.from_docs([doc for doc in docs if doc.text.strip()])
    assert trees(joined) == [tree for doc in docs for tree in trees(doc) if doc.text.strip()]
    from_bytes = [spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes()) for doc in docs]
    assert list(map(trees, from_bytes)) == list(map(trees, docs))


@pytest.mark.parametrize("method", ["parser", "chart"])
def test_pipelines_are_saved_with_their_configuration_and_the_model_inside(tmp_path, method):
    """The checkpoint is gone when they are loaded, as on another machine."""
    checkpoint = shutil.copytree(bundled_checkpoint(), tmp_path / "checkpoint")
    pipeline = english(checkpoint=str(checkpoint), method=method)
    pipeline.to_disk(tmp_path / "saved")
    shutil.rmtree(checkpoint)
    loaded = spacy.load(tmp_path / "saved")
    assert loaded.get_pipe_meta("fast_r2d2").factory == "fast_r2d2"
    assert loaded.config["components"]["fast_r2d2"]["method"] == method
    assert trees(loaded(TEXTS[0])) == trees(pipeline(TEXTS[0]))


def test_a_document_is_read_once_for_all_its_spans_until_its_trees_or_tokens_change(nlp, two_trees, monkeypatch):
    read, count = component._read, []
    monkeypatch.setattr(component, "_read", lambda *given: count.append(0) or read(*given))
    first, second = two_trees.sents
    assert bounds(first._.constituents)[:2] == [(0, 5), (0, 2)] and second._.confidence and trees(two_trees)
    assert len(count) == 1
    nlp.get_pipe("fast_r2d2")(two_trees)
    assert trees(two_trees) == trees(nlp(two_trees.text)) and len(count) == 3
    with two_trees.retokenize() as retokenizer:  # as many tokens as before, but others
        retokenizer.merge(two_trees[0:2])
        retokenizer.split(two_trees[2], ["bar", "ked"], heads=[two_trees[2], two_trees[2]])
    with pytest.raises(ValueError, match="other tokens now"):
        two_trees[0:5]._.parse_string  # noqa: B018


def test_documents_that_cannot_be_parsed_or_are_not_are_refused(nlp):
    component = FastR2D2Component(nlp.get_pipe("fast_r2d2").parser)
    with pytest.raises(ValueError, match="Sentence boundaries unset"):
        component(spacy.blank("en")("a b"))
    with pytest.raises(ValueError, match="the document is not parsed"):
        spacy.blank("en")("a b")[0:1]._.parent  # noqa: B018
    doc = nlp("New York is big")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    with pytest.raises(ValueError, match="other tokens now than when it was parsed; parse it again"):
        doc[0]._.parent  # noqa: B018
    with pytest.raises(ValueError, match="method must be one of parser, chart"):
        english(checkpoint=bundled_checkpoint(), method="other")


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
    assert in_a_fresh_process(script) == "the spaCy component needs spaCy: pip install 'fast-r2d2[spacy]'"


def test_whitespace_alone_has_no_constituents(nlp):
    doc = nlp(" \n ")
    for span in (doc[:], doc[0]):
        assert (list(span._.constituents), list(span._.children), span._.parent) == ([], [], None)
        assert (span._.labels, span._.parse_string) == ((), "")


def test_a_span_as_a_document_keeps_its_trees(nlp):
    doc = nlp("It rained.  The old man bought a new car. Dogs bark.")
    for sentence in doc.sents:
        assert trees(sentence.as_doc(copy_user_data=True)) == [sentence._.parse_string]
    two = doc[3:]
    assert trees(part := two.as_doc(copy_user_data=True)) == trees(nlp(part)) == trees(doc)[1:]  # as it is, and again
    for constituent in list(doc.sents)[1]._.constituents:
        copy = constituent.as_doc(copy_user_data=True)
        assert copy[:]._.parse_string == constituent._.parse_string
        again = copy[:].as_doc(copy_user_data=True)
        assert again[:]._.parse_string == constituent._.parse_string
    with pytest.raises(ValueError, match="not parsed"):  # spaCy's default copies no attribute of any package
        doc[3:].as_doc()[:]._.parse_string  # noqa: B018


def test_bytes_hold_the_model(tmp_path):
    """The checkpoint is another one when they are loaded, and the pipeline has parsed with it."""
    shutil.copytree(bundled_checkpoint(), tmp_path / "checkpoint")
    nlp = english(checkpoint=str(tmp_path / "checkpoint"))
    nlp.get_pipe("fast_r2d2").parser.model.base_model.parser.score.weight.data.neg_()
    other = english(checkpoint=str(tmp_path / "checkpoint"))
    assert trees(other(TEXTS[0])) != trees(nlp(TEXTS[0]))
    assert trees(other.from_bytes(nlp.to_bytes())(TEXTS[0])) == trees(nlp(TEXTS[0]))


def test_vectors_are_those_of_the_parsers_trees():
    nlp = english(vectors=True, checkpoint="fast-r2d2-tiny")
    text = "The unbelievably old man bought Schwarzenegger's new car. Dogs bark."
    encoded = []
    nlp.get_pipe("fast_r2d2").parser.model.register_forward_hook(lambda *call: encoded.append(call))
    doc = nlp(text)
    assert len(encoded) == 1  # both sentences at once
    parser = TreeParser.from_pretrained("fast-r2d2-tiny", with_vectors=True)
    expected = parser([[token.text for token in sentence] for sentence in doc.sents], is_split_into_words=True)
    for sentence, parsed in zip(doc.sents, expected, strict=True):
        np.testing.assert_allclose(sentence._.vector, parsed.vector, atol=1e-6)
    np.testing.assert_allclose(doc._.vector, np.mean([parsed.vector for parsed in expected], 0), atol=1e-6)
    word = doc[0]  # one piece: its vector is the embedding
    piece = parser.model.embeddings.weight[parser.tokenizer("The")["input_ids"][0]]
    np.testing.assert_allclose(word._.vector, piece.detach(), atol=1e-6)
    assert not doc[-1]._.vector.any()  # the model does not see a full stop
    for constituent in next(iter(doc.sents))._.constituents:
        assert constituent._.vector.shape == (128,)
        copy = constituent.as_doc(copy_user_data=True)
        assert (copy[:]._.vector == constituent._.vector).all()
    with pytest.raises(ValueError, match="no constituent"):
        doc[0:-1]._.vector  # noqa: B018


def test_without_a_checkpoint_vectors_are_those_of_the_small_one_and_pooled():
    doc = english(vectors=True)("The old man bought a new car")
    parser = TreeParser.from_pretrained("fast-r2d2-small", with_vectors=True)
    [parsed] = parser([[token.text for token in doc]], is_split_into_words=True)
    piece = parser.model.embeddings.weight[parser.tokenizer("The")["input_ids"][0]]
    pooled = parser.model.pool(piece).detach().numpy()
    for found, expected in ((doc._.vector, parsed.vector), (doc[0]._.vector, pooled)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.linalg.norm(expected))


def test_without_words_or_without_the_option_there_is_no_vector(nlp):
    for text in ("", "  "):
        with pytest.raises(ValueError, match="a document without words has no vector"):
            english(vectors=True, checkpoint="fast-r2d2-tiny")(text)._.vector  # noqa: B018
    with pytest.raises(ValueError, match="no vector here; use .*'vectors': True"):
        nlp("Dogs bark.")[0]._.vector  # noqa: B018
    with pytest.raises(ValueError, match="use method='parser', got 'chart'"):
        english(vectors=True, method="chart")


def test_two_processes_give_the_same_trees(nlp):
    docs = list(nlp.pipe(TEXTS * 3, n_process=2, batch_size=2))
    assert [trees(doc) for doc in docs] == [trees(nlp(text)) for text in TEXTS] * 3


FRESH = """
import sys, spacy
nlp = spacy.blank("en")
assert not {"modeling_fast_r2d2", "transformers"} & sys.modules.keys(), "imported before it was asked for"
nlp.add_pipe("sentencizer")
nlp.add_pipe("fast_r2d2")
print([sentence._.parse_string for sentence in nlp("The old man bought a new car. Dogs bark.").sents])
"""


def in_a_fresh_process(script: str) -> str:
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_spacy_knows_the_component_without_an_import(nlp):
    assert in_a_fresh_process(FRESH) == str(trees(nlp("The old man bought a new car. Dogs bark.")))


def test_a_pipeline_saved_by_an_older_version_loads_its_checkpoint(nlp, tmp_path):
    nlp.to_disk(tmp_path)
    shutil.rmtree(tmp_path / "fast_r2d2")
    assert trees(spacy.load(tmp_path)(TEXTS[0])) == trees(nlp(TEXTS[0]))
