"""A metric module for the library `evaluate`. It works offline:

evaluate.load(modeling_fast_r2d2.grammar_induction.UNLABELED_F1)
"""

from typing import Any

import datasets
import evaluate

from modeling_fast_r2d2.grammar_induction import TreebankPreprocessing, score_trees
from modeling_fast_r2d2.grammar_induction.treebanks import read_predicted_tree

DESCRIPTION = "Unlabeled F1 of constituency trees as in grammar induction, and recall by label."
CITATION = """\
@inproceedings{kim-etal-2019-compound,
  title = {Compound Probabilistic Context-Free Grammars for Grammar Induction},
  author = {Kim, Yoon and Dyer, Chris and Rush, Alexander M.},
  booktitle = {Proceedings of ACL},
  year = {2019}
}"""
INPUTS = """\
Args:
    predictions: predicted trees, such as ((the cat) (sat down)), or with labels if has_labels.
    references: gold trees with labels, such as (S (NP (DT the) (NN cat)) (VP (VBD sat) (RP down))).
    has_labels: whether predictions have labels.
    granularity: "words" to compare trees over words, "pieces" to compare them over the pieces of the predictions.
    keep_punctuation: remove only traces from the gold trees; by default punctuation is removed as well.
Returns: sentence_f1, corpus_f1, strict_sentence_f1, script_sentence_f1 and script_corpus_f1, all from 0 to 100;
    sentences, the number of scored sentences; and recall, a dict with the recall of each label, from 0 to 100.
"""


class UnlabeledF1(evaluate.Metric):
    """`score_trees` as a metric."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(
        self,
        predictions: list[str],
        references: list[str],
        has_labels: bool = False,
        granularity: str = "words",
        keep_punctuation: bool = False,
    ) -> dict[str, Any]:
        preprocessing = TreebankPreprocessing(keep_punctuation)
        gold = [preprocessing.read(text, f"reference {row}") for row, text in enumerate(references)]
        trees = [read_predicted_tree(text, has_labels, f"prediction {row}") for row, text in enumerate(predictions)]
        scores = score_trees(trees, gold, granularity)
        names = ("sentence_f1", "corpus_f1", "strict_sentence_f1", "script_sentence_f1", "script_corpus_f1")
        figures = {name: getattr(scores, name) for name in names}
        recall = {label: scores.recall(label) for label in scores.labels}
        return figures | {"sentences": len(scores.rows), "recall": recall}
