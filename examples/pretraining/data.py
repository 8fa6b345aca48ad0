"""Everything that a run reads before it trains, and the folder that remembers which run it belongs to."""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from datasets import Dataset, IterableDataset
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.checkpoints import find_checkpoint, load_tokenizer
from modeling_fast_r2d2.grammar_induction import LabelledTree
from modeling_fast_r2d2.text_files import LOCK_FILE, OWNER_FILE, read_record, write_aside, write_text
from pretraining.checkpoints import MODEL
from pretraining.corpus import (
    Corpus,
    File,
    files_of,
    forms_for,
    lines_as_rows,
    read_texts,
    sentences_of_texts,
    tokenize,
    tokenize_corpus,
)
from pretraining.counts import VECTORS_FILE, CountVectors, UnitCounts, count_units, count_vectors
from pretraining.evaluation import read_gold_trees
from pretraining.models import final_config, make_model, make_tokenizer, size_of_count_vectors
from pretraining.options import DataOptions, Options

SETTINGS_FILE, TOKENIZER_FOLDER = "run.json", "tokenizer"
DIGEST = "corpus_digest"  # its name among the settings


@dataclass(frozen=True)
class Data:
    """Everything that is read before training.

    Attributes:
        texts: the lines of the corpus.
        corpus: the tokenized corpus; None if it is streamed.
        validation: features of sentences.
        to_draw: sentences whose trees are drawn, of the validation text or else of the corpus.
        gold: the trees of the treebank, if there is one.
        counts: of units in the text; None if no stage and no evaluation needs them.
        count_vectors: of its tokens; None if nothing needs them.
    """

    texts: Dataset | IterableDataset
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus | None
    validation: list[dict]
    to_draw: list[str]
    gold: list[LabelledTree]
    counts: UnitCounts | None
    count_vectors: CountVectors | None

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of sentences and tokens; none if the corpus is streamed."""
        if self.corpus is None:
            return {}
        lengths = self.corpus.lengths
        return {"sentences": len(lengths), "tokens": int(lengths.sum()), "too_long": self.corpus.num_too_long}

    @cached_property
    def unigram_losses(self) -> dict[str, float]:
        """Losses that a model must beat; none if the corpus is streamed or there is no validation text."""
        if self.corpus is None or not self.validation:
            return {}
        size = len(self.tokenizer)
        validation = np.concatenate([feature["input_ids"] for feature in self.validation])
        return unigram_losses(self.corpus.count_tokens(size), np.bincount(validation, minlength=size))


def unigram_losses(train: np.ndarray, validation: np.ndarray) -> dict[str, float]:
    """Entropy and validation loss, in nats per token, of a unigram model of the training text, from how often each
    token occurs, ``(vocab_size,)``. The validation loss is computed with one added to each count."""
    share = train[train > 0] / train.sum()
    log_prob = np.log((train + 1) / (train + 1).sum())
    return {
        "unigram_entropy": float(-(share * np.log(share)).sum()),
        "unigram_validation_loss": float(-(validation * log_prob).sum() / validation.sum()),
    }


def read_held_out(data: DataOptions) -> tuple[list[LabelledTree], list[File]]:
    """The trees of the treebank and the files of validation text; they show typing errors before a corpus is read."""
    gold = read_gold_trees(data.treebank, data.treebank_split, data.treebank_half) if data.treebank else []
    return gold, [file for source in data.validation or [] for file in files_of(source)]


def read_data(options: Options, held_out: tuple[list[LabelledTree], list[File]], accelerator: Accelerator) -> Data:
    """Read and tokenize all text besides what `read_held_out` gave; then make the run's folder. The main process goes
    first and fills the cache. Raises ValueError for text, a tokenizer or a model that cannot be used, and for a folder
    that is not this run's."""
    folder, data, (gold, validation_files) = Path(options.output.output_dir), options.data, held_out
    processes = {"num_processes": accelerator.num_processes, "precision": accelerator.mixed_precision}
    settings = options.that_decide_weights() | processes
    with accelerator.main_process_first():
        check_run_folder(folder, settings, [decision.option for decision in options.decisions])
        texts, tokenizer = read_texts(data), read_tokenizer(folder)
        is_new = accelerator.is_main_process and tokenizer is None
        if tokenizer is None:
            to_learn_from = texts.take(data.shuffle_buffer) if data.streaming else texts
            tokenizer = make_tokenizer(to_learn_from, data, options.model)
        if data.streaming:
            corpus = None
            check_stream(texts, tokenizer, data)
        else:
            corpus = tokenize_corpus(texts, tokenizer, data)
            settings[DIGEST] = corpus.digest()
            check_run_folder(folder, settings)
        validation = read_validation(validation_files, tokenizer, data)
        drawn = itertools.islice(validation or fitting(texts, tokenizer, data), options.output.draw_trees)
        to_draw = [sentence for _, sentence in drawn]
        if is_new:
            make_model(tokenizer, options.model)  # wrong options must show before a folder is made
            make_run_folder(folder, settings, tokenizer)
        elif accelerator.is_main_process:
            write_settings(folder, settings)  # what comes afterwards may have changed
        counts = None
        if data.treebank or options.uses("needs_counts"):
            counts = count_units(corpus or read_beginning(texts, tokenizer, data), len(tokenizer))
        vectors = read_count_vectors(folder, corpus, tokenizer, options, accelerator.is_main_process)
    if not folder.exists():
        raise ValueError(f"some machine does not see {folder}; --output_dir must be on a disk that all machines share")
    return Data(texts, tokenizer, corpus, [feature for feature, _ in validation], to_draw, gold, counts, vectors)


