"""Text from files, folders, `datasets` folders or the Hub, as lines; and from lines to tokenized sentences with their
word spans, in parallel, with a cache of `datasets`."""

import glob
import hashlib
import inspect
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset, DatasetDict, Features, IterableDataset, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError, DatasetsError
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

import tokenization_fast_r2d2
from pretraining import text_forms
from pretraining.options import DataOptions
from tokenization_fast_r2d2 import SENTENCE_RULES, clean_wikitext, read_sentences
from tokenization_fast_r2d2.language import are_marks
from tokenization_fast_r2d2.reading import ReadSentence, sentences_to_parse

SUFFIXES = (".txt", ".txt.gz")
DATA_SUFFIXES = (".parquet", ".csv", ".jsonl")  # of files that `datasets` reads, by their columns
# Path, size in bytes, time of the last change in nanoseconds: a file that changes is not read from the cache.
File = tuple[str, int, int]
# A text with more characters than this, for each token of the limit, is no sentence. It is left out before it is
# tokenized, because tokenizing a giant line takes many times its size in memory. Such a text rarely has few tokens, as
# when a word of more than 100 letters becomes one [UNK].
CHARACTERS_PER_TOKEN = 100
NUMBERS = [Value("int64")]
# Given, because a type cannot be told from lists that all are empty.
FEATURES = Features(
    input_ids=NUMBERS, atom_spans=[NUMBERS], bounds=NUMBERS, names=NUMBERS, unit_begins=NUMBERS, length=Value("int64")
)
OF_SENTENCES = tuple(name for name in FEATURES if name != "length")
COLUMNS = tuple(name for name in OF_SENTENCES if name != "unit_begins")  # what a model trains on


def read_texts(data: DataOptions) -> Dataset | IterableDataset:
    """Read the lines of the corpus into a column ``text``. Raises ValueError for a source that is missing, empty, not
    UTF-8, or without the split or column, with its name."""
    [first, *others] = data.corpus
    is_folder_of_texts = any(file_names(first)) if os.path.isdir(first) else False
    if not others and not is_folder_of_texts and (os.path.isdir(first) or _looks_like_hub_name(first)):
        return _read_dataset(first, data)
    files, forms = [file for source in data.corpus for file in files_of(source)], forms_for(data)
    refused = {".json", *DATA_SUFFIXES} - ({".json", ".jsonl"} if forms else set())
    if tables := [name for name, *_ in files if Path(name.removesuffix(".gz")).suffix in refused]:
        raise ValueError(
            f"{tables[0]} has columns, not lines of text; give its folder as the corpus, and --text_column"
        )
    given = {"files": files, "forms": forms, "text_column": data.text_column}
    if next(lines_as_rows(**given), None) is None:
        raise ValueError(f"no text in {', '.join(data.corpus)}: {len(files)} files without a line")
    columns, kind = Features({"text": Value("string")}), IterableDataset if data.streaming else Dataset
    try:
        return kind.from_generator(lines_as_rows, features=columns, gen_kwargs=given)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError):  # ours, with the file's name
            raise error.__cause__ from None
        raise


def lines_as_rows(files: list[File], forms: str, text_column: str) -> Iterator[dict[str, str]]:
    """The lines of files; or their paragraphs, if ``forms`` is not empty: see `forms_for`."""
    for path, _, _ in files:
        lines = read_sentences(path)
        for line in text_forms.paragraphs(lines, text_column, path) if forms else lines:
            yield {"text": line}


def forms_for(data: DataOptions) -> str:
    """The code of `text_forms`, as a part of the cache's key; nothing if files have a sentence or document a line."""
    return inspect.getsource(text_forms) if data.sentence_rule == "text" else ""


def files_of(source: str) -> list[File]:
    """The text files of a path, a glob or a folder, ordered by name."""
    names = [source] if os.path.isfile(source) else file_names(source) if os.path.isdir(source) else []
    tables = sorted(str(path) for path in Path(source).rglob("*") if path.suffix in DATA_SUFFIXES)
    if names and tables:
        raise ValueError(f"{source!r} has texts, such as {names[0]}, and files of a data set, such as {tables[0]}; "
                         "keep them in folders of their own")  # fmt: skip
    names = names or [name for name in sorted(glob.glob(source, recursive=True)) if os.path.isfile(name)]
    if not names:
        raise ValueError(f"no text at {source!r}; give a file, a glob, a folder with {' or '.join(SUFFIXES)} files")
    return [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in names]


def file_names(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())


