"""The options of `run_glue.py`; tokenized rows, batches, and a standard `Trainer`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.training_args import OptimizerNames
from transformers.utils import logging

from glue.tasks import Task, score
from modeling_fast_r2d2 import (
    FastR2D2ForPairClassification,
    FastR2D2ForSequenceClassification,
    bundled_checkpoint,
    parameter_groups,
)
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model
from modeling_fast_r2d2.checkpoints.folders import HEADS, OUR_TYPE
from modeling_fast_r2d2.loss_parts import LossParts
from modeling_fast_r2d2.modeling_fast_r2d2 import ClassificationHead
from pretraining.options import option

logger = logging.get_logger(__name__)

SCORED_ENCODINGS = ("forced", "chart")  # of a Fast-R2D2 model: Fast-R2D2* and Fast-R2D2 in the paper


@dataclass
class GlueOptions:
    """Which tasks, which model, which losses."""

    tasks: list[str] = field(metadata={"help": "tasks that run one after the other: CoLA, SST-2, MRPC, QQP, MNLI, RTE"})
    data: str = option("folder with a folder of TSV files per task, or a data set's Hub name", "nyu-mll/glue")
    model: str = option("folder or Hub name of the model to fine-tune, Fast-R2D2 or another", bundled_checkpoint())
    max_length: int = option(
        "longer sentences, or pairs, are cut to this number of tokens, or to what the model can take", 200
    )
    max_train_samples: int | None = option("largest number of training rows, chosen at random by the seed")
    encoding: str = option("encoding whose score on the first evaluation set chooses the best epoch", "forced",
                          choices=list(SCORED_ENCODINGS))  # fmt: skip
    license: str | None = option(
        "licence of the weights for the model card, as the Hub writes it: apache-2.0, mit, ..."
    )
    forced_loss_weight: float | None = option(
        "weight of the task loss along the parser's tree; by default as in the model"
    )
    chart_loss_weight: float | None = option(
        "weight of the task loss over the chart; a loss with weight 0 is not computed"
    )
    lm_loss_weight: float | None = option("weight of the language-model loss; rows with † in the paper have 0")
    tree_loss_weight: float | None = option("weight of the tree loss")

    def __post_init__(self):
        for name in ("max_length", "max_train_samples"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")

    def loss_weights(self) -> dict[str, float]:
        """The loss weights that were given, by their names in the configuration."""
        names = (f"{loss}_loss_weight" for loss in ("forced", "chart", "lm", "tree"))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass
class FineTuningArguments(TrainingArguments):
    """`TrainingArguments` with the paper's settings as defaults (Section 4.2), and the parser's learning rate."""

    output_dir: str = option("folder of the results, with one folder per task", "runs/glue")
    num_train_epochs: float = option("number of passes over the training rows", 10)
    per_device_train_batch_size: int = option("number of rows per process and forward pass", 64)
    per_device_eval_batch_size: int = option("number of rows per process during evaluation", 128)
    learning_rate: float = option("peak learning rate of encoder and head", 5e-5)
    parser_learning_rate: float = option("peak learning rate of the parser", 1e-2)
    weight_decay: float = option("weight decay of all parameters but biases", 0.01)
    eval_strategy: str = option("when to evaluate", "epoch")
    save_strategy: str = option("when to save", "epoch")
    logging_strategy: str = option("when to log the training loss", "epoch")
    save_total_limit: int | None = option("number of checkpoints that are kept", 2)
    load_best_model_at_end: bool = option("end with the weights of the best epoch", True)
    ddp_find_unused_parameters: bool | None = option("whether processes look for weights without a gradient", True)
    hub_strategy: str = option("when to upload; any value but end also uploads every checkpoint", "end")

    def __post_init__(self):
        super().__post_init__()
        if self.eval_strategy == "no":
            raise ValueError("run_glue.py scores every epoch; leave eval_strategy at epoch, or take steps")
        optim = OptimizerNames(self.optim).value
        if optim not in ("adamw_torch", "adamw_torch_fused"):
            raise ValueError(f"run_glue.py trains with AdamW and two learning rates, got optim {optim}")


def make_trainer(task: Task, data: DatasetDict, options: GlueOptions, arguments: FineTuningArguments) -> Trainer:
    """Make a standard `Trainer`, which knows nothing of Fast-R2D2.

    For a Fast-R2D2 model, the optimiser has the two learning rates, and each evaluation set is given twice, once for
    each encoding. Another model is trained as `Trainer` trains it.
    """
    set_seed(arguments.seed)  # before a new head's weights are drawn
    tokenizer, model = load_model_and_tokenizer(task, options)
    is_ours = model.config.model_type == OUR_TYPE
    positions = getattr(model.config, "max_position_embeddings", options.max_length)
    longest = min(options.max_length, positions, tokenizer.model_max_length)  # RoBERTa's is less by two
    tokenize = partial(tokenize_rows, tokenizer=tokenizer, max_length=longest, with_ends=not is_ours)
    train = data["train"]
    if options.max_train_samples and options.max_train_samples < len(train):
        train = train.shuffle(seed=arguments.seed).select(range(options.max_train_samples))
    evaluations = {name: tokenize(rows) for name, rows in data.items() if name != "train"}
    first = next(iter(evaluations))
    if is_ours:
        first = f"{first}_{options.encoding}"
        evaluations = {
            f"{name}_{encoding}": rows.add_column("encoding", [encoding] * len(rows))
            for name, rows in evaluations.items()
            for encoding in SCORED_ENCODINGS
        }
    arguments.metric_for_best_model = f"eval_{first}_{task.metric}"
    arguments.greater_is_better = True
    return Trainer(
        model,
        arguments,
        train_dataset=tokenize(train),
        eval_dataset=evaluations,
        processing_class=tokenizer,
        data_collator=CollatorWithEncoding(tokenizer),
        compute_metrics=partial(score, task),
        optimizers=(make_optimizer(model, arguments) if is_ours else None, None),
        callbacks=[LossParts()] if is_ours else [],
    )


def make_optimizer(model, arguments: FineTuningArguments) -> torch.optim.AdamW:
    rates = arguments.learning_rate, arguments.parser_learning_rate
    betas = arguments.adam_beta1, arguments.adam_beta2
    groups = parameter_groups(model, *rates, arguments.weight_decay)
    fused = True if arguments.device.type == "cuda" and arguments.optim == OptimizerNames.ADAMW_TORCH_FUSED else None
    return torch.optim.AdamW(groups, betas=betas, eps=arguments.adam_epsilon, fused=fused)


def load_model_and_tokenizer(task: Task, options: GlueOptions):
    """Load tokenizer and model, Fast-R2D2 or another, with the head that they have or a new one."""
    try:
        checkpoint = find_checkpoint(options.model, is_model=False)
        config = AutoConfig.from_pretrained(checkpoint)
        load = _load_ours if config.model_type == OUR_TYPE else _load_other
        return AutoTokenizer.from_pretrained(checkpoint), load(task, options, config)
    except (OSError, ValueError) as error:
        raise ValueError(f"no checkpoint could be loaded from {options.model!r}: {error}") from error


def _load_ours(task: Task, options: GlueOptions, config: Any) -> PreTrainedModel:
    """A Fast-R2D2 model. It gets a new head unless it has one for the classes of the task."""
    model_class = FastR2D2ForPairClassification if task.is_pair else FastR2D2ForSequenceClassification
    is_this_tasks = config.id2label == task.id2label  # not by number: two classes of another task would fit, too
    config.update(task.head | {"encoding": options.encoding} | options.loss_weights())
    model = load_model(model_class, find_checkpoint(options.model), may_miss=HEADS, config=config,
                       ignore_mismatched_sizes=True)  # fmt: skip
    if not is_this_tasks:
        if any("Classification" in name for name in config.architectures or []):
            logger.warning(f"the head in {options.model} is for other classes; a new head is trained")
        model.classifier = ClassificationHead(config)
    return model


def _load_other(task: Task, options: GlueOptions, config: Any) -> PreTrainedModel:
    if options.loss_weights():
        raise ValueError(f"a {config.model_type!r} model has one loss; the weights are for Fast-R2D2's four")
    config.update(task.head)
    any_name = ""  # what a head is called differs from model to model
    return load_model(AutoModelForSequenceClassification, options.model, may_miss=any_name, config=config,
                      ignore_mismatched_sizes=True)  # fmt: skip


def tokenize_rows(
    rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, with_ends: bool = False
) -> Dataset:
    """Tokenize rows; token types tell the sentences of a pair apart. A warning counts rows that are cut or blank.

    Args:
        with_ends: whether the tokenizer adds its special tokens; in a Fast-R2D2 model they would be leaves of the tree.
    """

    def encode_rows(batch: dict[str, list]) -> dict[str, list]:
        columns = [batch[name] for name in ("text", "text_pair") if name in batch]
        plain = {"add_special_tokens": False, "verbose": False}
        is_empty = [[not ids for ids in tokenizer(column, **plain)["input_ids"]] for column in columns]
        plain["add_special_tokens"] = with_ends
        lengths = map(len, tokenizer(*columns, **plain)["input_ids"])
        encoded = tokenizer(
            *columns, truncation=True, max_length=max_length, return_token_type_ids=len(columns) > 1, **plain
        )
        blank = [any(row) for row in zip(*is_empty, strict=True)]
        return {**encoded, "is_cut": [length > max_length for length in lengths], "is_blank": blank}

    encoded = rows.map(encode_rows, batched=True, remove_columns=rows.column_names, desc="tokenizing")
    encoded = encoded.add_column("label", rows["label"])
    too_long, blank = f"longer than {max_length} tokens, cut", f"without text, {tokenizer.unk_token} instead"
    for name, said in (("is_cut", too_long), ("is_blank", blank)):
        if number := sum(encoded[name]):
            logger.warning(f"{number:,} of {len(encoded):,} rows are {said}")
    return encoded.remove_columns(["is_cut", "is_blank"])


class CollatorWithEncoding(DataCollatorWithPadding):
    """Passes on the ``encoding`` that the rows of a batch share; it is an argument of the model, not a tensor."""

    def __call__(self, features: list[dict]) -> dict:
        names = {feature.pop("encoding", None) for feature in features}
        batch = super().__call__(features)
        return batch if names == {None} else {**batch, "encoding": names.pop()}
