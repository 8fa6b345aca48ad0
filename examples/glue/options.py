"""What `run_glue.py` can be told besides `TrainingArguments`; every field is a command-line option."""

from dataclasses import dataclass, field

from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from modeling_fast_r2d2 import bundled_checkpoint


def _help(text: str, default=None, **metadata):
    return field(default=default, metadata={"help": text, **metadata})


@dataclass
class GlueOptions:
    """Which tasks, which model, which losses."""

    tasks: list[str] = field(metadata={"help": "CoLA, SST-2, MRPC, QQP, MNLI, RTE; one after the other"})
    data: str = _help("folder with a folder of TSV files for each task, or a data set's Hub name", "nyu-mll/glue")
    model: str = _help("checkpoint to fine-tune, folder or Hub name", bundled_checkpoint())
    max_length: int = _help("tokens kept of a sentence, or of a pair together", 200)
    max_train_samples: int | None = _help("train on so many rows, drawn by the seed")
    encoding: str = _help("whose score on the first evaluation set chooses the best epoch", "forced",
                          choices=["forced", "chart"])  # fmt: skip
    license: str | None = _help("of the weights, for the model card, as the Hub abbreviates it: apache-2.0, mit, ...")
    forced_loss_weight: float | None = _help("of the task loss along the parser's tree; by default as in the model")
    chart_loss_weight: float | None = _help("of the task loss over the chart; 0 does not compute a loss")
    lm_loss_weight: float | None = _help("of the language-model loss; the paper's † is 0")
    tree_loss_weight: float | None = _help("of the tree KL")

    def __post_init__(self):
        for name in ("max_length", "max_train_samples"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")

    def loss_weights(self) -> dict[str, float]:
        """Fields of the configuration that were given here."""
        names = (f"{loss}_loss_weight" for loss in ("forced", "chart", "lm", "tree"))
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass
class FineTuningArguments(TrainingArguments):
    """`TrainingArguments` with the paper's settings as defaults (Section 4.2), and the parser's learning rate."""

    output_dir: str = _help("folder of the results and of a folder for each task", "runs/glue")
    num_train_epochs: float = _help("passes over the training rows", 10)
    per_device_train_batch_size: int = _help("rows a process and step", 64)
    per_device_eval_batch_size: int = _help("rows a process, evaluating", 128)
    learning_rate: float = _help("peak, of encoder and head", 5e-5)
    parser_learning_rate: float = _help("peak, of the parser", 1e-2)
    weight_decay: float = _help("of all but biases", 0.01)
    eval_strategy: str = _help("when to evaluate", "epoch")
    save_strategy: str = _help("when to save", "epoch")
    logging_strategy: str = _help("when to log the training loss", "epoch")
    save_total_limit: int | None = _help("checkpoints kept", 2)
    load_best_model_at_end: bool = _help("keep the best epoch's weights", True)
    hub_strategy: str = _help("when to upload; other than at the end, everything that is saved goes up", "end")

    def __post_init__(self):
        super().__post_init__()
        if self.eval_strategy == "no":
            raise ValueError("run_glue.py scores every epoch; leave eval_strategy at epoch, or take steps")
        optim = OptimizerNames(self.optim).value
        if optim not in ("adamw_torch", "adamw_torch_fused"):
            raise ValueError(f"run_glue.py trains with AdamW and two learning rates, got optim {optim}")
