"""Grammar induction: treebank readers, metrics, baselines and tables to evaluate trees from raw text."""

from pathlib import Path

from .alignment import align
from .labelled_trees import LabelledSpan, LabelledTree, from_spans, parse_brackets
from .metrics import Scores, chain_shares, inner_spans, proper_noun_chunks, score_trees
from .treebanks import TreebankPreprocessing, read_predicted_trees, read_treebank

UNLABELED_F1 = str(Path(__file__).with_name("unlabeled_f1.py"))  # for evaluate.load

__all__ = [
    "UNLABELED_F1",
    "LabelledSpan",
    "LabelledTree",
    "TreebankPreprocessing",
    "Scores",
    "align",
    "chain_shares",
    "from_spans",
    "inner_spans",
    "parse_brackets",
    "proper_noun_chunks",
    "read_predicted_trees",
    "read_treebank",
    "score_trees",
]
