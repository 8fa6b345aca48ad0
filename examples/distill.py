"""Distil several parsers into one: average their posteriors on raw text, and train a student on the best trees.

    python examples/distill.py --teachers runs/1/model runs/2/model runs/3/model --student runs/1/model \\
        --corpus text.txt.gz --output_dir runs/distilled --treebank gold.mrg

    text ── words ──► each teacher: posteriors of spans ──► mean ──► tree of minimum risk ──► the student's parser
            reading.py             teachers.py                      consensus.py                   Trainer

A teacher is a checkpoint, or a file with a tree for each line of the text. Parser and chart of a checkpoint can be two
teachers (``--methods parser chart``). What words such as *and* join is put together in their trees
(`pretraining/conjuncts.py`). The student's parser is trained further, or with ``--config_overrides`` a smaller and
faster one takes its place. With ``--substitutes`` it also learns from sentences in which longer constituents have the
place of shorter ones or of words (`pretraining/substitution.py`), and with ``--first_words`` the trees follow what is
usual behind the first word of a constituent (`pretraining/first_words.py`), and relative clauses join nouns
(`pretraining/relative_clauses.py`). With both, it also learns from sentences whose subjects were given relative clauses
(`pretraining/subject_clauses.py`). The student's encoder does not change; ``pretrain.py --recipe settle.yaml --model
<output_dir>/model`` lets it follow the new trees.

The options of `TrainingArguments` are options here. The same command with ``--resume_from_checkpoint true`` resumes
from its newest checkpoint. Other folders that hold something are refused.
"""

