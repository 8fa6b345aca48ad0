"""Tokenizers, spans, batches and files."""

import gzip
import logging
import os
import random
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from modeling_fast_r2d2 import FastR2D2Config
from tokenization_fast_r2d2 import (
    SENTENCE_RULES,
    DataCollatorForFastR2D2,
    DataCollatorForFastR2D2Pairs,
    clean_wikitext,
    read_sentences,
    task_token_ids,
    tokenize_sentences,
    train_tokenizer,
    word_spans,
)
from tokenization_fast_r2d2.padding import pad_sentences
from tokenization_fast_r2d2.words import words_of_texts

TEXTS = ["The cat sat on the mat.", "Unbelievable cats sat unbelievably still, well-known cats!", "A naïve café"] * 3
ODD_TEXTS = [
    "", "   ", "\x00\u200b", "日本語 text", "🙂🙂 smile", "don't", "x" * 200, "[UNK] [MASK]", "e\u0301", "\ue000",
]  # fmt: skip


@pytest.fixture
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=120, min_frequency=1, show_progress=False)


@pytest.mark.parametrize("kind", ["wordpiece", "character", "word"])
def test_a_saved_tokenizer_comes_back_the_same_without_trusting_code(tmp_path, kind):
    tokenizer = train_tokenizer(TEXTS, vocab_size=120, kind=kind, min_frequency=1, show_progress=False)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab() and again.all_special_tokens == tokenizer.all_special_tokens
    for text in TEXTS + ODD_TEXTS:
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert again.padding_side == "right"


def test_special_tokens_come_first_and_nothing_is_added_to_a_sentence(tokenizer):
    ids = task_token_ids(tokenizer)
    assert sorted(ids.values()) == [*range(8)] and ids["unk_token_id"] == tokenizer.unk_token_id == 1
    assert FastR2D2Config(vocab_size=len(tokenizer), **ids).sum_token_id == 6
    assert not set(tokenizer("The cat sat")["input_ids"]) & set(range(8))
    assert tokenizer.decode(tokenizer("the cat sat")["input_ids"]) == "the cat sat"


def test_a_tokenizer_without_task_tokens_is_refused():
    class Lacking:
        def get_vocab(self):
            return {"[PAD]": 0, "[UNK]": 1}

    with pytest.raises(ValueError, match=r"no \[BOS\]; add it"):
        task_token_ids(Lacking())


def test_chinese_is_split_by_character_and_words_are_whole_and_rare_ones_unknown():
    texts = ["我們 喜歡 貓。", "貓 喜歡 我們。"]
    characters = train_tokenizer(texts, kind="character", min_frequency=1, show_progress=False)
    assert characters.tokenize("我們喜歡 貓 狗") == ["我", "們", "喜", "歡", "貓", "[UNK]"]
    words = train_tokenizer(["do n't stop", "do n't go"], kind="word", min_frequency=2, show_progress=False)
    assert words.tokenize("do n't stop") == ["do", "n't", "[UNK]"]


@pytest.mark.parametrize(("texts", "options", "message"), [
    (TEXTS, {"kind": "bpe"}, "kind must be"), (TEXTS, {"vocab_size": 8}, "> 8"), ("corpus.txt", {}, "read_sentences"),
])  # fmt: skip
def test_impossible_vocabularies_and_a_files_name_are_refused(texts, options, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(texts, show_progress=False, **options)


@given(st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=12))
def test_word_spans_are_the_runs_of_one_word(word_ids):
    twin = [
        (i, j)
        for i in range(len(word_ids))
        for j in range(i + 1, len(word_ids))
        if word_ids[i] is not None
        and len(set(word_ids[i : j + 1])) == 1
        and (i == 0 or word_ids[i - 1] != word_ids[i])
        and (j == len(word_ids) - 1 or word_ids[j + 1] != word_ids[j])
    ]
    assert word_spans(word_ids) == twin


