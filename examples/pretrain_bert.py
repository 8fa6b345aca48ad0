"""Pretrain a BERT by masked words, to compare a Fast-R2D2 model with: same text, same vocabulary, as many parameters.

    python examples/pretrain_bert.py --like fast-r2d2-tiny --corpus lines.txt.gz --output_dir runs/bert --max_steps 9000
    python examples/run_glue.py --model runs/bert/model --tasks SST-2 --output_dir runs/glue

The options of `TrainingArguments` are options here. ``--max_steps`` gives it as much text, or as many minutes, as the
other model had; the same command with ``--resume_from_checkpoint true`` resumes from the newest checkpoint.
"""

import sys
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

from modeling_fast_r2d2 import FastR2D2Model
from modeling_fast_r2d2.checkpoints import find_checkpoint, load_model, load_tokenizer
from modeling_fast_r2d2.text_files import hold_folder
from pretraining.checkpoints import STOPPED, check_folder, last_whole_checkpoint
from pretraining.corpus import read_texts
from pretraining.options import DataOptions

HEADS, MAX_WIDTH = 8, 2048


@dataclass
class PeerOptions:
    like: str = field(metadata={"help": "folder or Hub name of the Fast-R2D2 model to compare with"})
    corpus: list[str] = field(metadata={"help": "text files (.txt or .txt.gz), one sentence per line"})
    num_hidden_layers: int = field(default=4, metadata={"help": "layers; the width follows from the parameters"})
    max_length: int = field(default=128, metadata={"help": "longer lines are cut to this number of tokens"})
    mask_share: float = field(default=0.15, metadata={"help": "share of tokens to predict"})


@dataclass
class PeerArguments(TrainingArguments):
    """`TrainingArguments` with defaults that suit models of a few million parameters."""

    per_device_train_batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup_steps: float = 500
    save_steps: float = 500
    save_total_limit: int | None = 2
    logging_steps: float = 100
    report_to: str = "none"
    train_sampling_strategy: str = "group_by_length"


def main(arguments: list[str] | None = None) -> None:
    parser = HfArgumentParser((PeerOptions, PeerArguments), description=__doc__.split("\n")[0])
    options, settings = parser.parse_args_into_dataclasses(arguments)
    checkpoint = find_checkpoint(options.like)
    tokenizer = with_ends(load_tokenizer(checkpoint))
    size = load_model(FastR2D2Model, checkpoint).num_parameters()
    config = peer_config(size, options.num_hidden_layers, tokenizer, options.max_length)
    with hold_folder(Path(settings.output_dir)):
        check_folder(Path(settings.output_dir), settings.resume_from_checkpoint, may_be_over=True)
        if settings.resume_from_checkpoint in ("True", "true"):
            settings.resume_from_checkpoint = last_whole_checkpoint(Path(settings.output_dir))
        trainer = make_trainer(config, tokenizer, options, settings)
        print(f"{num_parameters(config):,} parameters, {size:,} in the other model; hidden size {config.hidden_size}")
        trainer.train(resume_from_checkpoint=settings.resume_from_checkpoint)
        trainer.save_model(str(Path(settings.output_dir) / "model"))


def with_ends(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The same vocabulary for a BERT: ``[CLS]`` begins a text, and ``[EOS]`` ends each sentence of it."""
    first, last = tokenizer.cls_token, tokenizer.eos_token
    tokenizer.sep_token = last
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(name, tokenizer.convert_tokens_to_ids(name)) for name in (first, last)],
    )  # fmt: skip
    return tokenizer


def peer_config(size: int, layers: int, tokenizer: PreTrainedTokenizerBase, max_length: int) -> BertConfig:
    """The configuration of the narrowest BERT that has at least as many parameters, heads not counted."""

    def of_width(width: int) -> BertConfig:
        return BertConfig(
            vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=layers, num_attention_heads=HEADS,
            intermediate_size=4 * width, max_position_embeddings=max_length, pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip

    widths = range(HEADS, MAX_WIDTH + 1, HEADS)
    return of_width(widths[bisect_left(widths[:-1], size, key=lambda width: num_parameters(of_width(width)))])


def num_parameters(config: BertConfig) -> int:
    """Of the embeddings and the layers."""
    with torch.device("meta"):
        return BertModel(config, add_pooling_layer=False).num_parameters()


def make_trainer(
    config: BertConfig, tokenizer: PreTrainedTokenizerBase, options: PeerOptions, settings: PeerArguments
) -> Trainer:
    lines = read_texts(DataOptions(corpus=options.corpus)).filter(lambda row: row["text"].strip())
    rows = lines.map(
        lambda batch: tokenizer(batch["text"], truncation=True, max_length=options.max_length, return_length=True),
        batched=True, remove_columns="text", desc="tokenizing",
    )  # fmt: skip
    set_seed(settings.seed)
    return Trainer(
        BertForMaskedLM(config), settings, train_dataset=rows, processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=options.mask_share),
    )  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(STOPPED)
