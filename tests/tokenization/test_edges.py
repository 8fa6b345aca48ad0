"""What callers get wrong, and what corpora hold besides sentences."""

import pytest
import torch

from tokenization_fast_r2d2 import DataCollatorForFastR2D2, DataCollatorForFastR2D2Pairs, train_tokenizer
from tokenization_fast_r2d2.processing_fast_r2d2 import FastR2D2Processor

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


PADDED_TEXTS = ["When the old man came , the dog that John Smith bought , ran away .", "It rains", "Cats sleep"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_features_bring_is_left_out(tokenizer, side):
    tokenizer.padding_side = side
    rows = [dict(tokenizer(text, padding="max_length", max_length=40)) for text in PADDED_TEXTS]
    collate = DataCollatorForFastR2D2(tokenizer)
    expected, found = collate([{"input_ids": ids} for ids in tokenizer(PADDED_TEXTS)["input_ids"]]), collate(rows)
    pairs = DataCollatorForFastR2D2Pairs(tokenizer)([{key: [row[key]] * 2 for key in row} for row in rows])
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor) and torch.equal(pairs[name], torch.stack([tensor] * 2, 1))


def test_padding_of_trees_as_labels_goes_with_that_of_tokens(tokenizer):
    rows = [{"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 1, 0], "labels": [[0, 2], [1, 2], [-1, -1]]}]
    batch = DataCollatorForFastR2D2(tokenizer)([*rows, {"input_ids": [5], "labels": []}])
    assert batch["labels"].tolist() == [[[0, 2], [1, 2]], [[-1, -1]] * 2]
    rows[0]["labels"] = torch.tensor([[-1, -1], [0, 2], [-1, -1]])  # nothing is known of the first split point
    assert DataCollatorForFastR2D2(tokenizer)(rows)["labels"].tolist() == [[[-1, -1], [0, 2]]]


@pytest.mark.parametrize("with_padding", [False, True])
def test_features_of_a_processor_give_its_batch(tokenizer, with_padding):
    processor = FastR2D2Processor(tokenizer, punctuation="aside")
    expected = processor(PADDED_TEXTS)
    groups = [PADDED_TEXTS] if with_padding else [[text] for text in PADDED_TEXTS]
    batches = [processor(group) for group in groups]
    rows = [{key: batch[key][row] for key in batch} for batch in batches for row in range(len(batch["input_ids"]))]
    found = DataCollatorForFastR2D2(tokenizer)(rows)
    assert found.keys() == expected.keys() and set(expected["split_signs"][0].tolist()) == {-1, 0, 1}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    without = [{"input_ids": [9]}, *rows]
    assert torch.equal(DataCollatorForFastR2D2(tokenizer)(without)["split_signs"][1:], expected["split_signs"])


@pytest.mark.parametrize("signs", [[1, -1, 0, 0], [1, -1]])
def test_signs_of_a_feature_that_is_padded_on_the_left_count_from_its_first_token(tokenizer, signs):
    feature = {"input_ids": [0, 0, 5, 6, 7], "attention_mask": [0, 0, 1, 1, 1], "split_signs": signs}
    assert DataCollatorForFastR2D2(tokenizer)([feature])["split_signs"].tolist() == [[1, -1]]


def test_trees_as_labels_are_padded_to_the_split_points(tokenizer):
    features = [{"input_ids": [9, 9, 9], "labels": [[0, 1], [0, 2]]}, {"input_ids": [9], "labels": []}]
    batch = DataCollatorForFastR2D2(tokenizer, pad_to_multiple_of=4)(features)
    none = [-1, -1]
    assert batch["labels"].tolist() == [[[0, 1], [0, 2], none], [none] * 3]


@pytest.mark.parametrize("labels", [(1, None), (None, 1)])
def test_a_batch_labelled_in_part_is_refused(tokenizer, labels):
    with pytest.raises(ValueError, match="label all rows or none"):
        DataCollatorForFastR2D2(tokenizer)([{"input_ids": [9], "label": label} for label in labels])
