"""R2D2's pruning against the rules of the paper's Section 2.1 followed one sentence and one cell at a time."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_fast_r2d2.heuristic_pruning import encode_heuristic


class ToyComposition:
    """Vectors are (first token, last token); probabilities a fixed, arbitrary function of both children."""

    def prepare(self, tasks):
        return tasks

    def __call__(self, shared, children):
        return self.compose(*children)

    def compose(self, left, right):
        parent = torch.stack([left[:, 0], right[:, 1]], dim=1)
        features = torch.cat([left, right], dim=1) @ torch.tensor([1.3, 7.1, 3.7, 11.9], dtype=left.dtype)
        return parent, -(features.sin() + 1.01)


def simulate(n: int, window: int):
    """{(i, j): (candidates, chosen, log p̃)} by the four rules, with dictionaries and lists."""
    step, best, cells = {}, {(t, t): 0.0 for t in range(n)}, {}
    units = [(t, t) for t in range(n)]

    def compose(i, k, j):
        left, right = torch.tensor([[i, k]]).double(), torch.tensor([[k + 1, j]]).double()
        return float(ToyComposition().compose(left, right)[1])

    def encode(run):
        i, j = run[0][0], run[-1][1]
        splits = [unit[1] for unit in run[:-1]]
        for k in splits:
            step[i, j, k] = compose(i, k, j)
        values = {k: step[i, j, k] + best[i, k] + best[k + 1, j] for k in splits}
        chosen = max(splits, key=values.get)
        best[i, j], cells[i, j] = values[chosen], (values, chosen)

    def subtree_pairs(run):
        """Two-unit cells in the best tree of a cell that breaks no unit."""
        if len(run) == 1:
            return []
        values = cells[run[0][0], run[-1][1]][0]
        at = max(range(1, len(run)), key=lambda a: values[run[a - 1][1]])
        here = [tuple(run)] if len(run) == 2 else []
        return here + subtree_pairs(run[:at]) + subtree_pairs(run[at:])

    for width in range(2, window + 2):
        for start in range(len(units) - width + 1):
            encode(units[start : start + width])
    while len(units) > window + 1:
        top = [units[start : start + window + 1] for start in range(len(units) - window)]
        pairs = {pair for run in top for pair in subtree_pairs(run)}
        left, right = max(pairs, key=lambda pair: step[pair[0][0], pair[1][1], pair[0][1]])
        at = units.index(left)
        units[at : at + 2] = [(left[0], right[1])]
        for start in range(max(0, at - window), min(at, len(units) - window - 1) + 1):
            encode(units[start : start + window + 1])
    return cells


@given(lengths=st.lists(st.integers(1, 13), min_size=1, max_size=4), window=st.integers(1, 5))
def test_a_batch_is_pruned_as_the_rules_prune_each_sentence(lengths, window):
    tokens = torch.cat([torch.arange(n) for n in lengths]).double()
    leaves = torch.stack([tokens, tokens], dim=1)
    chart, encoded = encode_heuristic(torch.tensor(lengths), leaves, ToyComposition(), None, window)
    offset = 0
    for root, n in zip(chart.roots.tolist(), lengths, strict=True):
        expected = simulate(n, window)
        assert chart.spans[root].tolist() == [offset, offset + n - 1]
        ours = {}
        for row, (i, j) in enumerate(chart.spans[chart.num_tokens :].tolist()):
            if offset <= i < offset + n:
                splits = [k - offset for k in chart.splits[row].tolist() if k >= 0]
                values = encoded.candidate_log_prob[row, : len(splits)].tolist()
                ours[i - offset, j - offset] = (splits, values, splits[encoded.chosen[row]])
                assert encoded.nodes[chart.num_tokens + row].tolist() == [i - offset, j - offset]
                assert chart.spans[chart.left[row, : len(splits)]].tolist() == [[i, k + offset] for k in splits]
                assert chart.spans[chart.right[row, : len(splits)]].tolist() == [[k + 1 + offset, j] for k in splits]
        assert ours.keys() == expected.keys()
        for span, (values, chosen) in expected.items():
            assert ours[span][0] == sorted(values) and ours[span][2] == chosen
            torch.testing.assert_close(ours[span][1], [values[k] for k in sorted(values)])
        offset += n


def test_short_sentences_are_encoded_as_the_chart_encodes_them(tiny_model, a_batch):
    short = {name: value[[1, 2]] for name, value in a_batch.items()}
    chart = tiny_model.model(**short, encoding="chart")
    heuristic = tiny_model.model(**short, encoding="heuristic")
    torch.testing.assert_close(chart.pooler_output, heuristic.pooler_output)
    torch.testing.assert_close(chart.log_prob, heuristic.log_prob)
