import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretraining.batches import Limits, PlannedEpochs, ProcessShare, cut, plan_epoch

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=200).map(np.array)
LIMITS = st.builds(Limits, st.integers(1, 9), st.integers(40, 120))


class FakeCorpus:
    """Sentences whose tokens are their number."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __getitem__(self, sentences):
        return [{"input_ids": [int(s)] * int(self.lengths[s])} for s in sentences]


def collate(features):
    return {"sentences": torch.tensor([feature["input_ids"][0] for feature in features])}


def slow_cut(order, lengths, limits):
    """The definition: one sentence after the other, into the open part if it fits."""
    parts = [[]]
    for sentence in order:
        part = [*parts[-1], sentence]
        if len(part) > limits.sentences or sum(lengths[s] for s in part) > limits.tokens:
            parts.append([sentence])
        else:
            parts[-1] = part
    return parts


@given(LENGTHS, LIMITS, st.randoms(use_true_random=False))
def test_cutting_is_greedy(lengths, limits, chance):
    order = np.array(chance.sample(range(len(lengths)), len(lengths)))
    assert [part.tolist() for part in cut(order, lengths, limits)] == slow_cut(order.tolist(), lengths, limits)


@given(LENGTHS, LIMITS, st.integers(0, 5), st.integers(0, 3), st.integers(1, 3), st.integers(1, 3))
def test_processes_share_an_epoch_within_the_limits(lengths, limits, seed, epoch, num_processes, accumulation):
    seen, counts = [], []
    for process in range(num_processes):
        share = ProcessShare(process, num_processes, accumulation)
        steps = [step for step, _ in PlannedEpochs(FakeCorpus(lengths), seed, limits, share, collate).steps(epoch)]
        counts.append(len(steps))
        for step in steps:
            parts = [batch["sentences"].tolist() for batch in step.batches]
            assert all(len(part) <= limits.sentences and lengths[part].sum() <= limits.tokens for part in parts)
            sentences = [s for part in parts for s in part]
            assert 1 <= len(step.batches) <= accumulation
            if step.num_sentences:  # otherwise the process is idle, and its sentence counts for nothing
                assert step.num_sentences == len(sentences)
                assert step.num_tokens == sum(lengths[sentences])
                seen += sentences
    assert len(set(counts)) == 1
    assert sorted(seen) == list(range(len(lengths)))


@given(LENGTHS, LIMITS, st.data())
def test_an_epoch_goes_on_from_any_position(lengths, limits, data):
    epochs = PlannedEpochs(FakeCorpus(lengths), 1, limits, ProcessShare(), collate)
    whole = list(epochs.steps(2))
    step, position = whole[data.draw(st.integers(0, len(whole) - 1))]
    rest = list(epochs.steps(2, position))
    assert len(rest) == len(whole) - position["step"]
    for (one, _), (other, _) in zip(rest, whole[position["step"] :], strict=True):
        assert torch.equal(one.batches[0]["sentences"], other.batches[0]["sentences"])


def test_order_is_a_function_of_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(1, 30, 500)

    def order(seed, epoch):
        steps = plan_epoch(lengths, seed, epoch, Limits(8, 200), 2)
        return np.concatenate([part for step in steps for part in step]).tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1) != order(1, 1)


@pytest.mark.parametrize("num_processes", [2, 4])
def test_processes_with_a_share_of_the_batch_see_the_steps_of_one_process(num_processes):
    lengths = np.random.default_rng(0).integers(1, 30, 1000)
    one = plan_epoch(lengths, 0, 0, Limits(64, 10_000), 1)
    several = plan_epoch(lengths, 0, 0, Limits(64 // num_processes, 10_000), num_processes)
    assert [np.concatenate(step).tolist() for step in several] == [np.concatenate(step).tolist() for step in one]


def test_sentences_of_a_step_are_of_like_length():
    lengths = np.random.default_rng(0).integers(1, 60, 5000)
    spread = [np.ptp(lengths[np.concatenate(step)]) for step in plan_epoch(lengths, 0, 0, Limits(), 2)]
    assert np.median(spread) <= 2
