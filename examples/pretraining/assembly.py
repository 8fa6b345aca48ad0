"""Make a run from its options, ready for the first step."""

import itertools
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs, set_seed
from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.grammar_induction import LabelledTree
from pretraining.batches import Limits, PlannedEpochs, ProcessShare
from pretraining.best import Best
from pretraining.checkpoints import Checkpoints
from pretraining.corpus import Corpus, make_line_tokenizer, sentences_of, tokenize_corpus
from pretraining.count_teacher import CountTeacher, UnitCounts, count_corpus
from pretraining.display import Display
from pretraining.evaluation import Evaluation, read_gold_trees, unigram_figures
from pretraining.guidance import CollatorWithBounds, Guide
from pretraining.loop import Run
from pretraining.losses import Objective, check_stages, leave_parameters_out
from pretraining.models import begin_with_frequencies, make_model, make_tokenizer
from pretraining.optimisation import make_optimizer, make_schedule
from pretraining.options import DataOptions, Options
from pretraining.progress import Progress
from pretraining.run_folder import DIGEST, check_corpus, check_run_folder, make_run_folder, read_tokenizer
from pretraining.settings import Plan, Stage
from pretraining.streaming import StreamedEpochs
from pretraining.texts import files_of, read_texts
from pretraining.treebank import TreebankScorer
from tokenization_fast_r2d2 import read_sentences

WORKERS_FOR_A_GPU = 2


@dataclass(frozen=True)
class Data:
    """Everything that is read before training.

    Attributes:
        texts: the lines of the corpus.
        corpus: the tokenized corpus; None if it is streamed.
        validation, validation_texts: features and texts of the same sentences.
        counts: of units in the text; None if no stage and no evaluation needs them.
    """

    texts: Dataset | IterableDataset
    tokenizer: PreTrainedTokenizerBase
    corpus: Corpus | None
    validation: list[dict]
    validation_texts: list[str]
    counts: UnitCounts | None