def check_run_folder(folder: Path, settings: dict, decided: Collection[str] = ()) -> None:
    """Raise ValueError unless the folder is new or empty, or belongs to a run with these settings; say which of those
    that have changed the text has decided. What comes afterwards may change until it begins."""
    if not (folder / SETTINGS_FILE).exists():
        if folder.exists() and not (folder.is_dir() and all(map(_is_unfinished, folder.iterdir()))):
            raise ValueError(f"{folder} exists and is no run's folder; give an empty or a new folder as --output_dir")
        return
    old = {"stages": [], "afterwards": []} | read_record(folder / SETTINGS_FILE)
    begun = sum(map(Path.is_dir, folder.glob("afterwards-*")))
    if old["afterwards"][:begun] == settings["afterwards"][:begun] and not (folder / MODEL).exists():
        old["afterwards"] = settings["afterwards"]
    changed = [
        _change(name, old.get(name), settings[name]) + (", as the text decides" if name in decided else "")
        for name in settings
        if old.get(name) != settings[name]
    ]
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings: {'; '.join(changed)}. Give the same text and settings to "
            "resume it, or another --output_dir; to begin another run from its weights, give one of its checkpoints "
            "as --model"
        )


def _change(name: str, before: object, now: object) -> str:
    """What has changed in an option, or in the first of the stages that differ."""
    if name == DIGEST:
        name = "the corpus has changed, or this version reads it in another way: its digest"
    if name == "stages" and isinstance(before, list):
        pairs = enumerate(itertools.zip_longest(before, now), start=1)
        number, (before, now) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
        name = f"stage {number}"
    return f"{name} was {before!r}, now {now!r}"


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a run that has begun; None if none has. Raises ValueError if it is damaged."""
    if not (folder / SETTINGS_FILE).exists():
        return None
    return load_tokenizer(find_checkpoint(str(folder / TOKENIZER_FOLDER), is_model=False))


def make_run_folder(folder: Path, settings: dict, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a new run's folder or fill an empty one. The settings are written last: with them, the run has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder / TOKENIZER_FOLDER)
    write_settings(folder, settings)


def write_settings(folder: Path, settings: dict) -> None:
    write_text(folder / SETTINGS_FILE, json.dumps(settings, indent=1))


def _is_unfinished(path: Path) -> bool:
    """Whether a run that is killed before it begins may leave this."""
    return path.name in (TOKENIZER_FOLDER, LOCK_FILE, OWNER_FILE) or path.name.startswith(f".{SETTINGS_FILE}.")


def read_beginning(texts: IterableDataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> Corpus:
    """The first lines of a stream as a corpus."""
    return tokenize_corpus(Dataset.from_list(list(texts.take(data.shuffle_buffer))), tokenizer, data)


def read_count_vectors(
    folder: Path, corpus: Corpus | None, tokenizer: PreTrainedTokenizerBase, options: Options, is_main: bool
) -> CountVectors | None:
    """The vectors in the run's folder, or new ones, which the main process saves; None if nothing needs them. Raises
    ValueError if the file is damaged."""
    if corpus is None or not options.needs_count_vectors:
        return None
    path = folder / VECTORS_FILE
    if path.exists():
        try:
            return CountVectors(**load_file(path))
        except (SafetensorError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete it, and the text is counted again") from error
    config = final_config(options.model, tokenizer)
    features = size_of_count_vectors(options.model, config)
    made = count_vectors(corpus.token_ids(), corpus.lengths, config.vocab_size, features)
    if is_main:
        write_aside(path, lambda aside: save_file(vars(made), aside))
    return made


def fitting(
    rows: Iterable[dict[str, str]], tokenizer: PreTrainedTokenizerBase, data: DataOptions
) -> Iterator[tuple[dict, str]]:
    """Features and texts of the sentences that are not too long; none is read before it is asked for."""
    for sentence in sentences_of_texts(rows, data):
        [feature] = tokenize([sentence], tokenizer, data)
        if feature["input_ids"]:
            yield feature, sentence


def check_stream(texts: IterableDataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> None:
    """Raise ValueError if the beginning of a stream has no sentence to train on."""
    if next(fitting(itertools.islice(texts, data.shuffle_buffer), tokenizer, data), None) is None:
        raise ValueError(f"no sentence of 1 to {data.max_length} tokens in the first {data.shuffle_buffer:,} lines of "
                         "the stream; --sentence_rule cuts lines into sentences")  # fmt: skip


def read_validation(files: list[File], tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> list[tuple[dict, str]]:
    """The first validation sentences that are not too long, as features and as texts; read like a corpus."""
    read = fitting(lines_as_rows(files, forms_for(data), data.text_column), tokenizer, data)
    found = list(itertools.islice(read, data.validation_sentences))
    if files and not found:
        names = ", ".join(name for name, *_ in files)
        raise ValueError(f"no sentence of 1 to {data.max_length} tokens in {names}")
    return found