import itertools
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
from datasets import Dataset
from torch import Tensor
from tqdm import tqdm
from transformers import (
    AutoTokenizer,
    HfArgumentParser,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForConstituencyParsing, FastR2D2ForPreTraining, FastR2D2Model
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model
from modeling_fast_r2d2.checkpoints.folders import HEADS
from modeling_fast_r2d2.grammar_induction import score_trees
from modeling_fast_r2d2.grammar_induction.systems import model_trees
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.parsing_pipeline import METHODS, PARSER
from modeling_fast_r2d2.text_files import hold_folder
from pretraining.batches import Limits, plan_epoch
from pretraining.checkpoints import MODEL, STOPPED, check_folder, last_whole_checkpoint, put_in_place, save_model
from pretraining.conjuncts import join_alike, join_conjuncts
from pretraining.evaluation import read_gold_trees
from pretraining.first_words import FirstWords
from pretraining.models import given_config, override, weights_of
from pretraining.options import ModelOptions, option
from pretraining.relative_clauses import RelativeClauses
from pretraining.subject_clauses import ClausesInSubjects
from pretraining.substitution import Substitution, WordTree, model_batch
from pretraining.teachers import BestTrees, consensus, make_teachers
from tokenization_fast_r2d2 import clean_wikitext, read_sentences
from tokenization_fast_r2d2.language import are_marks
from tokenization_fast_r2d2.reading import sentences_to_parse
from tokenization_fast_r2d2.word_rules import find_words

SENTENCES_TO_TAKE_FROM, SENTENCES_AT_ONCE = 20_000, 256


@dataclass
class DistillationOptions:
    teachers: list[str] = field(metadata={"help": "folders or Hub names of checkpoints, or files of trees"})
    student: str = field(metadata={"help": "folder or Hub name of the checkpoint whose parser is trained further"})
    corpus: list[str] = field(metadata={"help": "text files (.txt or .txt.gz), one sentence per line"})
    weights: list[float] | None = option("how much each teacher counts, in their order; by default all the same")
    config_overrides: str | None = option(
        "fields of the student's configuration to change, of those that begin with parser_, such as "
        "parser_hidden_size=128,parser_embedding_size=64; a parser of another size is a new one"
    )
    clean_wikitext: bool = option("undo WikiText's mark-up (@-@, @,@, @.@, <unk>)", False)
    methods: list[str] | None = option(
        "which trees of each teacher to learn from, in their order; by default the parser's. A checkpoint may be two "
        "teachers: chart takes the probabilities in its chart",
        choices=list(METHODS),
    )
    bounds_bonus: float | None = option(
        "bonus in nats for split points at punctuation, in checkpoints; by default as they are configured"
    )
    max_words: int = option(
        "longer sentences are left out, in words, or in characters where a script has no blanks; time grows with the "
        "cube of the length", 60
    )  # fmt: skip
    substitutes: int = option(
        "for each sentence at most so many further ones, in which a longer constituent has the place of a shorter one "
        "or of a word; with --first_words also some in which a subject has a relative clause", 0
    )  # fmt: skip
    first_words: bool = option(
        "let the first word of a constituent decide with the teachers whether all that follows it belongs together, as "
        "in (to (buy (the car))), let what begins with a determiner be an object, and join relative clauses with the "
        "nouns in front of them; chosen for English", False
    )  # fmt: skip
    treebank: str | None = option("file of bracketed trees, to print F1 at every save")
    treebank_half: str | None = option(
        "evaluate only the trees with an even or an odd number, counted from 0", choices=["even", "odd"]
    )

    def __post_init__(self):
        self.weights = self.weights or [1.0] * len(self.teachers)
        self.methods = self.methods or [PARSER] * len(self.teachers)
        if len(self.methods) != len(self.teachers):
            raise ValueError(f"--methods must have one method per teacher, {len(self.teachers)}, got {self.methods}")
        if len(self.weights) != len(self.teachers):
            raise ValueError(f"--weights must have one number per teacher, {len(self.teachers)}, got {self.weights}")
        for name, least in (("substitutes", 0), ("max_words", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name} must be >= {least}, got {getattr(self, name)}")
        if not all(0 < weight < float("inf") for weight in self.weights):
            raise ValueError(f"--weights must be numbers above 0, got {self.weights}")
        if self.config_overrides and not all(name.startswith("parser_") for name in self.config_overrides.split(",")):
            raise ValueError("--config_overrides may only change fields that begin with parser_, since only the parser "
                             f"is trained; got {self.config_overrides!r}")  # fmt: skip


@dataclass
class DistillationArguments(TrainingArguments):
    """`TrainingArguments` with defaults that suit distillation."""

    per_device_train_batch_size: int = 256
    learning_rate: float = 3e-3
    num_train_epochs: float = 1.0
    warmup_steps: float = 30
    lr_scheduler_type: str = "linear"
    save_steps: float = 100
    save_total_limit: int | None = 2
    logging_steps: float = 20
    report_to: str = "none"
    remove_unused_columns: bool = False
    train_sampling_strategy: str = "sequential"  # the rows are already grouped into batches

    def __post_init__(self):
        if self.disable_tqdm is None:
            self.disable_tqdm = not sys.stderr.isatty()  # in a file, each refresh would be a line
        super().__post_init__()


class CollatorWithTrees:
    """Makes batches of numbered sentences with the teachers' best trees over pieces as labels. What *and* joins is
    together in them, and alike by the vectors of ``encoder``, a `FastR2D2Model` in evaluation, on the CPU.
    ``first_words`` may change these trees, and what is in ``further`` makes more sentences of them."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, teachers: list, weights: list[float], encoder: FastR2D2Model
    ):
        self.tokenizer, self.teachers, self.weights, self.encoder = tokenizer, teachers, weights, encoder
        self.coordinators = tokenizer.init_kwargs.get("coordinators") or ()
        self.first_words: FirstWords | None = None
        self.relative_clauses: RelativeClauses | None = None
        self.further: list[Callable[[Sequence[WordTree], np.random.Generator], list[WordTree]]] = []

    def best(self, texts: Sequence[str], rows: Sequence[int]) -> BestTrees:
        read = sentences_to_parse(self.tokenizer, texts, set_marks_aside=True)
        best = consensus(self.teachers, self.weights, read, rows)
        return best._replace(spans=join_conjuncts(best.spans, best.are_among(self.coordinators)))

    def trees(self, best: BestTrees) -> list[WordTree]:
        spans = best.spans
        if self.first_words is not None:
            spans = self.first_words(spans, best.posteriors, best.first_pieces)
            spans = self.relative_clauses(spans, best.first_pieces)
        rows = zip(best.sentences, spans.tolist(), strict=True)
        trees = [WordTree.of(sentence, [*map(tuple, row[: len(sentence.words) - 1])]) for sentence, row in rows]
        return join_alike(self.encoder, trees, best.are_among(self.coordinators).tolist())

    def __call__(self, features: list[dict]) -> dict[str, Tensor]:
        texts, rows = zip(*((feature["text"], feature["row"]) for feature in features), strict=True)
        trees = self.trees(self.best(texts, rows))
        random = np.random.default_rng(rows[0])
        trees += [tree for make in self.further for tree in make(trees, random)]
        return model_batch(trees, self.tokenizer.pad_token_id)


class TreebankScore(TrainerCallback):
    """Prints F1 against a treebank at every save."""

    def __init__(self, path: str, half: str | None, tokenizer: PreTrainedTokenizerBase):
        self.gold, self.tokenizer = read_gold_trees(path, half=half), tokenizer

    def on_save(self, arguments, state, control, model, **_) -> None:
        if not state.is_world_process_zero:
            return
        scores = score_trees(model_trees(TreeParser(model, self.tokenizer), self.gold), self.gold)
        print(f"step {state.global_step}: sentence F1 {scores.sentence_f1:.1f}")


GROUPS = (DistillationOptions, DistillationArguments)


def check_arguments(arguments: list[str]) -> None:
    """Raise ValueError, or end with a message, for arguments that `main` would refuse at once."""
    given = HfArgumentParser(GROUPS).parse_args(arguments)
    options = DistillationOptions(**{one.name: getattr(given, one.name) for one in fields(DistillationOptions)})
    override(FastR2D2Config(), options.config_overrides)
    if options.treebank:
        read_gold_trees(options.treebank, half=options.treebank_half)


def main(arguments: list[str] | None = None) -> None:
    parser = HfArgumentParser(GROUPS, description=__doc__.split("\n")[0])
    options, settings = parser.parse_args_into_dataclasses(arguments)
    folder = Path(settings.output_dir)
    with hold_folder(folder):
        check_folder(folder, settings.resume_from_checkpoint)
        distill(options, settings, folder)


def distill(options: DistillationOptions, settings: DistillationArguments, folder: Path) -> None:
    """Train the student's parser, and save the student."""
    if settings.resume_from_checkpoint in ("True", "true"):
        settings.resume_from_checkpoint = last_whole_checkpoint(folder)
    set_seed(settings.seed)
    source = find_checkpoint(options.student)
    tokenizer = AutoTokenizer.from_pretrained(source)
    student = load_student(source, options.config_overrides)
    check_student(student.config)
    if checkpoint := settings.resume_from_checkpoint:
        check_checkpoint(checkpoint, student.config)
    model = load_model(FastR2D2ForPreTraining, source, may_miss=HEADS)  # which gets the student's parser
    lines = [clean_wikitext(line) if options.clean_wikitext else line for line in read_sentences(options.corpus)]
    teachers, weights = make_teachers(
        options.teachers, options.methods or [], options.weights or [], options.bounds_bonus, len(lines)
    )
    callbacks = [TreebankScore(options.treebank, options.treebank_half, tokenizer)] if options.treebank else []
    dataset = make_dataset(lines, options, settings)
    collator = CollatorWithTrees(tokenizer, teachers, weights, model.model.eval())
    if options.first_words or options.substitutes:
        learn_from_sample(collator, dataset, options)
    trainer = Trainer(student, settings, train_dataset=dataset, data_collator=collator, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=settings.resume_from_checkpoint)
    if settings.should_save:
        aside = folder / f".{MODEL}.new"
        shutil.rmtree(aside, ignore_errors=True)
        save_student(student, tokenizer, model, aside)
        put_in_place(aside, folder / MODEL)
        print(f"the model is in {folder / MODEL}")


def learn_from_sample(collator: CollatorWithTrees, dataset: Dataset, options: DistillationOptions) -> None:
    """Give the collator what it may change trees by, and what it may take further sentences from."""
    sample = dataset.select(range(min(len(dataset), SENTENCES_TO_TAKE_FROM)))
    parts = tqdm(sample.iter(SENTENCES_AT_ONCE), "finding constituents", len(sample) // SENTENCES_AT_ONCE, disable=None)
    found: Iterable[BestTrees] = (collator.best(part["text"], part["row"]) for part in parts)
    if options.first_words:
        found = list(found)  # these trees are counted, and then changed
        trees = [(best.spans, best.first_pieces) for best in found]
        collator.first_words = FirstWords(len(collator.tokenizer), trees)
        collator.relative_clauses = RelativeClauses(collator.first_words.odds, trees)
        pronouns = collator.tokenizer.convert_ids_to_tokens(sorted(collator.relative_clauses.pronouns))
        print(f"relative pronouns: {', '.join(pronouns) or 'none was found'}")
    if options.substitutes:
        word_trees = [tree for best in found for tree in collator.trees(best)]
        collator.further.append(Substitution(collator.encoder, word_trees, options.substitutes))
        if options.first_words:
            collator.further.append(ClausesInSubjects(collator.relative_clauses, word_trees))


def load_student(source: str, overrides: str | None) -> FastR2D2ForConstituencyParsing:
    """The student's parser, or a new one if the overrides want other weights."""
    given = given_config(ModelOptions(source))
    config = override(given, overrides)
    if weights_of(config) == weights_of(given):
        return load_model(FastR2D2ForConstituencyParsing, source, config=config)
    return FastR2D2ForConstituencyParsing(config)


def check_student(config: FastR2D2Config) -> None:
    """Raise ValueError for a model that would come out as another one than it was."""
    if config.punctuation == "keep":
        raise ValueError("the student's parser sees punctuation, and would learn trees without it; give a student of "
                         "--no_keep_punctuation, or set punctuation to aside in its config.json")  # fmt: skip
    if any("Classification" in name for name in config.architectures or []):
        raise ValueError("the student is a classifier, whose head would be lost; give the model it was made from")


def check_checkpoint(checkpoint: str, config: FastR2D2Config) -> None:
    """Raise ValueError if a run had another parser."""
    if weights_of(given_config(ModelOptions(checkpoint))) != weights_of(config):
        raise ValueError(f"{checkpoint} is of a parser of another size; give the same --student and --config_overrides "
                         "to go on, or another --output_dir")  # fmt: skip


def make_dataset(lines: list[str], options: DistillationOptions, settings: TrainingArguments) -> Dataset:
    """Lines of two or more words with their numbers, in batches of similar length, shuffled by the seed alone."""
    lengths = np.array([count_words(line) for line in lines])
    [kept] = np.nonzero((lengths > 1) & (lengths <= options.max_words))
    if not len(kept):
        raise ValueError(
            f"no line of 2 to {options.max_words} words in the corpus; raise --max_words to take longer ones"
        )
    size = settings.per_device_train_batch_size
    batches = plan_epoch(lengths[kept], settings.seed, 0, Limits(size, size * options.max_words), 1)
    # The only shorter part comes last: each part is a batch of `Trainer`'s.
    parts = sorted((part for [part] in batches), key=lambda part: len(part) < size)
    rows = kept[np.concatenate(parts)].tolist()
    return Dataset.from_dict({"row": rows, "text": [lines[row] for row in rows]})


def count_words(line: str) -> int:
    """The words of a line, without its marks; where a script has no blanks, its characters."""
    found = find_words(line)
    are_words = (not is_mark for is_mark in are_marks([line[first:last] for (first, last), _ in found]))
    words = itertools.compress(found, are_words)
    return sum(last - first if is_unspaced else 1 for (first, last), is_unspaced in words)


def save_student(
    student: FastR2D2ForConstituencyParsing, tokenizer: PreTrainedTokenizerBase, model: FastR2D2ForPreTraining,
    folder: Path,
) -> None:  # fmt: skip
    """Save the student's model with its new parser."""
    model.model.parser = student.parser
    model.config.update({name: value for name, value in vars(student.config).items() if name.startswith("parser_")})
    save_model(model, tokenizer, folder)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(STOPPED)
