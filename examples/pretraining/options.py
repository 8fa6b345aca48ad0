"""The options of `pretrain.py`. Every field is a command-line option with its help text."""

import json
import math
import os
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path

from modeling_fast_r2d2.grammar_induction.treebanks import PTB_SECTIONS
from pretraining.checkpoints import HIGHER_IS_BETTER
from pretraining.recipe import Stage, ends_of
from tokenization_fast_r2d2 import SENTENCE_RULES
from tokenization_fast_r2d2.word_rules import CUTS

AUTO = "auto"  # the value of an option that the text decides (see `decisions`)

# Fields of FastR2D2Config; "base" is the paper's model (Section 4.1.1), which is the config's default.
SIZES = {
    "tiny": {
        "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256,
        "parser_embedding_size": 64, "parser_hidden_size": 128, "parser_num_layers": 2, "window_size": 2,
    },
    "small": {
        "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "intermediate_size": 1024,
        "parser_embedding_size": 128, "parser_hidden_size": 256, "parser_num_layers": 2,
    },
    "base": {},
}  # fmt: skip


def option(text: str, default=None, **metadata):
    """A field that is an option of a command line, with its help."""
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class DataOptions:
    """Which text is read, and how it is cut and tokenized."""

    corpus: list[str] = field(metadata={
        "help": "text files (.txt or .txt.gz), globs, folders of text files; or one `datasets` folder or Hub name"
    })  # fmt: skip
    corpus_config: str | None = option("configuration of a Hub data set, such as wikitext-103-raw-v1")
    corpus_split: str = option("split of a `datasets` folder or of a Hub data set", "train")
    text_column: str = option(
        "column that holds the text in a `datasets` folder or a Hub data set, or its key in lines of JSON", "text"
    )  # fmt: skip
    streaming: bool = option(
        "read the corpus during training, for a corpus that is larger than the disk; a change of the corpus is then "
        "not noticed",
        False,
    )
    shuffle_buffer: int = option("with --streaming, the number of sentences that are shuffled together", 100_000)
    sentence_rule: str = option("how lines are cut into sentences", "line", choices=list(SENTENCE_RULES))
    clean_wikitext: bool = option("undo WikiText's mark-up (@-@, @,@, @.@, <unk>)", False)
    keep_punctuation: bool = option(
        "whether the model sees punctuation; for grammar-induction benchmarks, which have none, give "
        "--no_keep_punctuation. A given model that was trained without it goes on without it",
        True,
    )
    max_length: int = option("longer sentences, in tokens, are counted and left out; use 150 for Chinese", 200)
    tokenizer: str | None = option(
        "tokenizer's folder or Hub name; by default the given model's, or a new one, trained on the corpus or on the "
        "beginning of a stream"
    )
    vocab_size: str = option("vocabulary size of a new tokenizer, or auto: by the amount of text", "30522")
    tokenizer_kind: str = option(
        "kind of a new tokenizer; auto: characters for scripts without blanks, else wordpiece", "wordpiece",
        choices=["wordpiece", "character", "word", AUTO],
    )  # fmt: skip
    word_rule: str = option("what a word is for a new tokenizer; english: don't is do n't", "plain", choices=list(CUTS))
    num_proc: int | None = option("number of processes that tokenize the corpus")
    dataloader_num_workers: int | None = option(
        "number of processes that load batches; with 0 the training process loads them itself; by default 2 for a GPU, "
        "else 0"
    )
    validation: list[str] | None = option("text files for validation losses, cut and cleaned like the corpus")
    validation_sentences: int = option("largest number of validation sentences; the first ones are taken", 2000)
    treebank: str | None = option(
        "file or folder of bracketed trees, to evaluate F1; the model is shown the words without punctuation"
    )
    treebank_split: str | None = option("split of a treebank's folder", None, choices=list(PTB_SECTIONS))
    treebank_half: str | None = option(
        "evaluate only the trees with an even or an odd number, counted from 0", None, choices=["even", "odd"]
    )
    treebank_sentences: int = option(
        "largest number of treebank sentences on which the encoder's own trees are evaluated", 500
    )
    counts_skew: str = option(
        "nats by which trees from counts of the text prefer to branch to the right, or auto: by the words that begin "
        "and end units; 0 is no preference, 1 suits English. It also multiplies skew and pairs_bonus of stages", "0",
    )  # fmt: skip
    names: str = option(
        "whether words that begin with a capital letter are taken for names: yes, no (no stage has a bonus for names, "
        "nor has the model), or auto: by the share of words that have one", "yes", choices=["yes", "no", AUTO],
    )  # fmt: skip
    length: str = option("multiplies the tokens of stages (not their steps), or auto: less for less text", "1")


