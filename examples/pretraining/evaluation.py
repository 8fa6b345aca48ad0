"""What is looked at while training: validation losses, F1 against a treebank, drawn trees."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2 import BinaryTree, FastR2D2ForPreTraining
from pretraining.batches import Limits, cut
from pretraining.treebank import GoldTree, sentence_f1
from tokenization_fast_r2d2 import DataCollatorForFastR2D2, encode_sentences


def by_length(features: list[dict], limits: Limits) -> list[list[int]]:
    """Numbers of sentences, batched by length."""
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    return [part.tolist() for part in cut(np.argsort(lengths, kind="stable"), lengths, limits)]


@torch.no_grad()
def validation_losses(accelerator: Accelerator, model, features: list[dict], collate, limits: Limits) -> dict:
    """Language-model loss, nats a token, and tree loss, nats a token and sentence, without noise and dropout.

    Args:
        model: not wrapped for data-parallel training; each process takes its share of the batches.
    """
    model.eval()
    sums = torch.zeros(4, device=accelerator.device)
    parts = by_length(features, limits)
    for part in parts[accelerator.process_index :: accelerator.num_processes]:
        batch = send_to_device(collate([features[number] for number in part]), accelerator.device)
        output, tokens = model(**batch), int(batch["attention_mask"].sum())
        lm_sum, tree_sum = output.lm_loss * tokens, output.tree_loss * len(part)
        sums += torch.stack([lm_sum, tree_sum, lm_sum.new_tensor(tokens), lm_sum.new_tensor(len(part))])
    model.train()
    lm_sum, tree_sum, tokens, sentences = accelerator.reduce(sums, "sum").tolist()
    return {"validation_lm_loss": lm_sum / tokens, "validation_tree_loss": tree_sum / sentences}


@dataclass
class Evaluation:
    """All that is looked at every so often; what there is no data for is left out."""

    accelerator: Accelerator
    model: FastR2D2ForPreTraining
    tokenizer: PreTrainedTokenizerBase
    limits: Limits
    validation: list[dict]
    texts_to_draw: list[str]
    scorer: "TreebankScorer | None"
    drawings: Path

    def __call__(self, step: int) -> dict[str, float]:
        """Figures by name, on every process; trees are drawn into the file ``drawings``."""
        figures = {}
        if self.validation:
            collate = DataCollatorForFastR2D2(self.tokenizer)
            figures = validation_losses(self.accelerator, self.model, self.validation, collate, self.limits)
        if self.scorer:
            figures["f1"] = self.scorer()
        if self.texts_to_draw and self.accelerator.is_main_process:
            with open(self.drawings, "a", encoding="utf-8") as file:
                file.write(f"== step {step}\n\n{draw_trees(self.model, self.tokenizer, self.texts_to_draw)}\n\n")
        return figures


class TreebankScorer:
    """Sentence F1 of the parser's trees, 0 ... 100."""

    def __init__(self, trees: list[GoldTree], model, tokenizer: PreTrainedTokenizerBase, limits: Limits):
        self.trees, self.collate = trees, DataCollatorForFastR2D2(tokenizer)
        self.model = model
        encoded = encode_sentences(tokenizer, [tree.words for tree in trees], is_split_into_words=True)
        names = ("input_ids", "atom_spans", "word_ids")
        rows = zip(*(encoded[name] for name in names), strict=True)
        self.features = [dict(zip(names, row, strict=True)) for row in rows]
        longest = max(len(feature["input_ids"]) for feature in self.features)
        self.parts = by_length(self.features, Limits(limits.sentences, max(limits.tokens, longest)))

    @torch.no_grad()
    def __call__(self) -> float:
        self.model.eval()
        scores = []
        for part in self.parts:
            batch = send_to_device(self.collate([self.features[number] for number in part]), self.model.device)
            for number, spans in zip(part, self.model.parse(**batch).spans.cpu(), strict=True):
                tree = BinaryTree.from_spans(spans).to_words(self.features[number]["word_ids"])
                scores.append(sentence_f1(set(tree.spans), self.trees[number]))
        self.model.train()
        return 100 * sum(scores) / len(scores)


@torch.no_grad()
def draw_trees(model, tokenizer: PreTrainedTokenizerBase, sentences: list[str]) -> str:
    """Each sentence's tree by the parser and by the chart, as text."""
    model.eval()
    encoded = encode_sentences(tokenizer, sentences)
    drawings = []
    for row, words in enumerate(encoded["words"]):
        feature = {name: encoded[name][row] for name in ("input_ids", "atom_spans")}
        batch = send_to_device(DataCollatorForFastR2D2(tokenizer)([feature]), model.device)
        for encoding in ("forced", "chart"):
            [spans] = model.model(**batch, encoding=encoding).spans.cpu()
            tree = BinaryTree.from_spans(spans).to_words(encoded["word_ids"][row])
            drawings.append(f"{'parser' if encoding == 'forced' else 'chart'}:\n{tree.draw(words)}")
    model.train()
    return "\n\n".join(drawings)


def unigram_figures(train: np.ndarray, validation: np.ndarray) -> dict[str, float]:
    """Nats a token of what knows only how often tokens occur in the training text: its entropy there, its loss on the
    validation text (with one added to each count). Both arguments are counts, ``(vocab_size,)``."""
    share = train[train > 0] / train.sum()
    log_prob = np.log((train + 1) / (train + 1).sum())
    return {
        "unigram_entropy": float(-(share * np.log(share)).sum()),
        "unigram_validation_loss": float(-(validation * log_prob).sum() / validation.sum()),
    }
