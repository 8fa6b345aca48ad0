"""What callers get wrong, and what corpora hold besides sentences."""

import pytest
import torch

from tokenization_fast_r2d2 import (
    DataCollatorForFastR2D2,
    DataCollatorForFastR2D2Pairs,
    train_tokenizer,
)

TEXTS = ["The cat sat on the mat."] * 3


@pytest.mark.parametrize("kind", ["wordpiece", "character", "word"])
def test_blank_lines_of_the_corpus_do_not_make_blank_text_known(kind):
    tokenizer = train_tokenizer(TEXTS + ["\n", " "] * 3, 60, kind, show_progress=False)
    assert tokenizer(" ")["input_ids"] == [tokenizer.unk_token_id]


@pytest.mark.parametrize("with_spans", [0, 1])
def test_pairs_without_spans_stand_beside_pairs_that_have_them(tokenizer, with_spans):
    features = [{"input_ids": [[9, 10], [11]]}, {"input_ids": [[9, 10], [11]]}]
    features[with_spans]["atom_spans"] = [[(0, 1)], []]
    spans = DataCollatorForFastR2D2Pairs(tokenizer)(features)["atom_spans"]
    assert spans[with_spans].tolist() == [[[0, 1]], [[-1, -1]]] and (spans[1 - with_spans] == -1).all()


def test_a_feature_that_is_no_pair_is_refused(tokenizer):
    with pytest.raises(ValueError, match="row 0 of the batch has 3 sentences"):
        DataCollatorForFastR2D2Pairs(tokenizer)([{"input_ids": [[9], [9], [9]]}])


def test_features_may_hold_tensors(tokenizer):
    batch = DataCollatorForFastR2D2(tokenizer)([
        {"input_ids": torch.tensor([9, 10]), "atom_spans": torch.tensor([[0, 1]]), "labels": torch.tensor(1)},
        {"input_ids": torch.tensor([9]), "atom_spans": torch.zeros(0, 2).long(), "labels": torch.tensor(0)},
    ])  # fmt: skip
    assert batch["input_ids"].tolist() == [[9, 10], [9, 0]] and batch["labels"].tolist() == [1, 0]
    assert batch["atom_spans"].tolist() == [[[0, 1]], [[-1, -1]]]


def test_trees_as_labels_are_padded_to_the_split_points(tokenizer):
    features = [{"input_ids": [9, 9, 9], "labels": [[0, 1], [0, 2]]}, {"input_ids": [9], "labels": []}]
    batch = DataCollatorForFastR2D2(tokenizer, pad_to_multiple_of=4)(features)
    none = [-1, -1]
    assert batch["labels"].tolist() == [[[0, 1], [0, 2], none], [none] * 3]


@pytest.mark.parametrize("labels", [(1, None), (None, 1)])
def test_a_batch_labelled_in_part_is_refused(tokenizer, labels):
    with pytest.raises(ValueError, match="label all rows or none"):
        DataCollatorForFastR2D2(tokenizer)([{"input_ids": [9], "label": label} for label in labels])
