"""Tokens per second of pretraining: forward and backward pass of all losses."""

import argparse

import torch

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from timing.clock import peak_memory, take_turns
from timing.systems import Batch, pad


def time_training(options: argparse.Namespace, config: FastR2D2Config, sentences: Batch, dtype: torch.dtype) -> dict:
    """Time a batch of the first sentences, which together have at most ``options.training_tokens`` tokens.

    Weights are in float32; with another ``dtype``, the forward pass runs under autocast.
    """
    batch = pad(first_tokens(sentences, options.training_tokens), options.device)
    model = FastR2D2ForPreTraining(config).train().to(options.device)

    def step() -> None:
        with torch.autocast(options.device.split(":")[0], dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        model.zero_grad()

    seconds = take_turns({"training": step}, options.rounds, options.device)["training"]
    tokens = int(batch["attention_mask"].sum())
    return {
        "tokens": tokens, "sentences": len(batch["input_ids"]), "seconds": seconds.median,
        "tokens_per_second": tokens / seconds.median, "peak_bytes": peak_memory(step, options.device),
    }  # fmt: skip


def first_tokens(sentences: Batch, tokens: int) -> Batch:
    """The first sentences that together have at most this number of tokens, but at least one."""
    chosen, total = [], 0
    for ids in sentences:
        if chosen and total + len(ids) > tokens:
            break
        chosen.append(ids)
        total += len(ids)
    return chosen


def describe_training(row: dict) -> str:
    return (
        f"pretraining, forward and backward pass of {row['sentences']} sentences, {row['tokens']} tokens: "
        f"{row['seconds']:.2f} s, {row['tokens_per_second']:,.0f} tokens/s, {row['peak_bytes'] / 2**30:.2f} GiB"
    )