def make_accelerator(options: Options) -> Accelerator:
    output = options.output
    # `accelerate launch --cpu` sets the address at which several processes would meet, and starts one.
    if {"ACCELERATE_USE_CPU", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
        warnings.warn(
            "accelerate launch has started one process, not several; on a CPU torchrun --nproc_per_node starts them",
            stacklevel=2,
        )
    return Accelerator(
        mixed_precision=options.training.mixed_precision, cpu=options.training.use_cpu,
        log_with=None if output.report_to == "none" else output.report_to, project_dir=output.output_dir,
        kwargs_handlers=[
            DistributedDataParallelKwargs(
                gradient_as_bucket_view=True, find_unused_parameters=leave_parameters_out(options.stages)
            ),
            InitProcessGroupKwargs(timeout=timedelta(days=1)),  # the others wait while the main process reads
        ],
    )  # fmt: skip


def read_data(options: Options, accelerator: Accelerator) -> Data:
    """Read and tokenize all text; then make the run's folder. The main process goes first and fills the cache."""
    check_stages(options.stages)
    folder = Path(options.output.output_dir)
    processes = {"num_processes": accelerator.num_processes, "precision": accelerator.mixed_precision}
    settings = options.that_decide_weights() | processes
    with accelerator.main_process_first():
        check_run_folder(folder, settings)
        texts = read_texts(options.data)
        tokenizer = read_tokenizer(folder) or make_tokenizer(
            sentences_to_learn_from(texts, options.data), options.data, options.model
        )
        corpus = None if options.data.streaming else tokenize_corpus(texts, tokenizer, options.data)
        if corpus is None:
            check_stream(texts, tokenizer, options.data)
        else:
            settings[DIGEST] = corpus.digest()
            check_corpus(folder, settings[DIGEST])
        validation = read_validation(tokenizer, options)
        if accelerator.is_main_process and read_tokenizer(folder) is None:
            make_model(tokenizer, options.model)  # wrong options must show before a folder is made
            make_gold_trees(options.data)
            make_run_folder(folder, settings, tokenizer)
        counts = read_counts(folder, texts, tokenizer, options, accelerator.is_main_process)
    if not folder.exists():
        raise ValueError(f"some machine does not see {folder}; --output_dir must be on a disk that all machines share")
    return Data(texts, tokenizer, corpus, *validation, counts)


def read_counts(
    folder: Path, texts: Dataset | IterableDataset, tokenizer: PreTrainedTokenizerBase, options: Options, is_main: bool
) -> UnitCounts | None:
    """The counts in the run's folder, or new ones, which the main process saves; None if nothing needs counts."""
    if not (options.data.treebank or options.needs_counts):
        return None
    counts = UnitCounts.load(folder) if folder.exists() else None
    if counts is None:
        counts = count_corpus(texts, tokenizer, options.data)
        if is_main:
            counts.save(folder)
    return counts


def sentences_to_learn_from(texts: Dataset | IterableDataset, data: DataOptions) -> Iterator[str]:
    """The sentences that a new tokenizer is trained on: all, or those at the beginning of a stream."""
    lines = itertools.islice(texts, data.shuffle_buffer if data.streaming else None)
    return (sentence for line in lines for sentence in sentences_of([line["text"]], data))


def check_stream(texts: IterableDataset, tokenizer: PreTrainedTokenizerBase, data: DataOptions) -> None:
    """Raise ValueError if the beginning of a stream has no sentence to train on."""
    tokenize = make_line_tokenizer(tokenizer, data)
    lines = itertools.islice(texts, data.shuffle_buffer)
    if not any(sentence["input_ids"] for line in lines for sentence in tokenize([line["text"]])):
        raise ValueError(f"no sentence of 1 to {data.max_length} tokens in the first {data.shuffle_buffer:,} lines of "
                         "the stream; --sentence_rule cuts lines into sentences")  # fmt: skip


def read_validation(tokenizer: PreTrainedTokenizerBase, options: Options) -> tuple[list[dict], list[str]]:
    """The first validation sentences that are not too long, as features and as texts."""
    files = [name for source in options.data.validation or [] for name, *_ in files_of(source)]
    tokenize, features, texts = make_line_tokenizer(tokenizer, options.data), [], []
    for line in read_sentences(files):
        sentences = sentences_of([line], options.data)
        for feature, text in zip(tokenize([line]), sentences, strict=True):
            if feature["input_ids"]:
                features.append(feature)
                texts.append(text)
        if len(features) >= options.data.validation_sentences:
            break
    limit = options.data.validation_sentences
    if files and not features:
        raise ValueError(f"no sentence of 1 to {options.data.max_length} tokens in {', '.join(files)}")
    return features[:limit], texts[:limit]


def make_run(options: Options, accelerator: Accelerator, data: Data) -> Run:
    """Make the model, the optimiser, the epochs and everything that watches them."""
    training, output, folder = options.training, options.output, Path(options.output.output_dir)
    limits = Limits(training.per_device_train_batch_size, training.per_device_train_batch_tokens)
    set_seed(training.seed)
    model = make_model(data.tokenizer, options.model, training.gradient_checkpointing)
    model.config.punctuation = "keep" if options.data.keep_punctuation else "aside"
    if data.corpus is not None and not options.model.model:
        begin_with_frequencies(model, data.corpus.count_tokens(model.config.vocab_size))
    teacher = make_teacher(data, options, accelerator)
    evaluation = Evaluation(
        accelerator=accelerator,
        model=model,
        tokenizer=data.tokenizer,
        limits=limits,
        validation=data.validation,
        texts_to_draw=texts_to_draw(data, options),
        scorer=make_scorer(data, options, model, teacher),
        drawings=folder / "trees.txt",
    )
    epochs = make_epochs(options, accelerator, data, limits)
    plan = make_plan(options, epochs, limits)
    num_steps = plan.num_steps or training.max_steps or training.num_train_epochs * len(epochs.plan(0))
    if training.torch_compile:
        model.model.composition.compile(dynamic=True)
    guide = Guide(teacher, model)
    objective = Objective(model, guide, options.stages)
    optimizer = make_optimizer(objective, training, accelerator.device.type)
    schedule = make_schedule(optimizer, training.warmup_steps, num_steps, plan)
    window_size = model.config.window_size
    objective, optimizer = accelerator.prepare(objective, optimizer)
    set_seed(training.seed + 1, device_specific=True)  # every process has its own noise and dropout
    return Run(
        accelerator=accelerator,
        options=options,
        tokenizer=data.tokenizer,
        model=model,
        objective=objective,
        optimizer=optimizer,
        schedule=schedule,
        epochs=epochs,
        plan=plan,
        guide=guide,
        evaluate=evaluation,
        checkpoints=Checkpoints(folder / "checkpoints", output.save_total_limit, accelerator),
        best=Best(folder / "best", output.metric_for_best_model),
        display=Display(num_steps, accelerator.is_main_process),
        progress=Progress(corpus=corpus_sizes(data.corpus)),
        window_size=window_size,
    )


def texts_to_draw(data: Data, options: Options) -> list[str]:
    """Sentences whose trees are drawn: of the validation text or, without one, of the corpus."""
    number = options.output.draw_trees
    return data.validation_texts[:number] or list(
        itertools.islice(sentences_to_learn_from(data.texts, options.data), number)
    )


def compare_with_unigrams(data: Data) -> dict[str, float]:
    """Losses that a model must beat; empty if the corpus is streamed or there is no validation text."""
    if data.corpus is None or not data.validation:
        return {}
    size = len(data.tokenizer)
    validation = np.concatenate([feature["input_ids"] for feature in data.validation])
    return unigram_figures(data.corpus.count_tokens(size), np.bincount(validation, minlength=size))


def make_plan(options: Options, epochs: PlannedEpochs | StreamedEpochs, limits: Limits) -> Plan:
    """The plan of the recipe's stages; the run's batches tell how many steps a stage has."""

    def tokens_per_step(stage: Stage) -> float:
        return epochs.tokens_per_step(
            replace(limits, tokens=stage.at(0).per_device_train_batch_tokens or limits.tokens)
        )

    return Plan(options.stages, tokens_per_step)


def make_teacher(data: Data, options: Options, accelerator: Accelerator) -> CountTeacher | None:
    return CountTeacher(data.counts, options.data.counts_skew, accelerator.device) if data.counts else None


def make_scorer(data: Data, options: Options, model, teacher: CountTeacher | None) -> TreebankScorer | None:
    gold = make_gold_trees(options.data)
    number, tokens = options.data.treebank_sentences, options.training.per_device_train_batch_tokens
    return TreebankScorer(gold, model, data.tokenizer, teacher, number, tokens) if gold else None


def make_gold_trees(data: DataOptions) -> list[LabelledTree]:
    return read_gold_trees(data.treebank, data.treebank_split, data.treebank_half) if data.treebank else []


def make_epochs(options: Options, accelerator: Accelerator, data: Data, limits: Limits):
    """Epochs of a corpus that was read before, or that is streamed."""
    training, collate = options.training, CollatorWithBounds(data.tokenizer)
    share = ProcessShare(accelerator.process_index, accelerator.num_processes, training.gradient_accumulation_steps)
    if data.corpus is None:
        tokenize = make_line_tokenizer(data.tokenizer, options.data)
        return StreamedEpochs(data.texts, tokenize, training.seed, limits, share, collate, options.data.shuffle_buffer)
    workers = number_of_workers(options.data, accelerator.device.type)
    return PlannedEpochs(data.corpus, training.seed, limits, share, collate, workers)


def number_of_workers(options: DataOptions, device: str) -> int:
    """Processes that load batches. A GPU would wait for batches; a CPU has no processor to spare."""
    if options.dataloader_num_workers is None:
        return WORKERS_FOR_A_GPU if device == "cuda" else 0
    return options.dataloader_num_workers


def corpus_sizes(corpus: Corpus | None) -> dict[str, int]:
    """Sentences and tokens, by which a changed corpus is noticed; empty if it is streamed."""
    if corpus is None:
        return {}
    return {"sentences": len(corpus.lengths), "tokens": int(np.sum(corpus.lengths)), "too_long": corpus.num_too_long}
