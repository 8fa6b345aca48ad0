"""Names, two words or more that begin with a capital letter, stay together if the configuration asks for it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
    FastR2D2Model,
    TreeParser,
    bundled_checkpoint,
)
from modeling_fast_r2d2.inputs import split_bonus_of
from modeling_fast_r2d2.parsing_pipeline import METHODS
from tokenization_fast_r2d2.processing_fast_r2d2 import FastR2D2Processor
from tokenization_fast_r2d2.reading import ReadSentence, pad_batch, sentences_to_parse

TEXT = "Yes, the Unbelievable York Stock Exchange of Mr. Smith, New York, is in New-York"
NAMES = [("Unbelievable", "York"), ("York", "Stock"), ("Stock", "Exchange"), ("Mr.", "Smith")]


@pytest.fixture
def processor(tokenizer) -> FastR2D2Processor:
    return FastR2D2Processor(tokenizer, punctuation="aside")


@given(st.lists(st.sampled_from(["Smith", "New", "Élan", "the", "iPod", "42", "他", "X"]), max_size=9), st.data())
def test_names_are_words_side_by_side_that_begin_with_a_capital(words, data):
    lengths = [data.draw(st.integers(1, 3)) for _ in words]
    word_ids = [word for word, length in enumerate(lengths) for _ in range(length)]
    last = [sum(lengths[: word + 1]) - 1 for word in range(len(words))]
    bounds = data.draw(st.sets(st.sampled_from(last[:-1]))) if len(words) > 1 else set()
    found = ReadSentence([], word_ids, [], sorted(bounds), words, [], [], [], [], []).names
    begins = [word in ("Smith", "New", "Élan", "X") for word in words]
    pairs = [(a, a + 1) for a in range(len(words) - 1) if begins[a] and begins[a + 1] and last[a] not in bounds]
    expected = {last[word] for word, _ in pairs}
    for word in {word for pair in pairs for word in pair}:
        expected |= set(range(last[word] - lengths[word] + 1, last[word]))
    assert found == sorted(expected)


def test_texts_and_given_words_have_the_same_names(tokenizer):
    [of_text] = sentences_to_parse(tokenizer, [TEXT], set_marks_aside=True)
    [of_words] = sentences_to_parse(tokenizer, [of_text.leaves], is_split_into_words=True, set_marks_aside=True)
    for read in (of_text, of_words):
        pairs = [(read.words[read.word_ids[k]], read.words[read.word_ids[k + 1]]) for k in read.names]
        assert [pair for pair in pairs if pair[0] != pair[1]] == [*NAMES, ("New", "York")]
        assert pairs.count(("Unbelievable", "Unbelievable")) == read.word_ids.count(2) - 1 > 0
    assert pad_batch([of_text])["split_signs"].tolist() == pad_batch([of_words])["split_signs"].tolist()


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("punctuation", ["aside", "keep"])
def test_a_bonus_makes_names_constituents(model, tokenizer, method, punctuation):
    words = "the old Man Said That he saw the cat in the house".split()

    def tree(words, bonus):
        model.config.names_bonus = bonus
        parser = TreeParser(model, tokenizer, method, punctuation=punctuation)
        [found] = parser([words], is_split_into_words=True)
        return found.tree

    plain, found = tree(words, 0.0), tree(words, 1e4)
    assert plain == tree([word.lower() for word in words], 1e4) and (2, 4) not in plain.spans
    if method in ("parser", "minimum_risk"):  # the best tree of a chart is the encoder's choice alone
        assert (2, 4) in found.spans


def test_words_of_several_pieces_come_apart_after_names(model, tokenizer):
    model.config.names_bonus = 1e4
    parser = TreeParser(model, tokenizer, keep_words=False, pieces=True)
    [found] = parser(["it is Unbelievable York Exchange that I saw"])
    first, last = found.word_ids.index(2), len(found.word_ids) - 1 - found.word_ids[::-1].index(4)
    assert last - first > 2 and (first, last) in found.tree.spans


@pytest.mark.parametrize("model_class", [FastR2D2Model, FastR2D2ForPreTraining, FastR2D2ForConstituencyParsing])
def test_models_take_what_the_processor_gives_and_add_their_bonuses(processor, model_class):
    model = model_class.from_pretrained(bundled_checkpoint()).eval()
    inputs = processor([TEXT, "The man , it is said , ( they ) saw The Old Dog"])
    signs, config = inputs["split_signs"], model.config
    bonus = split_bonus_of(signs, config.bounds_bonus, config.names_bonus)
    assert set(bonus.unique().tolist()) == {-config.names_bonus, 0.0, config.bounds_bonus}
    given = {name: tensor for name, tensor in inputs.items() if name != "split_signs"}
    found, expected, without = model(**inputs), model(**given, split_bonus=bonus), model(**given)
    assert torch.equal(found.split_scores, expected.split_scores)
    torch.testing.assert_close(found.split_scores, without.split_scores + bonus)
    twice = model(**inputs, split_bonus=bonus)
    torch.testing.assert_close(twice.split_scores, without.split_scores + 2 * bonus)
    assert model_class is FastR2D2ForPreTraining or torch.equal(model.parse(**inputs).spans, found.spans)


def test_the_processor_takes_words_and_a_largest_length_and_refuses_what_it_does_not_do(processor):
    texts = ["The old man bought a new car", "A cat sleeps"]
    words = processor([text.split() for text in texts], is_split_into_words=True, padding=True, return_tensors="pt")
    assert all(torch.equal(tensor, words[name]) for name, tensor in processor(texts).items())
    assert processor(texts, truncation=True, max_length=3)["input_ids"].shape == (2, 3)
    with pytest.raises(ValueError, match="max_length must be >= 1, got 0"):
        processor(texts, max_length=0)
    processor.tokenizer.truncation_side = "left"
    with pytest.raises(ValueError, match="sentences lose their ends, but .* 'left'; set it to 'right'"):
        processor(texts, max_length=3)
    processor.tokenizer.truncation_side = "right"
    for name, value in {"padding": "max_length", "return_tensors": "np", "truncation": False, "images": 1}.items():
        with pytest.raises(ValueError, match=f"{name}=.*for tokenizers"):
            processor(texts, **{name: value})
    for text in ([["the", "old", "man"]], [TEXT, float("nan"), TEXT], [["a cat", 1]]):
        with pytest.raises(ValueError, match=r"pairs of two texts.*; got (\[|nan)"):
            processor(text)
    assert set(processor([("a cat", "a dog")])["token_type_ids"][0]) == {0, 1}
    assert torch.equal(processor(iter(texts))["input_ids"], processor(texts)["input_ids"])


def test_classifiers_learn_along_the_trees_of_encode(processor):
    model = FastR2D2ForSequenceClassification.from_pretrained(bundled_checkpoint(), num_labels=2).eval()
    inputs = processor([TEXT])
    roots = torch.from_numpy(model.model.encode([TEXT]))
    torch.testing.assert_close(model(**inputs).logits, model.classifier(roots), atol=1e-5, rtol=1e-5)
    assert model.train()(**inputs, labels=torch.tensor([1])).loss.isfinite()
