"""Teachers, and the best trees under the mean of their posteriors of spans."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from modeling_fast_r2d2.grammar_induction import read_predicted_trees
from modeling_fast_r2d2.grammar_induction.consensus import minimum_risk_trees, span_posteriors, tree_posteriors
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from tokenization_fast_r2d2.reading import ReadSentence


class ParserTeacher:
    """A checkpoint as a teacher: posteriors of its parser's trees, or the trees of another method.

    Args:
        parser: its tokenizer must split text into the same words as the student's.
    """

    def __init__(self, parser: TreeParser):
        self.parser = parser

    def __call__(self, sentences: Sequence[ReadSentence], rows: Sequence[int]) -> Tensor:
        """Posteriors of spans by first word and width, ``(batch, words, words + 1)``; punctuation is not counted."""
        read = self.parser.read([sentence.leaves for sentence in sentences], is_split_into_words=True)
        size, lengths = max(len(sentence.words) for sentence in sentences), []
        spans, scores, _ = self.parser.run(read)
        for own, sentence in zip(read, sentences, strict=True):
            if own.words != sentence.words:
                raise ValueError(f"teacher and student have different words in {' '.join(sentence.leaves)!r:.80}")
            lengths.append(len(own.words))
        if self.parser.arguments is not None:
            return tree_posteriors([own.word_tree(row).spans for own, row in zip(read, spans, strict=True)], size)
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
        return tree_posteriors([tree.spans for tree in trees], max(len(sentence.words) for sentence in sentences))


def consensus(
    teachers: Sequence, sentences: Sequence[ReadSentence], rows: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """For each sentence, the spans of the best tree over its words under the mean of the teachers' posteriors."""
    posteriors = torch.stack([teacher(sentences, rows) for teacher in teachers]).mean(0)
    lengths = [len(sentence.words) for sentence in sentences]
    spans = minimum_risk_trees(posteriors, torch.tensor(lengths)).tolist()
    return [[tuple(span) for span in row[: length - 1]] for row, length in zip(spans, lengths, strict=True)]
