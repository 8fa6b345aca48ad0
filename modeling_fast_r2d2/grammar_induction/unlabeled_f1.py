"""A metric module for `evaluate`: ``evaluate.load(modeling_fast_r2d2.grammar_induction.UNLABELED_F1)``, offline."""

import datasets
import evaluate

from modeling_fast_r2d2.grammar_induction import Preprocessing, score_trees
from modeling_fast_r2d2.grammar_induction.treebanks import read_predicted_tree

DESCRIPTION = "Unlabeled F1 of constituency trees as in grammar induction, and recall of each label."
CITATION = """\
@inproceedings{kim-etal-2019-compound,
  title = {Compound Probabilistic Context-Free Grammars for Grammar Induction},
  author = {Kim, Yoon and Dyer, Chris and Rush, Alexander M.},
  booktitle = {Proceedings of ACL},
  year = {2019}
}"""
INPUTS = """\
Args:
    predictions: trees of words and brackets, such as ((the cat) (sat down)), or with labels if has_labels.
    references: gold trees with labels, such as (S (NP (DT the) (NN cat)) (VP (VBD sat) (RP down))).
    has_labels: whether predictions have labels.
    granularity: "words", or "pieces" for predictions over pieces of the gold words.
    keep_punctuation: leave out traces alone of the gold trees.
Returns: sentence_f1, corpus_f1, strict_sentence_f1, script_sentence_f1, script_corpus_f1 (0 ... 100), sentences, and
    recall, a dict by label.
"""


class UnlabeledF1(evaluate.Metric):
    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions, references, has_labels=False, granularity="words", keep_punctuation=False):
        preprocessing = Preprocessing(keep_punctuation)
        gold = [preprocessing.read(text, f"reference {row}") for row, text in enumerate(references)]
        trees = [read_predicted_tree(text, has_labels, f"prediction {row}") for row, text in enumerate(predictions)]
        scores = score_trees(trees, gold, granularity)
        names = ("sentence_f1", "corpus_f1", "strict_sentence_f1", "script_sentence_f1", "script_corpus_f1")
        figures = {name: getattr(scores, name) for name in names}
        recall = {label: scores.recall(label) for label in scores.labels}
        return figures | {"sentences": len(scores.rows), "recall": recall}
