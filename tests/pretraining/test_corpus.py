import gzip
import inspect

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from transformers import AutoTokenizer

from pretraining.corpus import read_texts, rules_of_reading, tokenize_corpus
from pretraining.data import fitting
from pretraining.options import DataOptions
from tokenization_fast_r2d2 import sentences
from tokenization_fast_r2d2.reading import sentences_to_parse


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def lines(source, **options):
    return [row["text"] for row in read_texts(DataOptions(corpus=[str(s) for s in source], **options))]


def encoded(path, text, tokenizer, **options):
    path.write_text(text, encoding="utf-8")
    data = DataOptions(corpus=[str(path)], **options)
    return tokenize_corpus(read_texts(data), tokenizer, data)


def test_files_globs_folders_and_gzip_are_read_in_order(tmp_path):
    (tmp_path / "b.txt").write_text("third\nfourth\n", encoding="utf-8")
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write("first\nsecond\n")
    (tmp_path / "notes.md").write_text("not this", encoding="utf-8")
    expected = ["first", "second", "third", "fourth"]
    assert lines([tmp_path]) == lines([tmp_path / "*.txt*"]) == expected
    assert lines([tmp_path / "a.txt.gz", tmp_path / "b.txt"]) == expected
    assert lines([tmp_path], streaming=True) == expected


@pytest.mark.parametrize("streaming", [False, True])
def test_a_saved_dataset_is_read_by_split_and_column(tmp_path, streaming):
    DatasetDict({"train": Dataset.from_dict({"body": ["a b", "c"]})}).save_to_disk(tmp_path / "saved")
    assert lines([tmp_path / "saved"], text_column="body", streaming=streaming) == ["a b", "c"]
    with pytest.raises(ValueError, match="no column 'text' but body; give --text_column"):
        lines([tmp_path / "saved"], streaming=streaming)
    Dataset.from_dict({"id": [1, 2]}).save_to_disk(tmp_path / "numbers")
    with pytest.raises(ValueError, match="the column 'id' of .* has no texts"):
        lines([tmp_path / "numbers"], text_column="id", streaming=streaming)
    with pytest.raises(ValueError, match="split 'test'"):
        lines([tmp_path / "saved"], corpus_split="test", streaming=streaming)


@pytest.mark.parametrize("streaming", [False, True])
def test_documents_of_a_dataset_become_paragraphs_as_files_do(tmp_path, streaming):
    """Each document has a layout of its own; lines of a sentence rule other than text stay as they are."""
    wrapped = ["the old man who bought a new car and then", "was sorry for it, as all had said before. It", "is so."]
    documents = ["\n".join(wrapped), "It rained. Nobody came.\n\nThe cat slept.", None, "One line."]
    Dataset.from_dict({"text": documents}).save_to_disk(tmp_path / "saved")
    found = lines([tmp_path / "saved"], sentence_rule="text", streaming=streaming)
    expected = [" ".join(wrapped), "It rained. Nobody came.", "The cat slept.", "One line."]
    assert list(filter(None, found)) == expected
    assert lines([tmp_path / "saved"], streaming=streaming) == documents
    (tmp_path / "wrapped.txt").write_text(documents[0], encoding="utf-8")
    assert lines([tmp_path / "wrapped.txt"], sentence_rule="text", streaming=streaming) == expected[:1]


def test_a_missing_corpus_is_named():
    with pytest.raises(ValueError, match="no text at 'nowhere/to-be.txt'"):
        lines(["nowhere/to-be.txt"])
    with pytest.raises(ValueError, match=r"no text at 'nowhere/\*\.txt'"):
        lines(["nowhere/*.txt"])
    with pytest.raises(ValueError, match="'no_such_dataset' is no folder of texts, and as a data set"):
        lines(["no_such_dataset"])


@pytest.mark.parametrize("text, message", [
    ("", "no text in .*: 1 files without a line"), ("\n \n", "no sentence of 1 to 200 tokens"),
    *((line, "1 sentences, 1 of them too long; --sentence_rule") for line in ("the cat " * 40_000, "x" * 400_000)),
])  # fmt: skip
def test_a_corpus_that_is_empty_or_one_giant_line_is_refused(tmp_path, tokenizer, text, message):
    with pytest.raises(ValueError, match=message):
        encoded(tmp_path / "c.txt", text, tokenizer)


def test_a_damaged_gzip_file_is_named(tmp_path):
    whole = gzip.compress(b"the cat sleeps\n" * 1000)
    (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "plain.txt.gz").write_bytes(b"the cat sleeps\n")
    for name in ("cut", "plain"):
        with pytest.raises(ValueError, match=f"{name}.txt.gz is not a complete gzip file"):
            lines([tmp_path / f"{name}.txt.gz"])


def test_sentences_are_cut_encoded_and_counted(tmp_path, tokenizer):
    text = " = Heading = \nthe cat sleeps . the underold man walks .\n\n" + "the " * 30 + "\n"
    corpus = encoded(tmp_path / "c.txt", text, tokenizer, sentence_rule="wikitext", max_length=20)
    [first, second] = corpus[np.array([0, 1])]
    assert tokenizer.convert_ids_to_tokens(first["input_ids"])[:3] == ["the", "cat", "sleeps"]
    [[start, end]] = second["atom_spans"]
    assert tokenizer.decode(second["input_ids"][start : end + 1]) == "underold"
    assert corpus.num_too_long == 1
    assert corpus.lengths.tolist() == [len(first["input_ids"]), len(second["input_ids"])]
    ids = first["input_ids"] + second["input_ids"]
    assert corpus.count_tokens(len(tokenizer)).tolist() == np.bincount(ids, minlength=len(tokenizer)).tolist()