def _looks_like_hub_name(source: str) -> bool:
    is_path = os.path.exists(source) or source.endswith((".txt", ".gz")) or glob.has_magic(source)
    return not is_path and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", source) is not None


def _read_dataset(source: str, data: DataOptions) -> Dataset | IterableDataset:
    is_saved = any((Path(source) / name).exists() for name in ("dataset_dict.json", "state.json"))
    try:
        if is_saved:
            dataset = load_from_disk(source)
            dataset = dataset[data.corpus_split] if isinstance(dataset, DatasetDict) else dataset
            dataset = dataset.to_iterable_dataset() if data.streaming else dataset
        else:
            dataset = load_dataset(source, data.corpus_config, split=data.corpus_split, streaming=data.streaming)
    except (OSError, KeyError, ValueError, DatasetsError) as error:
        raise ValueError(
            f"{source!r} is no folder of texts, and as a data set, split {data.corpus_split!r}, it could not be "
            f"loaded: {error}"
        ) from error
    columns = dataset.column_names or list(next(iter(dataset), {}))
    if data.text_column not in columns:
        raise ValueError(f"{source!r} has no column {data.text_column!r} but {', '.join(columns)}; give --text_column")
    kind = (dataset.features or {}).get(data.text_column)
    if kind is not None and getattr(kind, "dtype", None) not in ("string", "large_string", "string_view", "null"):
        raise ValueError(f"the column {data.text_column!r} of {source!r} has no texts ({kind}); give --text_column")
    texts = dataset.select_columns([data.text_column]).rename_columns(
        {data.text_column: "text"} if data.text_column != "text" else {}
    )
    return documents_as_paragraphs(texts, forms) if (forms := forms_for(data)) else texts


def documents_as_paragraphs(texts: Dataset | IterableDataset, forms: str) -> Dataset | IterableDataset:
    """The paragraphs of rows that are whole documents, each laid out as a file may be."""

    def cut(rows: dict[str, list[str | None]]) -> dict[str, list[str]]:
        return {"text": [part for text in rows["text"] for part in text_forms.document_paragraphs(text or "")]}

    if isinstance(texts, IterableDataset):
        return texts.map(cut, batched=True)
    return texts.map(cut, batched=True, new_fingerprint=Hasher.hash([texts._fingerprint, forms]), desc="paragraphs")


@dataclass(frozen=True)
class Corpus:
    """Tokenized sentences of 1 to ``max_length`` tokens.

    Attributes:
        rows: columns ``input_ids``, ``atom_spans``, ``bounds`` (empty if punctuation is kept), ``names`` and
            ``unit_begins`` of a `ReadSentence`, and ``length``. Sentences that are too long are rows without tokens.
        kept: ``(num_sentences,)`` int64, the rows to use.
        lengths: ``(num_sentences,)`` int64, their numbers of tokens.
        num_too_long: the number of sentences that are left out.
    """

    rows: Dataset
    kept: np.ndarray
    lengths: np.ndarray
    num_too_long: int

    def count_tokens(self, vocab_size: int) -> np.ndarray:
        """``(vocab_size,)`` int64, how often each token occurs."""
        return np.bincount(self.token_ids(), minlength=vocab_size)

    def token_ids(self) -> np.ndarray:
        """``(num_tokens,)`` int64, of all sentences, end to end; rows that are not kept have none."""
        return pyarrow.compute.list_flatten(self.rows.data.column("input_ids")).to_numpy()

    def are_unit_begins(self) -> np.ndarray:
        """``(num_tokens,)`` bool, whether each token begins a unit of the text, sentences end to end."""
        begins = self.rows.data.column("unit_begins")
        columns = self.rows.data.column("input_ids"), begins
        lengths, numbers = (pyarrow.compute.list_value_length(column).to_numpy() for column in columns)
        starts = np.cumsum(lengths) - lengths
        found = np.zeros(lengths.sum(), bool)
        found[starts[lengths > 0]] = True
        found[np.repeat(starts, numbers) + pyarrow.compute.list_flatten(begins).to_numpy()] = True
        return found

    def digest(self) -> str:
        """A hash of everything that a run reads of its sentences, in their order; about a second per 40M tokens."""
        digest = hashlib.blake2b(digest_size=16)
        for name in (*COLUMNS, "length"):
            for values in _flat_columns(self.rows.data.column(name)):
                for chunk in values.chunks:  # how the column is cut depends on the number of processes, bytes do not
                    digest.update(chunk.to_numpy(zero_copy_only=False).tobytes())
        return digest.hexdigest()

    def __getitem__(self, sentences: np.ndarray) -> list[dict]:
        """Features for the collator; ``sentences`` are numbers among the kept ones."""
        columns = self.rows[self.kept[sentences]]
        return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*(columns[name] for name in COLUMNS), strict=True)]