@given(texts=st.lists(st.one_of(st.text(max_size=20), st.sampled_from(TEXTS + ODD_TEXTS)), min_size=1, max_size=5))
def test_every_text_gives_a_row_with_a_token_and_spans_of_its_words(tokenizer, texts):
    encoded = tokenize_sentences(tokenizer, texts)
    for ids, word_ids, words, spans in zip(*(encoded[k] for k in ("input_ids", "word_ids", "words", "atom_spans")),
                                           strict=True):  # fmt: skip
        assert len(ids) == len(word_ids) >= 1
        assert len(words) == len(set(word_ids)) and spans == word_spans(word_ids)


def test_words_stand_as_in_the_text_and_spans_cover_their_pieces(tokenizer):
    encoded = tokenize_sentences(tokenizer, ["Well-known CATS, naïve 日 zebra!"])
    assert encoded["words"][0] == ["Well", "-", "known", "CATS", ",", "naïve", "日", "zebra", "!"]
    given_words = tokenize_sentences(tokenizer, [["Well-known", "CATS"]], is_split_into_words=True)
    assert given_words["words"][0] == ["Well-known", "CATS"]
    i, j = given_words["atom_spans"][0][0]
    assert given_words["word_ids"][0][i : j + 1] == [0] * (j - i + 1)


@given(
    sentences=st.lists(
        st.lists(st.one_of(st.text(min_size=1, max_size=6), st.sampled_from(" ".join(TEXTS + ODD_TEXTS).split()))),
        min_size=1, max_size=4,
    ),
    max_length=st.one_of(st.none(), st.integers(1, 9)),
    divide=st.sampled_from([None, pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.ByteLevel()]),
)  # fmt: skip
def test_lists_of_words_are_encoded_as_the_tokenizer_encodes_each_list(tokenizer, sentences, max_length, divide):
    if divide:
        backend = Tokenizer(models.WordLevel({"[UNK]": 0, "▁the": 1, "the": 2, "Ġthe": 3}, "[UNK]"))
        backend.pre_tokenizer = divide
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[UNK]")
    sentences = [words for words in sentences if "".join(words).replace("\0", "").strip()] + [["the", "of"]]
    twin = tokenizer(
        sentences, is_split_into_words=True, add_special_tokens=False, return_offsets_mapping=True,
        truncation=max_length is not None, max_length=max_length,
    )  # fmt: skip
    encoded = tokenize_sentences(tokenizer, sentences, max_length=max_length, is_split_into_words=True)
    for row, words in enumerate(sentences):
        if twin["input_ids"][row]:
            assert encoded["input_ids"][row] == twin["input_ids"][row]
            assert encoded["word_ids"][row] == twin.word_ids(row)
            assert encoded["offsets"][row] == twin["offset_mapping"][row]
            assert encoded["words"][row] == [words[number] for number in sorted({*twin.word_ids(row)})]


def test_empty_sentences_become_unknown_with_one_warning_and_keep_the_count(tokenizer, caplog):
    transformers_logging.enable_propagation()
    with caplog.at_level(logging.WARNING):
        encoded = tokenize_sentences(tokenizer, ["a cat", "", "the", "\x00", "   "])
    transformers_logging.disable_propagation()
    assert [ids == [1] for ids in encoded["input_ids"]] == [False, True, False, True, True]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1 and "sentences without text: 3 of 5 (the first is number 2)" in messages[0]


def test_long_sentences_are_kept_unless_a_maximum_is_given(tokenizer):
    text = "cat " * 5000
    assert len(tokenize_sentences(tokenizer, [text])["input_ids"][0]) >= 5000
    short = tokenize_sentences(tokenizer, [text], max_length=7)
    assert len(short["input_ids"][0]) == len(short["word_ids"][0]) == 7


