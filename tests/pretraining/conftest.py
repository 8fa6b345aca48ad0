"""Small corpora, drawn once; the options of a small, quick run on them."""

import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from driver import SMALL_MODEL
from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from tokenization_fast_r2d2 import task_token_ids, train_tokenizer

WORDS = "the a old new man woman cat house walks sees buys sleeps in on under quickly often and underold".split()


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """300 sentences of 2 to 12 words."""
    chance = random.Random(0)
    return [" ".join(chance.choices(WORDS, k=chance.randint(2, 12))) for _ in range(300)]


@pytest.fixture(scope="session")
def corpus(sentences, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer_folder(sentences, tmp_path_factory) -> Path:
    """A vocabulary without the longest word, which therefore has several pieces."""
    path = tmp_path_factory.mktemp("tokenizer")
    known = [" ".join(word for word in sentence.split() if word != "underold") for sentence in sentences]
    train_tokenizer([*known, ". , ( )", ". , ( )"], vocab_size=200, show_progress=False).save_pretrained(path)
    return path


@pytest.fixture
def tokenizer(tokenizer_folder) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture
def model(tokenizer) -> FastR2D2ForPreTraining:
    """In training mode, with charts of window 2."""
    config = FastR2D2Config(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        parser_embedding_size=8, parser_hidden_size=8, parser_num_layers=1, window_size=2, **task_token_ids(tokenizer),
    )  # fmt: skip
    return FastR2D2ForPreTraining(config).train()


@pytest.fixture(scope="session")
def options(corpus, tokenizer_folder) -> list[str]:
    """Command-line options of a run of 15 steps, three epochs of five, without the output folder."""
    return [
        "--corpus", str(corpus), "--tokenizer", str(tokenizer_folder), "--use_cpu", "--report_to", "none",
        "--size", "tiny", "--config_overrides", SMALL_MODEL, "--per_device_train_batch_tokens", "700",
        "--num_train_epochs", "3", "--warmup_steps", "2", "--logging_steps", "2", "--save_steps", "3",
    ]  # fmt: skip
