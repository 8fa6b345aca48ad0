"""Phrases of a corpus, found by their vectors."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from modeling_fast_r2d2 import TreeParser
from modeling_fast_r2d2.parsing.phrases import Neighbour, PhraseIndex, vector_of

TEXTS = ["The old man bought a new car.", "A new car was sold by the old man!", "She sleeps", "...", "a new car"]


@pytest.fixture(scope="module")
def parser():
    return TreeParser.from_pretrained("fast-r2d2-tiny", with_vectors=True)


@pytest.fixture(scope="module")
def index(parser):
    return PhraseIndex.build(parser, TEXTS, max_words=4, source={"checkpoint": "fast-r2d2-tiny"})


def test_every_constituent_of_two_or_more_words_is_there_once(parser, index):
    constituents = parser.model.constituents(TEXTS[0])
    expected = {" ".join(c.words).lower() for c in constituents if 2 <= len(c.words) <= 4}
    found = [index._neighbour(row, 0.0).phrase.lower() for row in range(len(index))]
    assert expected <= set(found) and len(found) == len(set(found)) and "she sleeps" in found
    assert index.vectors.dtype == np.float16 and index.vectors.shape == (len(index), 128)
    np.testing.assert_allclose(np.linalg.norm(index.vectors.astype(float), axis=1), 1, atol=1e-3)


def test_a_phrase_finds_itself_and_the_order_is_that_of_cosines(parser, index):
    found = index.nearest(vector_of(parser, "the old man"), len(index))
    assert found[0].phrase.lower() == "the old man" and found[0].cosine == pytest.approx(1, abs=1e-3)
    assert found[0].words == ["The", "old", "man", "bought", "a", "new", "car"] and found[0].span == (0, 2)
    assert [n.cosine for n in found] == sorted((n.cosine for n in found), reverse=True)
    assert isinstance(found[0], Neighbour)


def test_of_phrases_that_overlap_only_the_best_is_shown(parser):
    index = PhraseIndex.build(parser, TEXTS)
    vector = vector_of(parser, "a new car")
    found = index.nearest(vector, len(index))
    for i, one in enumerate(found):
        for other in found[i + 1 :]:
            apart = one.span[1] < other.span[0] or other.span[1] < one.span[0]
            assert one.words != other.words or apart
    cosines = index.vectors.astype(np.float32) @ (vector / np.linalg.norm(vector))
    assert found[0].cosine == pytest.approx(float(cosines.max()))
    assert len(index.nearest(vector, 2)) == 2 and index.nearest(vector, 0) == index.nearest(vector, -1) == []


def test_an_index_is_kept_in_a_file(index, tmp_path):
    index.save(tmp_path / "a.phrases")
    loaded = PhraseIndex.load(tmp_path / "a.phrases")
    assert loaded.sentences == index.sentences and loaded.source == index.source
    assert all(np.array_equal(vars(loaded)[name], vars(index)[name]) for name in ("places", "vectors", "probe"))
    content = bytearray((tmp_path / "a.phrases").read_bytes())
    content[-1] ^= 1
    (tmp_path / "changed.phrases").write_bytes(content)
    save_file({"vectors": index.vectors}, tmp_path / "lacking.phrases")
    (tmp_path / "a.phrases").write_bytes(b"{}")
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match="no index of phrases, or damaged"):
            PhraseIndex.load(path)


def test_a_text_without_words_has_no_vector(parser):
    for text in ("", " ", "..."):
        with pytest.raises(ValueError, match="has no words"):
            vector_of(parser, text)


def test_texts_without_phrases_are_refused(parser):
    with pytest.raises(ValueError, match="no phrase of 2 to 8 words"):
        PhraseIndex.build(parser, ["sleeps", "..."])
    with pytest.raises(ValueError, match="several texts, got one"):
        PhraseIndex.build(parser, "the old man sleeps")