@dataclass
class ModelOptions:
    """Which model is trained: a new one, or one that exists."""

    model: str | None = option("folder or Hub name of a checkpoint to train further; by default a new model is made")
    size: str = option("size of a new model; base is the paper's", "base", choices=list(SIZES))
    config_overrides: str | None = option(
        "fields of the configuration to change, such as window_size=2,parser_dropout_prob=0.1; a larger hidden_size or "
        "intermediate_size makes a given model wider"
    )
    initial_embeddings: str = option(
        "what new features of token embeddings begin with: noise, or vectors from counts of the corpus", "random",
        choices=["random", "counts"],
    )  # fmt: skip


@dataclass
class TrainingOptions:
    """Batches and optimisation. Batches and learning rates are the paper's (Section 4.1.1), which trains 60 epochs and
    does not tell the other values."""

    per_device_train_batch_size: int = option("largest number of sentences per process and forward pass", 64)
    per_device_train_batch_tokens: int = option("largest number of tokens per process and forward pass", 1536)
    gradient_accumulation_steps: int = option("number of forward passes per process and update", 1)
    num_train_epochs: int = option("number of passes over the corpus", 10)
    max_steps: int | None = option(
        "number of updates after which training and its schedule end; --streaming needs it, unless a recipe has stages"
    )
    learning_rate: float = option("peak learning rate of the encoder", 5e-5)
    parser_learning_rate: float = option("peak learning rate of the parser", 1e-2)
    weight_decay: float = option("weight decay of all parameters but biases", 0.01)
    warmup_steps: int = option(
        "number of updates of linear warm-up, at most half of the run; a linear decay to zero follows", 1000
    )
    max_grad_norm: float = option("largest gradient norm; encoder and parser are clipped separately", 1.0)
    mixed_precision: str | None = option(
        "precision of the forward pass; by default what `accelerate` is configured to use",
        choices=["no", "fp16", "bf16"],
    )
    gradient_checkpointing: bool = option("save memory: keep fewer activations and compute them again", False)
    use_cpu: bool = option("train on the CPU even if there is a GPU", False)
    seed: int = option("random seed of weights, order, noise and dropout", 0)
    recipe: str | None = option("YAML file of options and stages, or the name of one in examples/recipes")


@dataclass
class OutputOptions:
    """What is written where, and how often.

    None of this changes how weights are trained; ``metric_for_best_model`` chooses which weights a run ends with.
    """

    output_dir: str = field(metadata={
        "help": "folder of the run; the same command with the same folder resumes from the newest checkpoint"
    })  # fmt: skip
    save_steps: int | None = option("number of updates between checkpoints; by default only --save_minutes counts")
    save_minutes: float = option("number of minutes between checkpoints", 10)
    save_total_limit: int = option(
        "number of checkpoints that are kept, the newest ones; with --metric_for_best_model the best one, too", 3
    )
    logging_steps: int = option("number of updates between two points of the training curves", 20)
    eval_steps: int = option("number of updates between evaluations", 500)
    metric_for_best_model: str | None = option(
        "end with the weights of the evaluation with the best value of this metric; by default with the last weights",
        None, choices=list(HIGHER_IS_BETTER),
    )  # fmt: skip
    draw_trees: int = option("number of sentences whose trees are drawn at each evaluation", 3)
    license: str | None = option("licence of the weights for the model card, as the Hub has it: apache-2.0, mit, ...")
    push_to_hub: bool = option("upload the finished model to the Hub; needs --hub_model_id", False)
    hub_model_id: str | None = option("repository to upload to, such as user/name")
    report_to: str = option("`accelerate` tracker: tensorboard, wandb, ... or none", "tensorboard")


@dataclass(frozen=True)
class Decision:
    """The value of an option that was ``auto``, and why."""

    option: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option}: {self.value}, since {self.reason}"


