"""What `pretrain.py` can be told. Every field is a command-line option; its help text is here."""

import json
import math
from dataclasses import asdict, dataclass, field

from modeling_fast_r2d2.grammar_induction.treebanks import PTB_SECTIONS
from pretraining.best import IS_MORE_BETTER
from pretraining.settings import Stage
from tokenization_fast_r2d2 import SENTENCE_RULES

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


def _help(text: str, default=None, **metadata):
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class DataOptions:
    """Which text, how it is cut and tokenized."""

    corpus: list[str] = field(
        metadata={"help": "text files, .txt or .txt.gz, globs, folders of them; or one `datasets` folder or Hub name"}
    )
    corpus_config: str | None = _help("configuration of a Hub data set, such as wikitext-103-raw-v1")
    corpus_split: str = _help("split of a `datasets` folder or Hub data set", "train")
    text_column: str = _help("its column of text", "text")
    streaming: bool = _help("read the corpus while training, for one that is larger than the disk", False)
    shuffle_buffer: int = _help("sentences of a stream that are shuffled together", 100_000)
    sentence_rule: str = _help("how lines are cut into sentences", "line", choices=list(SENTENCE_RULES))
    clean_wikitext: bool = _help("undo WikiText's mark-up (@-@, @,@, @.@, <unk>)", False)
    keep_punctuation: bool = _help("leave punctuation in; grammar-induction benchmarks have none", True)
    max_length: int = _help("longer sentences, in tokens, are left out and counted; 150 for Chinese", 200)
    tokenizer: str | None = _help("folder or Hub name; by default made from the corpus, or a stream's beginning")
    vocab_size: int = _help("size of a vocabulary that is made", 30522)
    tokenizer_kind: str = _help(
        "kind of tokenizer that is made", "wordpiece", choices=["wordpiece", "character", "word"]
    )
    num_proc: int | None = _help("processes that tokenize")
    num_workers: int = _help("processes that load batches; 0 loads them in the training process", 0)
    validation: list[str] | None = _help("text files for the validation losses, cut and cleaned as the corpus is")
    validation_sentences: int = _help("at most so many of them", 2000)
    treebank: str | None = _help("file or folder of bracketed trees, for F1; words only are shown to the model")
    treebank_split: str | None = _help("of such a folder", None, choices=list(PTB_SECTIONS))
    treebank_half: str | None = _help("score only lines of even or odd number", None, choices=["even", "odd"])
    treebank_sentences: int = _help("of these, for the trees of the encoder itself, at most so many", 500)
    counts_skew: float = _help(
        "nats by which trees from counts of the text prefer to branch to the right; English 1, 0 is no preference", 0.0
    )


@dataclass
class ModelOptions:
    """Which model, new or trained on."""

    model: str | None = _help("checkpoint to go on from, folder or Hub name; by default a new model")
    size: str = _help("of a new model", "base", choices=list(SIZES))
    config_overrides: str | None = _help("fields of the configuration, as in window_size=2,parser_dropout_prob=0.1")


@dataclass
class TrainingOptions:
    """Batches and optimisation; the defaults are the paper's (Section 4.1.1)."""

    sentences_per_batch: int = _help("at most, a process and forward pass", 64)
    tokens_per_batch: int = _help("at most, a process and forward pass", 1536)
    accumulation: int = _help("forward passes of each process for one step", 1)
    epochs: int = _help("passes over the corpus", 10)
    max_steps: int | None = _help("end, and schedule, after so many steps; needed when streaming")
    learning_rate: float = _help("peak, of the encoder", 5e-5)
    parser_learning_rate: float = _help("peak, of the parser", 1e-2)
    tree_warmup_steps: int = _help("before the parser learns; until then the encoder meets random trees", 0)
    weight_decay: float = _help("of all but biases", 0.01)
    warmup_steps: int = _help("of linear warm-up; the decay to zero is linear too", 1000)
    max_grad_norm: float = _help("gradients of encoder and parser are clipped to this norm, each group by itself", 1.0)
    mixed_precision: str | None = _help("by default what `accelerate` is set to", choices=["no", "fp16", "bf16"])
    gradient_checkpointing: bool = _help("keep fewer activations, compute them again", False)
    compile: bool = _help("torch.compile the composition", False)
    cpu: bool = _help("do not use a GPU", False)
    seed: int = _help("of weights, order, noise and dropout", 0)
    recipe: str | None = _help("YAML file of options and of stages with settings of their own; see examples/recipes")


