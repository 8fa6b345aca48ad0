"""What the text decides: toy languages whose direction, script and names are known."""

import random
from dataclasses import replace

import pytest
from pretrain import parse_options

from pretraining import decisions
from pretraining.decisions import Profile, decide, languages
from tokenization_fast_r2d2 import train_tokenizer
from tokenization_fast_r2d2.reading import sentences_to_parse

NOUNS = [a + b for a in ("ka", "lo", "mi", "te", "su") for b in ("bar", "den", "fol", "gir", "hun")]


def sentence(chance, function_words=("of", "the", "in"), is_last=False, write=str):
    """Phrases of a noun or two beside a function word, some of them between commas."""
    phrases = []
    for _ in range(chance.randint(4, 8)):
        word, nouns = chance.choice(function_words), [write(chance.choice(NOUNS)) for _ in range(chance.randint(1, 2))]
        phrases.append(" ".join([*nouns, word] if is_last else [word, *nouns]) + chance.choice([",", "", ""]))
    return " ".join(phrases).strip(",") + "."


def corpus(tmp_path, write_sentence, number=3000, seed=0):
    chance = random.Random(seed)
    path = tmp_path / "text.txt"
    path.write_text("\n".join(write_sentence(chance) for _ in range(number)), encoding="utf-8")
    return path


def decided(path, *arguments):
    given = ["--corpus", str(path), "--output_dir", str(path.parent / "run"), "--sentence_rule", "text"]
    auto = [part for name in ("tokenizer_kind", "vocab_size", "counts_skew", "names", "length")
            for part in (f"--{name}", "auto")]  # fmt: skip
    options, warnings = decide(parse_options([*given, *auto, *arguments]))
    return {decision.option: decision.value for decision in options.decisions}, warnings, options


@pytest.mark.parametrize("is_last, sign", [(False, 1), (True, -1)])
def test_function_words_tell_which_way_a_language_branches(tmp_path, is_last, sign):
    values, warnings, _ = decided(corpus(tmp_path, lambda chance: sentence(chance, is_last=is_last)))
    assert 0.75 <= sign * float(values["counts_skew"]) <= 1 and values["tokenizer_kind"] == "wordpiece"
    assert len(warnings) == 1 and warnings[0].startswith("the corpus has only about")


def test_symbols_are_no_words():
    with_symbols, without = Profile(), Profile()
    with_symbols.add("| the cat + the dog | = 3 $ ,")
    without.add("the cat the dog 3 ,")
    assert with_symbols == without


def test_a_language_that_mixes_both_has_no_skew(tmp_path):
    mixed = corpus(tmp_path, lambda chance: sentence(chance, is_last=chance.random() < 0.5))
    values, _, options = decided(mixed, "--recipe", "any_language.yaml")
    [s] = [float(found.reason.split()[-1]) for found in options.decisions if found.option == "counts_skew"]
    assert abs(s) < 0.2 and float(values["counts_skew"]) == 0 and "both begin and end units" in str(options.decisions)
    assert all(stage.always for stage in options.stages)


@pytest.mark.parametrize("capitals, names", [(0, "no"), (0.1, "yes"), (1, "no")])  # none; of names; of all nouns
def test_capitals_tell_of_names_unless_all_nouns_have_one(tmp_path, capitals, names):
    def write(chance):
        return sentence(chance, write=lambda noun: noun.title() if chance.random() < capitals else noun)

    assert decided(corpus(tmp_path, write))[0]["names"] == names


@pytest.mark.parametrize("text", ['"Go home," said Mary.', "- Go home, said Mary.", "¡Go home! said Mary."])
def test_the_first_word_is_no_name_behind_a_mark(text):
    profile = Profile()
    profile.add(text)
    assert profile.capitals == (1, 3)