@dataclass
class Options:
    """All groups of options, the recipe's stages and what comes after them, checked together; and what the text has
    decided."""

    data: DataOptions
    model: ModelOptions
    training: TrainingOptions
    output: OutputOptions
    stages: tuple[Stage, ...] = ()
    afterwards: tuple[tuple[str, ...], ...] = ()
    decisions: tuple[Decision, ...] = ()

    def __post_init__(self):
        data, training, output = self.data, self.training, self.output
        _at_least(1, data, "max_length", "shuffle_buffer", "treebank_sentences", "num_proc", "validation_sentences")
        _at_least(1, training, "per_device_train_batch_size", "per_device_train_batch_tokens", "max_steps",
                  "gradient_accumulation_steps", "num_train_epochs")  # fmt: skip
        _at_least(1, output, "save_total_limit", "logging_steps", "eval_steps", "save_steps")
        _at_least(0, training, "learning_rate", "parser_learning_rate", "weight_decay", "warmup_steps",
                  "max_grad_norm", "seed")  # fmt: skip
        _at_least(0, data, "dataloader_num_workers")
        _at_least(0, output, "draw_trees", "save_minutes")
        _check_number_or_auto("counts_skew", data.counts_skew)
        _check_number_or_auto("length", data.length, above=0)
        if data.vocab_size != AUTO and not data.vocab_size.isdecimal():
            raise ValueError(f"vocab_size must be {AUTO} or a whole number, got {data.vocab_size!r}")
        if data.max_length > training.per_device_train_batch_tokens:
            raise ValueError(
                f"a sentence of max_length {data.max_length} must fit into per_device_train_batch_tokens, got "
                f"{training.per_device_train_batch_tokens}; raise one or lower the other"
            )
        self._check_output()
        self._check_stages()
        if data.streaming and training.max_steps is None and not self.stages:
            raise ValueError("a streamed corpus has no known length; give --max_steps")
        if data.streaming and data.dataloader_num_workers:
            raise ValueError("--streaming reads in the training process; leave --dataloader_num_workers at 0")

    def _check_output(self) -> None:
        output, needed = self.output, {"f1": "treebank", "validation_lm_loss": "validation"}
        if (metric := output.metric_for_best_model) and not getattr(self.data, needed[metric]):
            raise ValueError(f"--metric_for_best_model {metric} needs --{needed[metric]}")
        if output.push_to_hub and not output.hub_model_id:
            raise ValueError("--push_to_hub needs --hub_model_id, the repository to upload to, such as user/name")
        for folder in filter(os.path.isdir, [*self.data.corpus, *(self.data.validation or [])]):
            if Path(output.output_dir).resolve().is_relative_to(Path(folder).resolve()):
                raise ValueError(f"--output_dir {output.output_dir} lies within {folder}, so that the run's own files "
                                 "would be read as text; give a folder elsewhere")  # fmt: skip

    def _check_stages(self) -> None:
        if self.data.keep_punctuation and any(program == "distill" for program, *_ in self.afterwards):
            raise ValueError("a recipe with a distillation needs a model that does not see punctuation; give "
                             "--no_keep_punctuation")  # fmt: skip
        if self.stages and self.training.max_steps is not None:
            raise ValueError("the stages of a recipe say how long the run is; leave --max_steps out")
        if self.data.streaming and any(stage.at(0).chart_scores == "grammar" for stage in self.stages):
            raise ValueError("a grammar is learnt from all over the corpus; leave --streaming out, or the stages with "
                             "chart_scores: grammar")  # fmt: skip
        if self.uses("memory_weight") and not self.model.model:
            raise ValueError("memory_weight keeps what a given model knows; give one as --model")
        if self.needs_count_vectors and self.data.streaming:
            raise ValueError("count vectors need the whole corpus; leave --streaming out")

    @property
    def needs_count_vectors(self) -> bool:
        """Whether embeddings or a stage need vectors from counts of the text."""
        return self.uses("needs_count_vectors") or self.model.initial_embeddings == "counts"

    def uses(self, *names: str) -> bool:
        """Whether some of these `Settings` are not zero or false at the beginning or the end of a stage."""
        return any(getattr(settings, name) for settings in ends_of(self.stages) for name in names)

    def that_decide_weights(self) -> dict:
        """The options that decide a run's weights, by name, as JSON can hold them; they stay while a run lasts."""
        left_out = ["num_proc", "dataloader_num_workers", "treebank_sentences", "counts_skew"]
        chosen = {"metric_for_best_model": self.output.metric_for_best_model, "stages": self._plain_stages(),
                  "afterwards": list(map(shlex.join, self.afterwards))}  # fmt: skip
        if self.output.metric_for_best_model:
            chosen["eval_steps"] = self.output.eval_steps
        else:  # these only watch
            left_out += ["validation", "validation_sentences", "treebank", "treebank_split", "treebank_half"]
        data = {name: value for name, value in asdict(self.data).items() if name not in left_out}
        if self.uses("needs_counts", "skew", "pairs_bonus"):
            chosen["counts_skew"] = self.data.counts_skew
        training = asdict(self.training)
        del training["recipe"]  # the file may move; its contents are above
        return data | chosen | asdict(self.model) | training

    def as_flat_dict(self) -> dict:
        """All options by name, as JSON can hold them."""
        groups = self.data, self.model, self.training, self.output
        plain = {name: value for group in groups for name, value in asdict(group).items()}
        of_recipe = {"stages": self._plain_stages(), "afterwards": list(map(shlex.join, self.afterwards))}
        return plain | {name: value for name, value in of_recipe.items() if value}

    def _plain_stages(self) -> list[dict]:
        stages = [asdict(stage) for stage in self.stages]
        for stage in stages:
            del stage["always"]  # it has decided which stages there are
        return json.loads(json.dumps(stages))


def _check_number_or_auto(name: str, value: str, above: float = -math.inf) -> None:
    try:
        number = float(value) if value != AUTO else 1.0
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > above):
        raise ValueError(f"{name} must be {AUTO} or a finite number{'' if above else ' above 0'}, got {value!r}")


def _at_least(limit: int, group: object, *names: str) -> None:
    """Raise ValueError if one of these options is given and below the limit, or is no number."""
    for name in names:
        value = getattr(group, name)
        if value is not None and not value >= limit:
            raise ValueError(f"{name} must be >= {limit}, got {value}")
