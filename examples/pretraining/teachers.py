"""Teachers of a parser: what they say of a sentence's spans, and the tree on which they agree most."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from modeling_fast_r2d2.configuration_fast_r2d2 import MINIMUM_RISK
from modeling_fast_r2d2.grammar_induction import read_predicted_trees
from modeling_fast_r2d2.grammar_induction.consensus import given_posteriors, minimum_risk_trees, span_posteriors
from modeling_fast_r2d2.parsing.chart_probabilities import probabilities_of_batch
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.parsing_pipeline import PARSER
from tokenization_fast_r2d2.reading import ReadSentence


class ParserTeacher:
    """A checkpoint as a teacher: posteriors of its parser's trees or of its chart's, or the heuristic trees.
    Its tokenizer must split text into the same words as the student's."""

    def __init__(self, parser: TreeParser):
        self.parser = parser

    def __call__(self, sentences: Sequence[ReadSentence], rows: Sequence[int]) -> Tensor:
        """Posteriors of spans by first word and width, ``(batch, words, words + 1)``; punctuation is not counted."""
        read = self.parser.read([sentence.leaves for sentence in sentences], is_split_into_words=True)
        lengths = [len(sentence.words) for sentence in sentences]
        size = max(lengths)
        for own, sentence in zip(read, sentences, strict=True):
            if own.words != sentence.words:
                raise ValueError(f"teacher and student have different words in {' '.join(sentence.leaves)!r:.80}")
        if self.parser.method == "chart":
            return given_posteriors(probabilities_of_batch(self.parser, read), size)
        spans, scores, _ = self.parser.run(read)
        if self.parser.method != PARSER:
            trees = [own.word_tree(row) for own, row in zip(read, spans, strict=True)]
            return given_posteriors([dict.fromkeys(tree.spans, 1.0) for tree in trees], size)
        between = torch.zeros(len(read), size - 1)
        for row, own in enumerate(read):
            between[row, : lengths[row] - 1] = torch.from_numpy(scores[row][own.word_split_points])
        return span_posteriors(between, torch.tensor(lengths))


class FileTeacher:
    """A file of trees as a teacher, with one line for each line of the text."""

    def __init__(self, path: Path, num_sentences: int):
        self.path, self.trees = path, read_predicted_trees(path)
        if len(self.trees) != num_sentences:
            raise ValueError(f"{path} has {len(self.trees)} trees, the text {num_sentences} lines")

    def __call__(self, sentences: Sequence[ReadSentence], rows: Sequence[int]) -> Tensor:
        """Posteriors as `ParserTeacher` gives them, here 0 or 1; ``rows`` are the sentences' numbers in the text."""
        trees = [self.trees[row] for row in rows]
        for row, tree, sentence in zip(rows, trees, sentences, strict=True):
            if tree.num_leaves != len(sentence.words):
                raise ValueError(f"{self.path}, line {row + 1}: a tree over {tree.num_leaves} leaves, the text has "
                                 f"{len(sentence.words)} words besides its punctuation")  # fmt: skip
        size = max(len(sentence.words) for sentence in sentences)
        return given_posteriors([dict.fromkeys(tree.spans, 1.0) for tree in trees], size)


class BestTrees(NamedTuple):
    """Sentences with their best trees, as of `minimum_risk_trees`, and the posteriors of spans."""

    sentences: list[ReadSentence]
    spans: Tensor
    posteriors: Tensor

    @property
    def first_pieces(self) -> Tensor:
        """``(batch, words)`` long, of each word; 0 past the sentence."""
        rows = ([0, *(split + 1 for split in sentence.word_split_points)] for sentence in self.sentences)
        pieces = [torch.tensor(sentence.input_ids)[row] for sentence, row in zip(self.sentences, rows, strict=True)]
        return pad_sequence(pieces, batch_first=True)

    def are_among(self, words: Collection[str]) -> Tensor:
        """``(batch, words)`` bool, whether each word is one of these, in lower case; False past the sentence."""
        rows = [torch.tensor([word.lower() in words for word in sentence.words]) for sentence in self.sentences]
        return pad_sequence(rows, batch_first=True)


def consensus(
    teachers: Sequence, weights: Sequence[float], sentences: list[ReadSentence], rows: Sequence[int]
) -> BestTrees:
    """The best trees over words under the teachers' mean posteriors, by weight."""
    pairs = zip(weights, teachers, strict=True)
    posteriors = torch.stack([weight * teacher(sentences, rows) for weight, teacher in pairs]).sum(0) / sum(weights)
    lengths = torch.tensor([len(sentence.words) for sentence in sentences])
    return BestTrees(sentences, minimum_risk_trees(posteriors, lengths), posteriors)


def make_teachers(
    names: Sequence[str], methods: Sequence[str], weights: Sequence[float], bounds_bonus: float | None, num_lines: int
) -> tuple[list, list[float]]:
    """Teachers and weights, from names of checkpoints and files of trees. Trees of minimum risk are those of parser and
    chart together: two teachers, of half the weight each."""
    teachers: list[tuple[FileTeacher | ParserTeacher, float]] = []
    for name, method, weight in zip(names, methods, weights, strict=True):
        if Path(name).is_file():
            teachers.append((FileTeacher(Path(name), num_lines), weight))
        else:
            own = (PARSER, "chart") if method == MINIMUM_RISK else (method,)
            teachers += [(make_teacher(name, one, bounds_bonus), weight / len(own)) for one in own]
    return [teacher for teacher, _ in teachers], [weight for _, weight in teachers]


def make_teacher(name: str, method: str, bounds_bonus: float | None) -> ParserTeacher:
    return ParserTeacher(TreeParser.from_pretrained(
        name, method, punctuation="aside", bounds_bonus=bounds_bonus, batch_tokens=2**20
    ))  # fmt: skip