def test_only_sentences_that_are_not_too_long_are_drawn_and_validated(tokenizer):
    rows = [{"text": text} for text in ("the " * 5000, "the cat sleeps", "", "a man walks")]
    data = DataOptions(corpus=[], max_length=20)
    found = list(fitting(rows, tokenizer, data))
    assert [sentence for _, sentence in found] == ["the cat sleeps", "a man walks"]
    assert all(len(feature["input_ids"]) == feature["length"] for feature, _ in found)


def test_encoding_is_cached_until_text_or_options_change(corpus, tokenizer, tokenizer_folder):
    data = DataOptions(corpus=[str(corpus)])
    first = tokenize_corpus(read_texts(data), tokenizer, data).rows
    again = tokenize_corpus(read_texts(data), AutoTokenizer.from_pretrained(tokenizer_folder), data).rows
    assert first.cache_files == again.cache_files != []
    shorter = DataOptions(corpus=[str(corpus)], max_length=5)
    assert tokenize_corpus(read_texts(shorter), tokenizer, shorter).rows.cache_files != first.cache_files
    assert inspect.getsource(sentences) in rules_of_reading(read_texts(data), tokenizer, data)  # another version's


def test_several_processes_encode_alike(corpus, tokenizer):
    one, two = (DataOptions(corpus=[str(corpus)], num_proc=n) for n in (None, 2))
    first, second = (tokenize_corpus(read_texts(data), tokenizer, data) for data in (one, two))
    assert first.rows.to_dict() == second.rows.to_dict() and first.digest() == second.digest()


def test_the_digest_tells_order_words_and_cuts_apart(tmp_path, tokenizer):
    def digest(*sentences, **options):
        return encoded(tmp_path / "c.txt", "\n".join(sentences), tokenizer, **options).digest()

    same = digest("the cat", "a man , walks")
    assert same == digest("the cat", "a man , walks")
    others = [("a man , walks", "the cat"), ("the cat", "a man , sees"), ("the", "cat a man , walks")]
    different = {same, *(digest(*sentences) for sentences in others)}
    assert len(different | {digest("the cat", "a man , walks", keep_punctuation=False)}) == 5


def test_punctuation_can_be_left_out(tmp_path, tokenizer):
    corpus = encoded(tmp_path / "p.txt", "( the cat ) , sleeps .\n. .\n", tokenizer, keep_punctuation=False)
    [only] = corpus[np.arange(len(corpus.kept))]
    assert "cat" in tokenizer.decode(only["input_ids"]) and "," not in tokenizer.decode(only["input_ids"])
    pieces = tokenizer.convert_ids_to_tokens(only["input_ids"])
    assert only["bounds"] == [pieces.index("cat")] and len(pieces) == corpus.lengths[0]


@pytest.mark.parametrize("keep", [False, True])
def test_what_no_line_of_the_first_thousands_has_is_found_later(tmp_path, tokenizer, keep):
    last = "he saw New York ; unbelievable"
    corpus = encoded(tmp_path / "p.txt", "the cat\n" * 1500 + last + "\n", tokenizer, keep_punctuation=keep)
    first, found = corpus[np.array([0, 1500])]
    [read] = sentences_to_parse(tokenizer, [last], set_marks_aside=not keep)
    assert [len(first[name]) for name in ("bounds", "names", "atom_spans")] == [0, 0, 0]
    assert found == {name: getattr(read, name) for name in ("input_ids", "bounds", "names")} | {
        "atom_spans": [list(span) for span in read.atom_spans]
    }
    assert [k for k in read.names if read.word_ids[k] != read.word_ids[k + 1]] == read.names[:1]
    assert read.names and read.atom_spans and bool(read.bounds) == (not keep)


def test_files_with_columns_are_no_lines_of_text(tmp_path):
    for name, text in (("a.jsonl", '{"text": "a cat sleeps"}'), ("LICENSE.txt", "all rights")):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"body": "a cat sleeps"}\n')
    for name in ("a.jsonl", "b.jsonl.gz"):
        with pytest.raises(ValueError, match=f"{name} has columns, not lines"):
            read_texts(DataOptions([str(tmp_path / name)]))
    with pytest.raises(ValueError, match=r"b\.jsonl\.gz has no key 'text' but body; give --text_column"):
        read_texts(DataOptions([str(tmp_path / "b.jsonl.gz")], sentence_rule="text"))
    both = r"has texts, such as .*LICENSE\.txt, and files of a data set, such as .*a\.jsonl"
    with pytest.raises(ValueError, match=both):
        read_texts(DataOptions([str(tmp_path)]))
    texts = read_texts(DataOptions([str(tmp_path / "a.jsonl")], sentence_rule="text"))
    assert texts["text"][:] == ["a cat sleeps"]
