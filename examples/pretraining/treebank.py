"""Trees against a treebank while training: the parser's, and the encoder's own, which show earlier where a run goes.

The language model can teach an encoder to choose chains long before its parser's F1, the tree KL or any loss tells. So
the best trees of its charts are scored too, on charts that the parser has no part in: pruned by counts of the text (see
`count_teacher`), and at random.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.embedding import evaluation
from modeling_fast_r2d2.grammar_induction import LabelledTree, chain_shares, from_spans, score_trees
from modeling_fast_r2d2.grammar_induction.systems import model_trees
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.words import batches_by_length, show_all_words, tokenize_sentences
from pretraining.count_teacher import CountTeacher
from tokenization_fast_r2d2 import DataCollatorForFastR2D2

LABELS = ("NP", "VP", "PP", "SBAR")
CHART_WINDOW_SIZE = 4  # of the charts; the same at all evaluations, whatever the run trains with
MAX_RIGHT_SHARE, MAX_LEFT_SHARE = 0.85, 0.15  # shares beyond which trees are said to be chains


@dataclass(frozen=True)
class ChartBatch:
    """Sentences that are encoded together.

    Attributes:
        rows: their places in the treebank.
        inputs: what the model takes.
        scores: by name, ``(batch, seq_len - 1)`` float32, what prunes their charts.
    """

    rows: list[int]
    inputs: dict[str, Tensor]
    scores: dict[str, Tensor]


class EncoderTrees:
    """The best trees of the encoder's charts.

    Args:
        gold: whose sentences are encoded.
        teacher: None leaves charts by counts out.
        batch_tokens: encoded at once, padding included.
    """

    def __init__(self, gold: list[LabelledTree], model, tokenizer: PreTrainedTokenizerBase,
                 teacher: CountTeacher | None, batch_tokens: int):  # fmt: skip
        self.gold, self.model = gold, model
        shown = show_all_words(tokenizer, [tree.words for tree in gold])
        encoded = tokenize_sentences(tokenizer, shown, is_split_into_words=True)
        self.word_ids, lengths = encoded["word_ids"], [len(ids) for ids in encoded["input_ids"]]
        chance, collate = torch.Generator().manual_seed(0), DataCollatorForFastR2D2(tokenizer)
        by_chance = [torch.rand(length - 1, generator=chance) for length in lengths]
        self.batches = []
        for rows in batches_by_length(lengths, batch_tokens=batch_tokens):
            inputs = collate([{name: encoded[name][row] for name in ("input_ids", "atom_spans")} for row in rows])
            scores = {"counts": teacher(inputs["input_ids"].to(teacher.begins.device))} if teacher else {}
            scores["random"] = torch.nn.utils.rnn.pad_sequence([by_chance[row] for row in rows], batch_first=True)
            self.batches.append(ChartBatch(rows, inputs, scores))

    @property
    def names(self) -> list[str]:
        """Of what prunes the charts."""
        return list(self.batches[0].scores)

    def __call__(self, name: str) -> list[LabelledTree]:
        """Trees over words, in the treebank's order."""
        trees: dict[int, LabelledTree] = {}
        with evaluation(self.model), window_of(self.model, CHART_WINDOW_SIZE):
            for batch in self.batches:
                inputs = batch.inputs | {"split_scores": batch.scores[name]}
                inputs = {key: tensor.to(self.model.device) for key, tensor in inputs.items()}
                spans = self.model.base_model(**inputs, encoding="chart").spans.cpu()
                trees |= {row: self._over_words(row, found) for row, found in zip(batch.rows, spans, strict=True)}
        return [trees[row] for row in range(len(self.gold))]

    def _over_words(self, row: int, spans: Tensor) -> LabelledTree:
        word_ids, gold = self.word_ids[row], self.gold[row]
        tree = BinaryTree.from_spans(spans[: len(word_ids) - 1]).to_words(word_ids)
        return from_spans(gold.words, tree.spans, gold.place)


@contextlib.contextmanager
def window_of(model, window_size: int) -> Iterator[None]:
    """The model with another window for a while."""
    before, model.config.window_size = model.config.window_size, window_size
    try:
        yield
    finally:
        model.config.window_size = before


class TreebankScorer:
    """What the treebank says of the parser's trees and, of some of its sentences, of the encoder's own.

    Args:
        num_sentences: for the encoder's trees, taken evenly; None takes all.
    """

    def __init__(
        self,
        gold: list[LabelledTree],
        model,
        tokenizer: PreTrainedTokenizerBase,
        teacher: CountTeacher | None = None,
        num_sentences: int | None = None,
        batch_tokens: int = 1536,
    ):
        self.gold, self.parser = gold, TreeParser(model, tokenizer)
        number = min(num_sentences or len(gold), len(gold))
        some = [gold[place * len(gold) // number] for place in range(number)]
        self.encoder = EncoderTrees(some, model, tokenizer, teacher, batch_tokens)

    def __call__(self) -> dict[str, float]:
        """Figures of `tree_figures`: plain names for the parser, with ``_counts`` and ``_random`` for the encoder."""
        figures = tree_figures(model_trees(self.parser, self.gold), self.gold)
        for name in self.encoder.names:
            of_encoder = tree_figures(self.encoder(name), self.encoder.gold)
            figures |= {f"{figure}_{name}": value for figure, value in of_encoder.items()}
        return figures


def tree_figures(predicted: list[LabelledTree], gold: list[LabelledTree]) -> dict[str, float]:
    """``f1`` of sentences and ``<label>_recall`` of the labels that the treebank has, 0 ... 100; ``right_share`` and
    ``left_share`` of `chain_shares`, 0 ... 1, unless no sentence has more than two words."""
    scores, (right, left) = score_trees(predicted, gold), chain_shares(predicted)
    figures = {"f1": scores.sentence_f1}
    figures |= {f"{label}_recall": scores.recall(label) for label in LABELS if label in scores.labels}
    return figures if right != right else figures | {"right_share": right, "left_share": left}


def chain_warnings(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """What to say of two evaluations in a row with trees that are, or are becoming, chains."""
    sides = (("right_share", "end with the last word", MAX_RIGHT_SHARE, "right"),
             ("left_share", "begin with the first word", MAX_LEFT_SHARE, "left"))  # fmt: skip
    warnings = []
    for whose, suffix in (("the parser's", ""), ("the encoder's own", "_counts")):
        for name, what, limit, side in sides:
            if min(figures.get(name + suffix, 0) for figures in (before, now)) > limit:
                warnings.append(
                    f"{now[name + suffix]:.0%} of the spans of {whose} trees {what}, and more than {limit:.0%} did at "
                    f"the evaluation before: a chain to the {side}, or no structure yet"
                )
    return warnings