def test_collator_pads_ids_right_and_spans_with_minus_one(tokenizer):
    collate = DataCollatorForFastR2D2(tokenizer)
    batch = collate([
        {"input_ids": [9, 10, 11], "atom_spans": [(0, 1)], "label": 1, "word_ids": [0, 0, 1]},
        {"input_ids": [12], "atom_spans": [], "label": 0},
    ])  # fmt: skip
    assert batch["input_ids"].tolist() == [[9, 10, 11], [12, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["atom_spans"].tolist() == [[[0, 1]], [[-1, -1]]]
    assert batch["labels"].tolist() == [1, 0]
    assert batch.keys() == {"input_ids", "attention_mask", "atom_spans", "labels"}
    assert collate([{"input_ids": [9], "atom_spans": []}])["atom_spans"].shape == (1, 0, 2)
    assert "atom_spans" not in collate([{"input_ids": [9]}])
    assert collate([{"input_ids": [9], "label": 0.5}])["labels"].dtype == torch.float32
    several = [{"input_ids": [9], "labels": torch.tensor([0.0, 1.0])}, {"input_ids": [9], "labels": [1.0, 0.0]}]
    assert collate(several)["labels"].tolist() == [[0, 1], [1, 0]]
    tree_of_one_token = collate([{"input_ids": [9], "labels": []}])["labels"]
    assert tree_of_one_token.shape == (1, 0, 2) and tree_of_one_token.dtype == torch.long
    wide = DataCollatorForFastR2D2(tokenizer, pad_to_multiple_of=8)([{"input_ids": [9] * 9}])
    assert wide["input_ids"].shape == (1, 16)
    empty = collate([{"input_ids": []}, {"input_ids": []}])
    assert empty["input_ids"].tolist() == [[0], [0]] and empty["attention_mask"].tolist() == [[0], [0]]


def test_pair_collator_gives_each_pair_two_rows(tokenizer):
    batch = DataCollatorForFastR2D2Pairs(tokenizer)([
        {"input_ids": [[9, 10], [11]], "atom_spans": [[(0, 1)], []], "label": 1},
        {"input_ids": [[12], [13, 14, 15]], "atom_spans": [[], [(0, 1), (1, 2)]], "label": 0},
    ])  # fmt: skip
    assert batch["input_ids"].tolist() == [[[9, 10, 0], [11, 0, 0]], [[12, 0, 0], [13, 14, 15]]]
    assert batch["attention_mask"].sum(-1).tolist() == [[2, 1], [1, 3]]
    assert batch["atom_spans"].shape == (2, 2, 2, 2) and batch["atom_spans"][1, 1].tolist() == [[0, 1], [1, 2]]
    assert batch["labels"].tolist() == [1, 0]


def test_rare_characters_take_no_room_in_a_vocabulary():
    """Those of other scripts; an ASCII character stays, however rare it is."""
    rare = [chr(code) for code in range(0x5400, 0x5408)]
    texts = ["the naïve cat sat on the mat " * 7] * 2000 + [f"it {character}{character} 7" for character in rare]
    vocabulary = train_tokenizer(texts, 200, min_frequency=1, show_progress=False).get_vocab()
    assert not {*rare, *(f"##{character}" for character in rare)} & vocabulary.keys()
    assert {"the", "naïve", "cat", "sat", "mat", "7", "##ï"} <= vocabulary.keys()
    few = train_tokenizer([rare[0] * 3], 200, min_frequency=1, show_progress=False).get_vocab()
    assert rare[0] in few  # as in a text of that script


def test_wikitext_marks_join_their_neighbours_and_unknown_words_are_one_token(tokenizer):
    assert clean_wikitext("a well @-@ known 1 @,@ 200 @.@ 5 <unk>") == "a well-known 1,200.5 [UNK]"
    assert tokenizer.tokenize(clean_wikitext("<unk>")) == ["[UNK]"]


@pytest.mark.parametrize("kind", ["wordpiece", "character", "word"])
def test_special_tokens_in_a_row_stay_as_many_as_they_are(tmp_path, kind):
    train_tokenizer(TEXTS, 120, kind, min_frequency=1, show_progress=False).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    encoded = tokenize_sentences(tokenizer, [clean_wikitext(" <unk> <unk>  <unk> A <unk> "), "[MASK] [UNK]", " "])
    assert [sum(token == 1 for token in ids) for ids in encoded["input_ids"]] == [4, 1, 1]
    assert encoded["words"][0] == ["[UNK]"] * 3 + ["A", "[UNK]"] and encoded["words"][2] == ["[UNK]"]


def test_text_files_plain_and_compressed_are_read_line_by_line(tmp_path):
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    plain.write_bytes("eins\r\nzwei é\n\n".encode())
    packed.write_bytes(gzip.compress(b"three\n"))
    assert list(read_sentences(plain)) == ["eins", "zwei é", ""]
    assert list(read_sentences([plain, str(packed)])) == ["eins", "zwei é", "", "three"]
    with pytest.raises(FileNotFoundError, match="missing.txt"):
        list(read_sentences([plain, tmp_path / "missing.txt"]))


PARAGRAPHS = [
    ("wikitext", " It was built in 1852 . The U.S. bought it for $ 3 @.@ 5 million . No stop at the end ",
     ["It was built in 1852 .", "The U.S. bought it for $ 3 @.@ 5 million .", "No stop at the end"]),
    *(("wikitext", line, []) for line in (" = Title = \n", " = = Part = = ", "", " \n")),
    ("text", "你好。「真的嗎？！」他說。沒有句號", ["你好。", "「真的嗎？！」", "他說。", "沒有句號"]),
    ("text", "", []), ("text", " \n", []), ("line", " a b \n", ["a b"]), ("line", " \n", []),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "paragraph", "sentences"), PARAGRAPHS)
def test_paragraphs_are_cut_by_their_rule(rule, paragraph, sentences):
    assert SENTENCE_RULES[rule](paragraph) == sentences


@pytest.mark.parametrize("kind", ["wordpiece", "character", "word"])
def test_equal_text_has_equal_vocabularies(kind):
    """Many pieces are equally frequent here; tables of another order, and other orders of the lines, change nothing."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 7))) for _ in range(60)]
    lines = [" ".join(chance.choices(words, k=6)) for _ in range(40)]
    made = set()
    for _ in range(20):
        chance.shuffle(lines)
        made.add(train_tokenizer(lines, 60, kind, show_progress=False).backend_tokenizer.to_str())
    assert len(made) == 1


MAKE_TOKENIZERS = """
import hashlib, random
from tokenization_fast_r2d2 import train_tokenizer

chance = random.Random(0)
words = ["".join(chance.choices("abcdefghéß日本", k=chance.randint(2, 7))) for _ in range(80)]
lines = [" ".join(chance.choices(words, k=6)) for _ in range(60)]
for kind, size in (("wordpiece", 60), ("wordpiece", 120), ("character", 15), ("word", 40)):
    made = train_tokenizer(lines, size, kind, show_progress=False).backend_tokenizer.to_str()
    print(kind, hashlib.sha256(made.encode()).hexdigest())
"""


@pytest.mark.slow
def test_every_process_learns_the_same_tokenizer():
    """Many pieces are equally frequent. Hash tables have another order in every process, of Python and of Rust."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE_TOKENIZERS],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": str(1 + seed % 3)},
            stdout=subprocess.PIPE, text=True,
        )
        for seed in range(20)
    ]  # fmt: skip
    printed = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert len(set(printed)) == 1 and printed[0].count("\n") == 4


def test_no_sentences_are_a_batch_without_rows():
    batch = pad_sentences([], [])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (0, 1)
    assert batch["atom_spans"].shape == (0, 0, 2)


def test_a_capital_with_a_dot_is_the_small_letter():
    """By Unicode's rule its small form is two characters, an i and a lone dot."""
    tokenizer = train_tokenizer(["istanbul İstanbul"], min_frequency=1, show_progress=False)
    [lower], [upper] = (tokenize_sentences(tokenizer, [text])["input_ids"] for text in ("istanbul", "İstanbul"))
    assert lower == upper and tokenizer.unk_token_id not in lower
    assert words_of_texts(tokenizer, ["İstanbul, İ."])[0] == [(0, 8), (8, 9), (10, 11), (11, 12)]


def test_characters_keep_their_vowel_signs_and_tones():
    text = "ผู้หญิง か\u309a葛\U000e0100"
    tokenizer = train_tokenizer([text], kind="character", min_frequency=1, show_progress=False)
    words = [text[i:j] for i, j in words_of_texts(tokenizer, [text])[0]]
    assert words == "ผู้ ห ญิ ง か\u309a 葛\U000e0100".split()
