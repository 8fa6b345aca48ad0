"""A tiny checkpoint, and GLUE's folders with a few rows of made-up text whose labels can be learned."""

import random
from pathlib import Path

import pytest
import torch
from transformers import set_seed

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from tokenization_fast_r2d2 import task_token_ids, train_tokenizer

torch.set_num_threads(1)  # models this small only wait for more

NOUNS, GOOD, BAD = "film plot cast end scene".split(), "fine great warm".split(), "dull bad cold".split()


def sentence(chance: random.Random, label: int) -> str:
    words = ["the", chance.choice(NOUNS), "was", chance.choice(GOOD if label else BAD)]
    return " ".join(words + ["and", "long"] * chance.randint(0, 3))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    chance = random.Random(0)
    tokenizer = train_tokenizer([sentence(chance, n % 2) for n in range(200)], 80, show_progress=False)
    set_seed(0)
    config = FastR2D2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        window_size=2, parser_embedding_size=8, parser_hidden_size=8, parser_num_layers=1, initializer_range=1.0,
        hidden_dropout_prob=0.0, **task_token_ids(tokenizer),
    )  # fmt: skip
    FastR2D2ForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def glue(tmp_path_factory) -> Path:
    """SST-2 and RTE; a pair entails if both sentences are good or both bad."""
    folder, chance = tmp_path_factory.mktemp("glue"), random.Random(1)
    for task in ("SST-2", "RTE"):
        (folder / task).mkdir()
    for split, number in (("train", 192), ("dev", 50)):
        labels = [number % 2 for number in range(number)]
        lines = [f"{sentence(chance, label)} \t{label}" for label in labels]
        (folder / "SST-2" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
        sides = [(chance.randint(0, 1), label) for label in labels]
        lines = [
            f"{row}\t{sentence(chance, side)}\t{sentence(chance, side if label == 0 else 1 - side)}\t"
            + ("entailment", "not_entailment")[label]
            for row, (side, label) in enumerate(sides)
        ]
        (folder / "RTE" / f"{split}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]) + "\n")
    return folder
