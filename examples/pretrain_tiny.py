"""Pretrain a small Fast-R2D2 on one text file, one sentence a line, in a plain loop on one machine.

    python examples/pretrain_tiny.py corpus.txt.gz --output my-model --minutes 30

This is how the bundled `fast-r2d2-tiny` was made. Parser and encoder learn together (paper, Section 3.2): language
model plus tree KL, words of several pieces held together by span constraints. Half of the sentences, drawn anew each
epoch, lose their punctuation, since grammar-induction benchmarks have none and running text does.
"""

import argparse
import itertools
import json
import random
import time
import unicodedata
from collections import deque
from pathlib import Path

import torch
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm
from transformers import AutoTokenizer, set_seed

from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining
from tokenization_fast_r2d2 import (
    DataCollatorForFastR2D2,
    clean_wikitext,
    encode_sentences,
    read_sentences,
    task_token_ids,
    train_tokenizer,
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, help="text file, plain or .gz; WikiText markup is cleaned")
    add("--output", type=Path, required=True, help="checkpoint folder to write")
    add("--tokenizer", help="folder of a tokenizer; by default one of --vocab-size pieces is made from the corpus")
    add("--vocab-size", type=int, default=8000)
    add("--epochs", type=float, default=5)
    add("--minutes", type=float, default=float("inf"), help="stop the schedule earlier, after so much time")
    add("--tokens-per-batch", type=int, default=2048)
    add("--max-length", type=int, default=200, help="longer sentences are left out")
    add("--hidden-size", type=int, default=64)
    add("--layers", type=int, default=1)
    add("--heads", type=int, default=4)
    add("--window-size", type=int, default=2)
    add("--parser-hidden-size", type=int, default=128)
    add("--parser-layers", type=int, default=2)
    add("--learning-rate", type=float, default=2e-3)
    add("--parser-learning-rate", type=float, default=1e-2)
    add("--dropout", type=float, default=0.0, help="of the encoder")
    add("--parser-dropout", type=float, default=0.0)
    add("--warmup-steps", type=int, default=100)
    add("--keep-punctuation", type=float, default=0.5, help="share of sentences that keep it")
    add("--save-minutes", type=float, default=5)
    add("--seed", type=int, default=0)
    return parser.parse_args()


def is_punctuation(piece: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in piece)


def without_punctuation(sentence: dict, punctuation: set[int]) -> dict:
    """The sentence less its punctuation, or as it is if nothing else remains; spans are moved along."""
    kept = [token not in punctuation for token in sentence["input_ids"]]
    if sum(kept) < 2:
        return sentence
    place = list(itertools.accumulate(kept, initial=0))
    spans = [(place[i], place[j]) for i, j in sentence["atom_spans"] if kept[i] and kept[j]]
    return {"input_ids": [t for t, keep in zip(sentence["input_ids"], kept, strict=True) if keep], "atom_spans": spans}


def batches(sentences: list[dict], tokens_per_batch: int, rng: random.Random) -> list[list[dict]]:
    """Sentences of like length together, up to a number of tokens; batches in random order."""
    order = sorted(range(len(sentences)), key=lambda s: len(sentences[s]["input_ids"]) + rng.uniform(0, 3))
    result, size = [[]], 0
    for index in order:
        size += len(sentences[index]["input_ids"])
        if size > tokens_per_batch and result[-1]:
            result.append([])
            size = len(sentences[index]["input_ids"])
        result[-1].append(sentences[index])
    rng.shuffle(result)
    return result


def epoch_of_batches(sentences, punctuation, options, epoch):
    rng = random.Random(f"{options.seed} {epoch}")
    drawn = [s if rng.random() < options.keep_punctuation else without_punctuation(s, punctuation) for s in sentences]
    return batches(drawn, options.tokens_per_batch, rng)


def read_corpus(options, tokenizer) -> list[dict]:
    texts = list(read_sentences(options.corpus, clean=clean_wikitext))
    encoded = encode_sentences(tokenizer, texts)
    sentences = [
        {"input_ids": ids, "atom_spans": spans}
        for ids, spans in zip(encoded["input_ids"], encoded["atom_spans"], strict=True)
    ]
    return [sentence for sentence in sentences if len(sentence["input_ids"]) <= options.max_length]