@dataclass
class OutputOptions:
    """What is written where, and how often. None of this changes the weights, but ``best_by`` which are left."""

    output: str = field(metadata={"help": "folder of the run; the same command goes on from its newest checkpoint"})
    save_steps: int | None = _help("steps between checkpoints")
    save_minutes: float = _help("minutes between checkpoints", 10)
    keep_checkpoints: int = _help("newest checkpoints that are kept", 3)
    log_steps: int = _help("steps between points of the curves", 20)
    evaluate_steps: int = _help("steps between evaluations", 500)
    best_by: str | None = _help(
        "end with the weights of the evaluation that was best by this figure; by default with the last ones",
        None, choices=list(IS_MORE_BETTER),
    )  # fmt: skip
    draw_trees: int = _help("sentences drawn at each evaluation", 3)
    license: str | None = _help("of the weights, for the model card, as the Hub abbreviates it: apache-2.0, mit, ...")
    push_to_hub: str | None = _help("Hub name, user/name, to upload the finished model to")
    tracker: str = _help("`accelerate` tracker: tensorboard, wandb, ... or none", "tensorboard")


@dataclass
class Options:
    """All groups, the recipe's stages, and what of them a run may not change when it goes on."""

    data: DataOptions
    model: ModelOptions
    training: TrainingOptions
    output: OutputOptions
    stages: tuple[Stage, ...] = ()

    def __post_init__(self):
        data, training = self.data, self.training
        names = "max_length shuffle_buffer treebank_sentences".split()
        _at_least(1, {name: getattr(data, name) for name in names})
        names = "sentences_per_batch tokens_per_batch accumulation epochs".split()
        _at_least(1, {name: getattr(training, name) for name in names})
        names = "keep_checkpoints log_steps evaluate_steps".split()
        _at_least(1, {name: getattr(self.output, name) for name in names})
        optional = {"max_steps": training.max_steps, "save_steps": self.output.save_steps, "num_proc": data.num_proc}
        _at_least(1, {name: value for name, value in optional.items() if value is not None})
        names = (
            "learning_rate parser_learning_rate weight_decay warmup_steps tree_warmup_steps max_grad_norm seed".split()
        )
        _at_least(0, {name: getattr(training, name) for name in names} | {"num_workers": data.num_workers})
        if data.max_length > training.tokens_per_batch:
            raise ValueError(
                f"a sentence of max_length {data.max_length} must fit into tokens_per_batch, got "
                f"{training.tokens_per_batch}; raise one or lower the other"
            )
        needed = {"f1": "treebank", "validation_lm_loss": "validation"}
        if self.output.best_by and not getattr(data, needed[self.output.best_by]):
            raise ValueError(f"--best_by {self.output.best_by} needs --{needed[self.output.best_by]}")
        if not math.isfinite(data.counts_skew):
            raise ValueError(f"counts_skew must be finite, got {data.counts_skew}")
        self._check_stages()
        if data.streaming and training.max_steps is None and not self.stages:
            raise ValueError("a streamed corpus has no known length; give --max_steps")
        if data.streaming and data.num_workers:
            raise ValueError("--streaming reads in the training process; leave --num_workers at 0")

    def _check_stages(self) -> None:
        limits = {size for stage in self.stages for size in stage.ends("tokens_per_batch")}
        if self.stages and self.training.max_steps is not None:
            raise ValueError("the stages of a recipe say how long it is; leave --max_steps out")
        for limit in limits - {None}:
            if limit < self.data.max_length:
                raise ValueError(f"a sentence of max_length {self.data.max_length} must fit into a stage's "
                                 f"tokens_per_batch, got {limit}")  # fmt: skip
        if self.data.streaming and limits - {None, self.training.tokens_per_batch}:
            raise ValueError("tokens_per_batch cannot change while a corpus is streamed; give the option alone")

    @property
    def need_counts(self) -> bool:
        """Whether a stage learns from counts of the text."""
        return any(stage.at(share).need_counts for stage in self.stages for share in (0, 1))

    def that_matter(self) -> dict:
        """What decides the weights, as JSON can hold it."""
        watching = ("validation", "validation_sentences", "treebank", "treebank_split", "treebank_half")
        never = ("num_proc", "num_workers", "treebank_sentences", "counts_skew")
        data = {name: value for name, value in asdict(self.data).items() if name not in never}
        chosen = {"best_by": self.output.best_by}
        if self.output.best_by:
            chosen["evaluate_steps"] = self.output.evaluate_steps
        else:
            data = {name: value for name, value in data.items() if name not in watching}
        if self.stages:
            chosen["stages"] = self._plain_stages()
        if self.need_counts:
            chosen["counts_skew"] = self.data.counts_skew
        training = asdict(self.training)
        del training["recipe"]  # the file may move; what it says is above
        return data | chosen | asdict(self.model) | training

    def as_flat_dict(self) -> dict:
        groups = self.data, self.model, self.training, self.output
        plain = {name: value for group in groups for name, value in asdict(group).items()}
        return plain | ({"stages": self._plain_stages()} if self.stages else {})

    def _plain_stages(self) -> list[dict]:
        return json.loads(json.dumps([asdict(stage) for stage in self.stages]))


def _at_least(limit: int, values: dict[str, float]) -> None:
    for name, value in values.items():
        if not value >= limit:
            raise ValueError(f"{name} must be >= {limit}, got {value}")
