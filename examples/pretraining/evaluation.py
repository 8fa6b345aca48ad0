"""Evaluations during training: validation losses, trees against a treebank, drawn trees.

The language model can teach an encoder to choose chains long before the parser's F1 or any loss shows it.
Therefore the best trees of the encoder's charts are scored beside the parser's. The parser has no part in these charts:
they are pruned by counts of the text (see `counts`).
"""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.embedding import evaluation, in_batches
from modeling_fast_r2d2.grammar_induction import LabelledTree, chain_shares, from_spans, read_treebank, score_trees
from modeling_fast_r2d2.grammar_induction.systems import model_trees
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.text_files import write_text
from pretraining.batches import cut
from pretraining.counts import CountTeacher
from tokenization_fast_r2d2 import DataCollatorForFastR2D2
from tokenization_fast_r2d2.reading import ReadSentence, pad_batch, sentences_to_parse
from tokenization_fast_r2d2.trees import Span

LABELS = ("NP", "VP", "PP", "SBAR")
CHART_WINDOW_SIZE = 4  # at all evaluations, whatever the run trains with
# Larger shares of spans mean that trees are chains, if gold trees have smaller ones.
MAX_RIGHT_SHARE, MAX_LEFT_SHARE, TIMES_GOLD = 0.85, 0.15, 1.5


class Interrupted(Exception):
    """An evaluation was left between two batches."""


@contextlib.contextmanager
def stopping_together(accelerator: Accelerator) -> Iterator[None]:
    """What one process leaves by `Interrupted`, all leave so at its end. All processes must enter this together."""
    try:
        yield
    except Interrupted:
        accelerator.set_trigger()
    if accelerator.check_trigger():
        raise Interrupted


def evaluate(run, check: Callable[..., object] = lambda *_: None) -> dict[str, float]:
    """Compute the figures by name, on every process; append drawn trees to the run's ``trees.txt``.

    Args:
        run: gives the accelerator, the model, the data, the epochs with their limits and the `TreebankScorer`. What it
            has no data for is left out.
        check: called between batches; raises `Interrupted` if this process is to end.

    Raises:
        Interrupted: on all processes, if it is raised on one of them.
    """
    figures = validation_losses(run, check) if run.data.validation else {}
    if run.scorer:
        with stopping_together(run.accelerator):
            figures |= run.scorer(check)
    if run.data.to_draw and run.accelerator.is_main_process:
        file, title = run.folder / "trees.txt", f"== step {run.progress.step}\n"
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        before = before.partition(title)[0]  # a run that was killed takes steps again
        write_text(file, f"{before}{title}\n{draw_trees(run.model, run.data.tokenizer, run.data.to_draw)}\n\n")
    return figures


def validation_losses(run, check: Callable[..., object] = lambda *_: None) -> dict[str, float]:
    """Language-model loss and tree loss in nats per token, without noise and dropout.

    Each process takes its share of the batches; arguments and errors as for `evaluate`.
    """
    features, accelerator, collate = run.data.validation, run.accelerator, DataCollatorForFastR2D2(run.data.tokenizer)
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    parts = cut(np.argsort(lengths, kind="stable"), lengths, run.epochs.limits)
    sums = torch.zeros(4, device=accelerator.device)
    with stopping_together(accelerator), evaluation(run.model):
        for part in parts[accelerator.process_index :: accelerator.num_processes]:
            check()
            batch = send_to_device(collate([features[number] for number in part]), accelerator.device)
            with accelerator.autocast():
                output, tokens = run.model(**batch), int(batch["attention_mask"].sum())
            lm_sum, tree_sum = output.lm_loss * tokens, output.tree_loss * len(part)
            sums += torch.stack([lm_sum, tree_sum, lm_sum.new_tensor(tokens), lm_sum.new_tensor(len(part))])
    lm_sum, tree_sum, tokens, sentences = accelerator.reduce(sums, "sum").tolist()
    return {"validation_lm_loss": lm_sum / tokens, "validation_tree_loss": tree_sum / sentences}


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
        f"{method}:\n{parsed.draw()}"
        for both in zip(*drawn, strict=True)
        for method, parsed in zip(("parser", "chart"), both, strict=True)
    )