def make_model(options, tokenizer) -> FastR2D2ForPreTraining:
    config = FastR2D2Config(
        vocab_size=len(tokenizer), hidden_size=options.hidden_size, num_hidden_layers=options.layers,
        num_attention_heads=options.heads, intermediate_size=4 * options.hidden_size,
        window_size=options.window_size, parser_embedding_size=options.hidden_size,
        parser_hidden_size=options.parser_hidden_size, parser_num_layers=options.parser_layers,
        hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.dropout,
        parser_dropout_prob=options.parser_dropout,
        **task_token_ids(tokenizer),
    )  # fmt: skip
    return FastR2D2ForPreTraining(config)


def make_optimizer(model, options) -> torch.optim.Optimizer:
    parser = [p for name, p in model.named_parameters() if name.startswith("model.parser.")]
    encoder = [p for name, p in model.named_parameters() if not name.startswith("model.parser.")]
    return torch.optim.AdamW(
        [{"params": encoder, "lr": options.learning_rate}, {"params": parser, "lr": options.parser_learning_rate}],
        weight_decay=0.01,
    )


def main() -> None:
    options = parse_arguments()
    set_seed(options.seed)
    if options.tokenizer:
        tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    else:
        tokenizer = train_tokenizer(read_sentences(options.corpus, clean=clean_wikitext), options.vocab_size)
    sentences = read_corpus(options, tokenizer)
    punctuation = {i for piece, i in tokenizer.get_vocab().items() if is_punctuation(piece.removeprefix("##"))}
    model = make_model(options, tokenizer).train()
    train(model, sentences, punctuation, tokenizer, options)


def train(model, sentences, punctuation, tokenizer, options) -> None:
    optimizer, progress = make_optimizer(model, options), Progress(options)
    steps = round(options.epochs * len(epoch_of_batches(sentences, punctuation, options, 0)))
    schedule = LambdaLR(
        optimizer, lambda step: min(step / options.warmup_steps, 1) * max(0.0, 1 - progress.share(step, steps))
    )
    collate = DataCollatorForFastR2D2(tokenizer)
    epochs = (epoch_of_batches(sentences, punctuation, options, epoch) for epoch in itertools.count())
    with tqdm(total=steps, unit="step") as bar:
        for step, batch in enumerate(itertools.chain.from_iterable(epochs), start=1):
            output = model(**collate(batch))
            output.loss.backward()
            for group in optimizer.param_groups:
                torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            progress.add(output, sum(len(sentence["input_ids"]) for sentence in batch))
            bar.set_postfix(progress.figures())
            bar.update()
            is_last = progress.share(step, steps) >= 1
            if is_last or progress.is_time_to_save():
                save(model, tokenizer, options, {"step": step, **progress.figures()})
            if is_last:
                return


class Progress:
    """Time, tokens and recent losses."""

    def __init__(self, options):
        self.options, self.start, self.saved = options, time.monotonic(), 0.0
        self.tokens, self.recent = 0, deque(maxlen=100)

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60

    def share(self, step: int, steps: int) -> float:
        """Of the run that is over, by steps or by time, whichever is further."""
        return max(step / steps, self.minutes / self.options.minutes)

    def add(self, output, tokens: int) -> None:
        self.tokens += tokens
        self.recent.append((output.lm_loss.item(), output.tree_loss.item()))

    def figures(self) -> dict[str, float]:
        lm_loss, tree_loss = (sum(column) / len(column) for column in zip(*self.recent, strict=True))
        return {
            "lm": round(lm_loss, 4),
            "tree": round(tree_loss, 4),
            "tokens": self.tokens,
            "minutes": round(self.minutes, 1),
            "tokens_per_second": round(self.tokens / self.minutes / 60),
        }

    def is_time_to_save(self) -> bool:
        is_time = self.minutes - self.saved > self.options.save_minutes
        if is_time:
            self.saved = self.minutes
        return is_time


def save(model, tokenizer, options, progress: dict) -> None:
    """The checkpoint folder, and a line of the curve beside it."""
    model.save_pretrained(options.output)
    tokenizer.save_pretrained(options.output)
    arguments = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
    with open(options.output / "curve.jsonl", "a", encoding="utf-8") as curve:
        curve.write(json.dumps({**progress, "arguments": arguments}) + "\n")


if __name__ == "__main__":
    main()
