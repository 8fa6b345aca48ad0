"""The options of `run_glue.py` besides `TrainingArguments`. Every field is a command-line option."""

from dataclasses import dataclass, field

from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from modeling_fast_r2d2 import bundled_checkpoint
from pretraining.options import option

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