class TreebankScorer:
    """Scores the parser's trees on a treebank and, on some of its sentences, the best trees of the encoder's charts.

    Args:
        teacher: gives the scores by counts.
        num_sentences: sentences for the encoder's trees, taken at equal distances; None takes all.
        batch_tokens: largest number of tokens per batch of these, padding included.
    """

    def __init__(
        self,
        gold: list[LabelledTree],
        model,
        tokenizer: PreTrainedTokenizerBase,
        teacher: CountTeacher,
        num_sentences: int | None = None,
        batch_tokens: int = 1536,
    ):
        self.gold, self.shares_of_gold, self.parser = gold, chain_shares(gold), TreeParser(model, tokenizer)
        self.teacher, self.batch_tokens = teacher, batch_tokens
        number = min(num_sentences or len(gold), len(gold))
        self.some = [gold[place * len(gold) // number] for place in range(number)]
        self.read = sentences_to_parse(tokenizer, [tree.words for tree in self.some], is_split_into_words=True)

    def __call__(self, check: Callable[..., object] = lambda *_: None) -> dict[str, float]:
        """Figures of `tree_figures`. The encoder's have the suffix ``_counts``. ``check`` is as for `evaluate`."""
        figures = tree_figures(model_trees(self.parser, self.gold, progress=check), self.gold)
        of_encoder = tree_figures(self.encoder_trees(check), self.some)
        return figures | {f"{figure}_counts": value for figure, value in of_encoder.items()}

    def encoder_trees(self, check: Callable[..., object] = lambda *_: None) -> list[LabelledTree]:
        """The trees over words on charts that are pruned by counts."""
        model = self.parser.model

        def run(sentences: list[ReadSentence]) -> list[tuple[Span, ...]]:
            check()
            batch = send_to_device(pad_batch(sentences), model.device)
            del batch["split_signs"]
            scores = self.teacher(batch["input_ids"])
            spans = model.base_model(**batch, split_scores=scores, encoding="chart").spans.cpu()
            return [sentence.word_tree(row).spans for sentence, row in zip(sentences, spans, strict=True)]

        with window_of(model, CHART_WINDOW_SIZE):
            found = in_batches(model, self.read, run, batch_tokens=self.batch_tokens)
        return [from_spans(tree.words, spans, tree.place) for tree, spans in zip(self.some, found, strict=True)]


@contextlib.contextmanager
def window_of(model, window_size: int) -> Iterator[None]:
    """Give the model another window size for a while."""
    before, model.config.window_size = model.config.window_size, window_size
    try:
        yield
    finally:
        model.config.window_size = before


def tree_figures(predicted: list[LabelledTree], gold: list[LabelledTree]) -> dict[str, float]:
    """Scores of trees by name.

    These are ``f1`` of sentences and ``<label>_recall`` for the labels in the treebank, 0 to 100, and ``right_share``
    and ``left_share`` from `chain_shares`, 0 to 1, if a sentence has more than two words.
    """
    scores, (right, left) = score_trees(predicted, gold), chain_shares(predicted)
    figures = {"f1": scores.sentence_f1}
    figures |= {f"{label}_recall": scores.recall(label) for label in LABELS if label in scores.labels}
    return figures if right != right else figures | {"right_share": right, "left_share": left}


def chain_warnings(
    before: dict[str, float], now: dict[str, float], of_gold: tuple[float, float] = (0.0, 0.0)
) -> list[str]:
    """Warnings if trees are chains at two evaluations in a row. The `chain_shares` of gold trees may be large, too, as
    in Japanese."""
    right, left = (TIMES_GOLD * share for share in of_gold)
    sides = (("right_share", "end with the last word", max(MAX_RIGHT_SHARE, right), "right"),
             ("left_share", "begin with the first word", max(MAX_LEFT_SHARE, left), "left"))  # fmt: skip
    warnings = []
    for whose, suffix in (("the parser's", ""), ("the encoder's own", "_counts")):
        for name, what, limit, side in sides:
            if min(figures.get(name + suffix, 0) for figures in (before, now)) > limit:
                warnings.append(
                    f"{now[name + suffix]:.0%} of the spans of {whose} trees {what}, and more than {limit:.0%} did at "
                    f"the evaluation before: the trees are chains to the {side}, or have no structure yet"
                )
    return warnings
