import itertools

import pytest
from datasets import IterableDataset

from pretraining.batches import Limits, ProcessShare, StreamedEpochs
from pretraining.corpus import documents_as_paragraphs

from .test_batches import collate

NUM_LINES = 57


def lines(files):
    for file in files:
        for number in range(NUM_LINES):
            yield {"text": f"{file} {number}"}


def encode(texts):
    """A line of number k is a sentence of 1 + k % 5 tokens; every tenth is too long."""
    sentences = []
    for file, number in (map(int, text.split()) for text in texts if text):
        length, token = 1 + number % 5, file * NUM_LINES + number
        sentences.append({"input_ids": [] if number % 10 == 9 else [token] * length, "length": length})
    return sentences


def documents(files):
    """Those lines, in documents of one to seven."""
    left, size = iter(list(lines(files))), itertools.cycle(range(1, 8))
    while some := list(itertools.islice(left, next(size))):
        yield {"text": "\n\n".join(row["text"] for row in some)}


def make(process=0, num_processes=1, pool=20, rows=lines):
    texts = IterableDataset.from_generator(rows, gen_kwargs={"files": ["0", "1", "2"]})
    if rows is documents:
        texts = documents_as_paragraphs(texts, "the code")
    return StreamedEpochs(texts, encode, 0, Limits(4, 12), ProcessShare(process, num_processes), collate, pool)


def until_idle(steps):
    return list(itertools.takewhile(lambda pair: pair[0].num_sentences, steps))


def numbers(steps):
    return [s for step, _ in steps for batch in step.batches for s in batch["sentences"].tolist()]


@pytest.mark.parametrize("rows", [lines, documents])
@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_every_sentence_is_seen_once_an_epoch_over_all_processes(num_processes, rows):
    for epoch in (0, 1):
        seen = [numbers(until_idle(make(p, num_processes, rows=rows).steps(epoch))) for p in range(num_processes)]
        expected = [s for s in range(3 * NUM_LINES) if s % NUM_LINES % 10 != 9]
        assert sorted(itertools.chain.from_iterable(seen)) == expected


def test_epochs_differ_in_order_and_can_follow_each_other():
    epochs = make()
    first, second = numbers(until_idle(epochs.steps(0))), numbers(until_idle(epochs.steps(1)))
    assert first != second
    assert sorted(first) == sorted(second)
    assert first == numbers(until_idle(make().steps(0)))


def test_a_process_without_lines_is_idle_but_takes_part():
    texts = IterableDataset.from_generator(lines, gen_kwargs={"files": []})
    epochs = StreamedEpochs(texts, encode, 0, Limits(), ProcessShare(), collate, 10)
    step, _ = next(epochs.steps(0))
    later, _ = next(itertools.islice(make().steps(0), len(until_idle(make().steps(0))), None))
    assert numbers([(later, None)]) == numbers([(step, None)])  # it draws as much noise, wherever a run goes on
    assert (step.num_tokens, step.num_sentences, len(step.batches)) == (0, 0, 1)


@pytest.mark.parametrize("rows", [lines, documents])
@pytest.mark.parametrize(
    "epoch, first, second", [(0, 1, 1), (0, 1, 4), (0, 5, 2), (0, 8, 3), (0, 13, 6), (1, 1, 2), (1, 9, 1)]
)
def test_a_stream_goes_on_again_and_again(epoch, first, second, rows):
    epochs = make(rows=rows)
    *_, whole = [until_idle(epochs.steps(number)) for number in range(epoch + 1)]
    _, position = whole[first - 1]
    _, position = until_idle(make(rows=rows).steps(epoch, position))[second - 1]
    assert numbers(until_idle(make(rows=rows).steps(epoch, position))) == numbers(whole[first + second :])


@pytest.mark.parametrize("taken", [0, 1, 13, 30])
def test_too_long_sentences_are_counted_once(taken):
    steps = until_idle(make().steps(0))
    rest = until_idle(make().steps(0, steps[taken - 1][1])) if taken else steps
    assert sum(step.num_left_out for step, _ in steps[:taken] + rest) == 15


def test_lines_that_were_read_before_do_not_move_the_beginning():
    texts = IterableDataset.from_generator(lines, gen_kwargs={"files": ["0", "1", "2"]})
    list(itertools.islice(texts, 70))
    epochs = StreamedEpochs(texts, encode, 0, Limits(4, 12), ProcessShare(), collate, 20)
    assert numbers(until_idle(epochs.steps(0))) == numbers(until_idle(make().steps(0)))
