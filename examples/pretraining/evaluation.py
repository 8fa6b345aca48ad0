"""Evaluations during training: validation losses, trees against a treebank, drawn trees."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.grammar_induction import LabelledTree, read_treebank
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from pretraining.batches import Limits, cut
from pretraining.stopping import Interrupted, never, raise_if_stopped
from pretraining.treebank import TreebankScorer
from tokenization_fast_r2d2 import DataCollatorForFastR2D2


def batch_by_length(features: list[dict], limits: Limits) -> list[list[int]]:
    """Batches of sentences of similar length, as numbers of sentences."""
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    return [part.tolist() for part in cut(np.argsort(lengths, kind="stable"), lengths, limits)]


@torch.no_grad()
def validation_losses(
    accelerator: Accelerator,
    model,
    features: list[dict],
    collate,
    limits: Limits,
    is_stopping: Callable[[], bool] = never,
) -> dict:
    """Language-model loss and tree loss in nats per token, without noise and dropout.

    Args:
        model: not wrapped for data-parallel training. Each process takes its share of the batches.
        is_stopping: asked before each batch.

    Raises:
        Interrupted: if a process is stopping.
    """
    model.eval()
    sums = torch.zeros(4, device=accelerator.device)
    parts = batch_by_length(features, limits)
    for part in parts[accelerator.process_index :: accelerator.num_processes]:
        if is_stopping():
            break
        batch = send_to_device(collate([features[number] for number in part]), accelerator.device)
        with accelerator.autocast():
            output, tokens = model(**batch), int(batch["attention_mask"].sum())
        lm_sum, tree_sum = output.lm_loss * tokens, output.tree_loss * len(part)
        sums += torch.stack([lm_sum, tree_sum, lm_sum.new_tensor(tokens), lm_sum.new_tensor(len(part))])
    model.train()
    raise_if_stopped(accelerator, is_stopping)
    lm_sum, tree_sum, tokens, sentences = accelerator.reduce(sums, "sum").tolist()
    return {"validation_lm_loss": lm_sum / tokens, "validation_tree_loss": tree_sum / sentences}


@dataclass
class Evaluation:
    """An evaluation. What it has no data for is left out."""

    accelerator: Accelerator
    model: FastR2D2ForPreTraining
    tokenizer: PreTrainedTokenizerBase
    limits: Limits
    validation: list[dict]
    texts_to_draw: list[str]
    scorer: TreebankScorer | None
    drawings: Path

    def __call__(self, step: int, is_stopping: Callable[[], bool] = never) -> dict[str, float]:
        """Compute the figures by name, on every process; append drawn trees to the file ``drawings``.

        Args:
            is_stopping: whether this process is to end; asked between batches.

        Raises:
            Interrupted: on all processes, if one of them is stopping.
        """
        figures = {}
        if self.validation:
            collate = DataCollatorForFastR2D2(self.tokenizer)
            figures = validation_losses(
                self.accelerator, self.model, self.validation, collate, self.limits, is_stopping
            )
        if self.scorer:
            with contextlib.suppress(Interrupted):  # raised by this process alone; the next line tells the others
                figures |= self.scorer(is_stopping)
            raise_if_stopped(self.accelerator, is_stopping)
        if self.texts_to_draw and self.accelerator.is_main_process:
            with open(self.drawings, "a", encoding="utf-8") as file:
                file.write(f"== step {step}\n\n{draw_trees(self.model, self.tokenizer, self.texts_to_draw)}\n\n")
        return figures


def read_gold_trees(path: str, split: str | None = None, half: str | None = None) -> list[LabelledTree]:
    """Trees of two or more words, without punctuation.

    Args:
        split: the split of a treebank's folder, as for `read_treebank`.
        half: ``"even"`` or ``"odd"`` takes the trees with such a number, counted from 0; None takes all.

    Raises:
        ValueError: as `read_treebank`, and if no tree is left.
    """
    trees = read_treebank(path, split=split)[{None: 0, "even": 0, "odd": 1}[half] :: 1 if half is None else 2]
    trees = [tree for tree in trees if tree.num_leaves > 1]
    if not trees:
        raise ValueError(f"{path} has no tree of two or more words to score")
    return trees


def draw_trees(model, tokenizer: PreTrainedTokenizerBase, sentences: list[str]) -> str:
    """Draw each sentence's tree by the parser and by the chart, as text."""
    drawn = [TreeParser(model, tokenizer, method)(sentences) for method in ("parser", "chart")]
    return "\n\n".join(
        f"{method}:\n{parsed.tree.draw(parsed.leaves)}"
        for both in zip(*drawn, strict=True)
        for method, parsed in zip(("parser", "chart"), both, strict=True)
    )


def unigram_figures(train: np.ndarray, validation: np.ndarray) -> dict[str, float]:
    """Entropy and validation loss, in nats per token, of a unigram model of the training text.

    The validation loss is computed with one added to each count.

    Args:
        train, validation: ``(vocab_size,)``, how often each token occurs.
    """
    share = train[train > 0] / train.sum()
    log_prob = np.log((train + 1) / (train + 1).sum())
    return {
        "unigram_entropy": float(-(share * np.log(share)).sum()),
        "unigram_validation_loss": float(-(validation * log_prob).sum() / validation.sum()),
    }
