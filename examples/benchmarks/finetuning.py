"""Compare the time of fine-tuning with that of a BERT, on the same batches.

    python examples/benchmarks/finetuning.py --data path/to/glue --task SST-2

The BERT has the same hidden size and three times the layers. A composition runs each layer over three vectors, and a
layer of BERT runs over one vector per token, so both make about the same matrix products per token. Models take turns;
times are medians over rounds of all batches.
"""

import argparse
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, DataCollatorWithPadding, set_seed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # pretraining, glue

from glue.data import read_task
from glue.tasks import find_task
from glue.training import tokenize_rows
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForSequenceClassification, bundled_checkpoint, parameter_groups
from pretraining.options import SIZES
from timing.clock import medians
from tokenization_fast_r2d2 import task_token_ids

OBJECTIVES = {
    "forced": {"chart_loss_weight": 0.0, "lm_loss_weight": 0.0, "tree_loss_weight": 0.0},
    "forced and tree": {"chart_loss_weight": 0.0, "lm_loss_weight": 0.0},
    "all without language model": {"lm_loss_weight": 0.0},
    "all": {},
}


class TrainedModel:
    """A model with its optimiser."""

    def __init__(self, model: torch.nn.Module, groups):
        self.model, self.optimizer = model.train(), torch.optim.AdamW(groups)

    def epoch(self, batches: list[dict[str, torch.Tensor]]) -> None:
        for batch in batches:
            self.model(**batch).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def make_models(options: argparse.Namespace, tokenizer) -> dict[str, TrainedModel]:
    sizes = {"vocab_size": 30522, "num_labels": 2}
    models = {}
    for name, weights in OBJECTIVES.items():
        set_seed(0)
        config = FastR2D2Config(**SIZES[options.size], **sizes, **weights, **task_token_ids(tokenizer))
        model = FastR2D2ForSequenceClassification(config)
        models[name] = TrainedModel(model, parameter_groups(model))
    names = ("hidden_size", "num_attention_heads", "intermediate_size")
    same = {name: getattr(config, name) for name in names}
    bert = BertForSequenceClassification(BertConfig(**same, num_hidden_layers=3 * config.num_hidden_layers, **sizes))
    return {"BERT": TrainedModel(bert, bert.parameters()), **models}


def make_batches(options: argparse.Namespace, tokenizer) -> list[dict[str, torch.Tensor]]:
    """Batches as `Trainer` makes them: of random rows, or of rows of similar length."""
    rows = tokenize_rows(read_task(find_task(options.task), options.data)["train"], tokenizer, 200).shuffle(seed=0)
    rows = rows.select(range(options.batches * options.batch_size))
    if options.group_by_length:
        rows = rows.select(sorted(range(len(rows)), key=lambda row: len(rows[row]["input_ids"])))
    collate = DataCollatorWithPadding(tokenizer)
    size = options.batch_size
    return [collate(list(rows.select(range(first, first + size)))) for first in range(0, len(rows), size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="nyu-mll/glue", help="folder of tasks or Hub name, as for run_glue.py")
    parser.add_argument("--task", default="SST-2", help="a task of single sentences")
    parser.add_argument("--size", default="base", choices=list(SIZES), help="size of both models")
    parser.add_argument("--batch_size", type=int, default=64, help="rows per batch")
    parser.add_argument("--batches", type=int, default=4, help="number of batches per round")
    parser.add_argument("--group_by_length", action="store_true", help="put rows of similar length into a batch")
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds that count")
    parser.add_argument("--threads", type=int, help="number of CPU threads; by default PyTorch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(bundled_checkpoint())
    batches, models = make_batches(options, tokenizer), make_models(options, tokenizer)
    tokens, places = (sum(sum(f(batch)) for batch in batches) for f in (
        lambda batch: batch["attention_mask"].sum(1).tolist(), lambda batch: [batch["attention_mask"].numel()],
    ))  # fmt: skip
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {options.size} size, {options.task}: "
          f"{len(batches)} batches of {options.batch_size}, {tokens:,} tokens in {places:,} places")  # fmt: skip
    times = medians({name: lambda model=model: model.epoch(batches) for name, model in models.items()}, options.repeats)
    for name, seconds in times.items():
        print(f"{name:28} {seconds:8.2f} s  {tokens / seconds:8,.0f} tokens/s  {seconds / times['BERT']:6.2f} x BERT")


if __name__ == "__main__":
    main()