def test_scripts_without_blanks_are_read_by_character(tmp_path):
    def write(chance):
        return "".join(chance.choice("的是不我有大在人了中到") for _ in range(20)) + "。"

    path = corpus(tmp_path, write)
    values, warnings, _ = decided(path)
    assert values["tokenizer_kind"] == "character" and any("characters" in warning for warning in warnings)
    assert not any("characters" in warning for warning in decided(path, "--tokenizer_kind", "word")[1])


def test_words_stay_whole_if_blanks_part_them_and_the_tokenizer_is_of_kind_word():
    text = "土佐 の 侍 で 大塚 と 云う 者 。"  # what the warning about characters tells people to give
    tokenizer = train_tokenizer([text] * 2, kind="word", show_progress=False)
    assert sentences_to_parse(tokenizer, [text])[0].words == text.split()


def test_vocabulary_and_stages_go_by_the_amount_of_text(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("options: {config_overrides: names_bonus=6}\n"
                      "stages: [{name: a, tokens: 1000, names_bonus: 6}, {name: b, steps: 7}]")  # fmt: skip
    few = decided(corpus(tmp_path, sentence, 3000), "--recipe", str(recipe))
    many = decided(corpus(tmp_path, sentence, 9000), "--recipe", str(recipe))
    assert few[0]["vocab_size"] == "1000" and int(many[0]["vocab_size"]) > 1000
    assert few[0]["length"] == "0.25"
    first, second = few[2].stages
    assert first.tokens == 250 and second.steps == 7 and "names_bonus" not in first.values
    assert few[2].model.config_overrides == "names_bonus=6,names_bonus=0"


def test_a_stream_that_goes_on_has_many_words(tmp_path, monkeypatch):
    monkeypatch.setattr(decisions, "LINES", 1000)
    stream = ["--streaming", "--shuffle_buffer", "100", "--max_steps", "9"]
    long, whole = (decided(corpus(tmp_path, sentence, number), *stream) for number in (1001, 1000))
    assert (long[0]["vocab_size"], long[0]["length"]) == ("8000", "1.00") and long[1] == []
    assert whole[0]["length"] == "0.25" and "only about" in whole[1][0]


def test_what_is_given_is_not_decided(tmp_path):
    path = corpus(tmp_path, sentence)
    values, _, options = decided(path, "--counts_skew", "0.5")
    assert "counts_skew" not in values and options.data.counts_skew == "0.5"
    assert decide(replace(options, decisions=()))[0].decisions == ()
    for giver in ("--model", "--tokenizer"):  # of no new vocabulary
        assert decided(path, giver, "runs/other")[0].keys() == {"tokenizer_kind", "counts_skew", "names", "length"}


@pytest.mark.parametrize("write, number, message", [
    (sentence, 50, "only about .* words; trees need at least 10,000"),
    (lambda chance: chance.choice(NOUNS), 20_000, "1.0 words on average"),
])  # fmt: skip
def test_a_corpus_that_trees_cannot_be_learnt_from_is_refused(tmp_path, write, number, message):
    with pytest.raises(ValueError, match=message):
        decided(corpus(tmp_path, write, number))


def test_two_languages_are_told_apart_by_words_that_never_meet():
    english = ("of", "the", "in", "and", "to"), str
    spanish = ("de", "la", "que", "el", "en"), lambda noun: noun[::-1]

    def sentences(*spoken):
        chance, found = random.Random(0), Profile()
        for _ in range(600):
            function_words, write = chance.choice(spoken)
            found.add(sentence(chance, function_words, write=write))
        return found.sentences

    assert len(languages(sentences(english))) == len(languages(sentences(spanish))) == 1
    groups = languages(sentences(english, spanish))
    assert len(groups) == 2 and all(len({*english[0]} & {*group}) in (0, 5) for group in groups)


def test_vowel_signs_and_tones_are_no_words():
    profile = Profile()
    profile.add("เด็กผู้หญิงซื้อข้าว")
    assert profile.share_of_unspaced == 1
    assert "ผู้" in profile.occurrences