def tokenize_corpus(texts: Dataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> Corpus:
    """Tokenize the lines of `read_texts`; a second call with the same text, tokenizer and options uses a cache. Raises
    ValueError if no sentence is left."""

    def tokenize_lines(batch: dict[str, list[str]]) -> dict[str, list]:
        sentences = tokenize(sentences_of(batch["text"], data), tokenizer, data)
        return {name: [sentence[name] for sentence in sentences] for name in FEATURES}

    cache_key = [*rules_of_reading(texts, tokenizer, data), OF_SENTENCES]
    rows = texts.map(
        tokenize_lines, batched=True, num_proc=data.num_proc, remove_columns=texts.column_names, features=FEATURES,
        new_fingerprint=Hasher.hash(cache_key), desc="tokenize",
    )  # fmt: skip
    lengths = rows.data.column("length").to_numpy().astype(np.int64) if len(rows) else np.zeros(0, np.int64)
    is_too_long = lengths > data.max_length
    [kept] = np.nonzero((lengths > 0) & ~is_too_long)
    if not len(kept):
        raise ValueError(
            f"no sentence of 1 to {data.max_length} tokens in the corpus: {len(texts)} lines, {len(rows)} sentences, "
            f"{is_too_long.sum()} of them too long; --sentence_rule cuts lines into sentences"
        )
    return Corpus(rows, kept, lengths[kept], int(is_too_long.sum()))


def rules_of_reading(texts: Dataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> list:
    """What decides how sentences are read, for the keys of caches.

    A tokenizer's own hash changes when it is used, so that caches would be missed; its vocabulary and rules do not. The
    code that reads is in the key because a new version of this package may change it.
    """
    modules = sorted(Path(tokenization_fast_r2d2.__file__).parent.glob("*.py"))
    return [
        texts._fingerprint, tokenizer.backend_tokenizer.to_str(), tokenizer.init_kwargs.get("word_rule"),
        tokenizer.init_kwargs.get("coordinators"), data.sentence_rule, data.clean_wikitext, data.keep_punctuation,
        data.max_length, *(module.read_text(encoding="utf-8") for module in modules),
    ]  # fmt: skip


def _flat_columns(column: pyarrow.ChunkedArray) -> Iterator[pyarrow.ChunkedArray]:
    """The lengths of all lists in a column, level by level, then the values in them."""
    while pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
        yield pyarrow.compute.cast(pyarrow.compute.list_value_length(column), "int64")
        column = pyarrow.compute.list_flatten(column)
    yield column


def tokenize(sentences: list[str], tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> list[dict]:
    """Sentences with the columns of `Corpus`; those that are too long have only a length."""
    fits = [len(sentence) <= CHARACTERS_PER_TOKEN * data.max_length for sentence in sentences]
    fitting = list(itertools.compress(sentences, fits))
    read = iter(sentences_to_parse(tokenizer, fitting, set_marks_aside=not data.keep_punctuation))
    return [
        _row_within_limit(next(read), data) if fit else _row_without_tokens(len(sentence))
        for sentence, fit in zip(sentences, fits, strict=True)
    ]


def sentences_of(lines: Iterable[str], data: DataOptions) -> list[str]:
    """The sentences of some lines, cut and cleaned as the options say."""
    clean = clean_wikitext if data.clean_wikitext else str
    return [clean(sentence) for line in lines for sentence in SENTENCE_RULES[data.sentence_rule](line or "")]


def sentences_of_texts(texts: Iterable[dict[str, str]], data: DataOptions) -> Iterator[str]:
    """The sentences of rows with a ``text``; none is read before it is asked for."""
    return (sentence for row in texts for sentence in sentences_of([row["text"]], data))


def _row_within_limit(sentence: ReadSentence, data: DataOptions) -> dict:
    has_words = data.keep_punctuation or not all(are_marks(sentence.words))
    length = len(sentence.input_ids) if has_words else 0
    if length > data.max_length or not has_words:
        return _row_without_tokens(length)
    return {name: getattr(sentence, name) for name in OF_SENTENCES} | {"length": length}


def _row_without_tokens(length: int) -> dict:
    return {name: [] for name in OF_SENTENCES} | {"length": length}
