"""Scores of trees against a treebank during training: the parser's trees, and the encoder's own.

The language model can teach an encoder to choose chains long before the parser's F1, the tree KL or any loss shows it.
Therefore the best trees of its charts are scored, too. The parser has no part in these charts: they are pruned by
counts of the text (see `count_teacher`) and at random.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2 import BinaryTree
from modeling_fast_r2d2.embedding import batches_by_length, evaluation
from modeling_fast_r2d2.grammar_induction import LabelledTree, chain_shares, from_spans, score_trees
from modeling_fast_r2d2.grammar_induction.systems import model_trees
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from pretraining.count_teacher import CountTeacher
from pretraining.stopping import Interrupted, never
from tokenization_fast_r2d2 import DataCollatorForFastR2D2
from tokenization_fast_r2d2.words import replace_dropped_words, tokenize_sentences

LABELS = ("NP", "VP", "PP", "SBAR")
CHART_WINDOW_SIZE = 4  # at all evaluations, whatever the run trains with
MAX_RIGHT_SHARE, MAX_LEFT_SHARE = 0.85, 0.15  # larger shares of spans mean that trees are chains


@dataclass(frozen=True)
class ChartBatch:
    """Sentences that are encoded together.

    Attributes:
        rows: their numbers in the treebank.
        inputs: inputs of the model.
        scores: split scores that prune the charts, ``(batch, seq_len - 1)`` float32, by name.
    """

    rows: list[int]
    inputs: dict[str, Tensor]
    scores: dict[str, Tensor]


class EncoderTrees:
    """The best trees of the encoder's charts.

    Args:
        gold: trees with the sentences that are encoded.
        teacher: gives the scores by counts; with None, charts are pruned at random only.
        batch_tokens: largest number of tokens per batch, padding included.
    """

    def __init__(self, gold: list[LabelledTree], model, tokenizer: PreTrainedTokenizerBase,
                 teacher: CountTeacher | None, batch_tokens: int):  # fmt: skip
        self.gold, self.model = gold, model
        shown = replace_dropped_words(tokenizer, [tree.words for tree in gold])
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
        """Names of the scores that prune the charts."""
        return list(self.batches[0].scores)

    def __call__(self, name: str, check: Callable[[], object] = never) -> list[LabelledTree]:
        """The trees over words on charts pruned by these scores, in the treebank's order.

        Args:
            check: called before each batch.
        """
        trees: dict[int, LabelledTree] = {}
        with evaluation(self.model), window_of(self.model, CHART_WINDOW_SIZE):
            for batch in self.batches:
                check()
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
    """Give the model another window size for a while."""
    before, model.config.window_size = model.config.window_size, window_size
    try:
        yield
    finally:
        model.config.window_size = before


class TreebankScorer:
    """Scores the parser's trees on a treebank and, on some of its sentences, the encoder's own trees.

    Args:
        num_sentences: sentences for the encoder's trees, taken at equal distances; None takes all.
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

    def __call__(self, is_stopping: Callable[[], bool] = never) -> dict[str, float]:
        """Figures of `tree_figures`. The encoder's have the suffixes ``_counts`` and ``_random``.

        Raises:
            Interrupted: if the process is stopping, which it is asked between batches.
        """

        def check(*_) -> None:
            if is_stopping():
                raise Interrupted

        figures = tree_figures(model_trees(self.parser, self.gold, progress=check), self.gold)
        for name in self.encoder.names:
            of_encoder = tree_figures(self.encoder(name, check), self.encoder.gold)
            figures |= {f"{figure}_{name}": value for figure, value in of_encoder.items()}
        return figures


def tree_figures(predicted: list[LabelledTree], gold: list[LabelledTree]) -> dict[str, float]:
    """Scores of trees by name.

    These are ``f1`` of sentences and ``<label>_recall`` for the labels in the treebank, 0 to 100, and ``right_share``
    and ``left_share`` from `chain_shares`, 0 to 1, if a sentence has more than two words.
    """
    scores, (right, left) = score_trees(predicted, gold), chain_shares(predicted)
    figures = {"f1": scores.sentence_f1}
    figures |= {f"{label}_recall": scores.recall(label) for label in LABELS if label in scores.labels}
    return figures if right != right else figures | {"right_share": right, "left_share": left}


def chain_warnings(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """Warnings if trees are chains at two evaluations in a row."""
    sides = (("right_share", "end with the last word", MAX_RIGHT_SHARE, "right"),
             ("left_share", "begin with the first word", MAX_LEFT_SHARE, "left"))  # fmt: skip
    warnings = []
    for whose, suffix in (("the parser's", ""), ("the encoder's own", "_counts")):
        for name, what, limit, side in sides:
            if min(figures.get(name + suffix, 0) for figures in (before, now)) > limit:
                warnings.append(
                    f"{now[name + suffix]:.0%} of the spans of {whose} trees {what}, and more than {limit:.0%} did at "
                    f"the evaluation before: the trees are chains to the {side}, or have no structure yet"
                )
    return warnings
