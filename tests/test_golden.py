"""Every stage against reference numbers of the authors' code (see golden/README.md)."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from modeling_fast_r2d2 import (
    FastR2D2ForConstituencyParsing,
    FastR2D2ForPairClassification,
    FastR2D2ForPreTraining,
    FastR2D2ForSequenceClassification,
)
from modeling_fast_r2d2.chart import widest_neighbours
from modeling_fast_r2d2.chart_planning import merge_ranks
from modeling_fast_r2d2.checkpoints.original import convert_config, convert_state_dict
from modeling_fast_r2d2.heads import language_model_contexts
from modeling_fast_r2d2.parser import split_log_prob
from modeling_fast_r2d2.tree_distribution import TreeDistribution
from walking import counts_of

FOLDER = Path(os.environ.get("FAST_R2D2_GOLDEN", Path(__file__).parent / "golden"))
NAMES = [case["name"] for case in json.loads((FOLDER / "cases.json").read_text())["cases"]]
CASES = {name: json.loads((FOLDER / "cases" / f"{name}.json").read_text()) for name in NAMES}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative to 1 + |value|
FLOAT32 = pytest.param(torch.float32, id="float32", marks=pytest.mark.slow)  # float64 notices what goes wrong
OF_PAIRS = [name for name, case in CASES.items() if len(case["lengths"]) % 2 == 0]
HEADS = [(name, "classification") for name in NAMES] + [(name, "pair") for name in OF_PAIRS]
WITH_GRADIENTS = [name for name, case in CASES.items() if "grad" in case]


class Golden:
    """One case: its numbers, and models that hold its weights."""

    def __init__(self, name: str, dtype: torch.dtype):
        self.dtype = dtype
        self.case = CASES[name]
        self.arrays = load_file(FOLDER / self.case["arrays"])
        self.config = convert_config(self.case["config"])
        self.config.num_labels = 3
        self.config.composition_kernels = os.environ.get("FAST_R2D2_KERNELS", "auto")
        self.weights = convert_state_dict(load_file(FOLDER / self.case["weights"]), self.config)
        self.lengths = self.case["lengths"]
        self.inputs = {key: torch.tensor(self.case[key]) for key in ("input_ids", "attention_mask")}
        if self.case["atom_spans"] is not None:
            rows = [row or [] for row in self.case["atom_spans"]]
            most = max(map(len, rows))
            self.inputs["atom_spans"] = torch.tensor([row + [[-1, -1]] * (most - len(row)) for row in rows])

    def model(self, model_class):
        model, info = model_class.from_pretrained(
            None, config=self.config, state_dict=self.weights, dtype=self.dtype, output_loading_info=True
        )
        assert not info["missing_keys"] and not info["mismatched_keys"]
        return model.eval()

    def is_close(self, ours, expected) -> bool:
        expected = torch.as_tensor(expected, dtype=torch.float64)
        assert ours.dtype == self.dtype and ours.shape == expected.shape
        error = (ours.double() - expected).abs() / (1 + expected.abs())
        return not error.numel() or error.max().item() < TOLERANCE[self.dtype]

    def encoded(self, encoding: str, model=None):
        model = model or self.model(FastR2D2ForPreTraining)
        batch = model.model.read_batch(**{"atom_spans": None, **self.inputs})
        return model, batch, *model.model.encode_batch(batch, encoding)

    def tree_of(self, spans, sentence: int) -> list[list[int]]:
        splits = spans[sentence, : self.lengths[sentence] - 1].tolist()
        assert (spans[sentence, self.lengths[sentence] - 1 :] == -1).all()
        return sorted([i, j, k] for k, (i, j) in enumerate(splits))

    def sampled_trees(self, chart):
        """The reference's samples as `follow` would return them."""
        rows = {tuple(span): row for row, span in enumerate(chart.spans.tolist())}
        trees = torch.full((self.case["sampled"]["num_samples"], chart.num_tokens), -1)
        for offset, samples in zip(chart.offsets.tolist(), self.case["sampled"]["trees"], strict=True):
            for number, tree in enumerate(samples):
                for i, j, k in tree:
                    trees[number, k + offset] = rows[i + offset, j + offset]
        return trees

    def gradients(self):
        """Our parameter's name to its gradient, where the reference has the whole of it, and to its norm."""
        arrays, norms = {}, {}
        for part, prefix in (("bilm", "r2d2."), ("parser", "parser.")):
            start = f"grad.{part}."
            arrays |= {prefix + k.removeprefix(start): v for k, v in self.arrays.items() if k.startswith(start)}
            of_part = self.case["grad"][f"{part}_norms"]
            norms |= {prefix + k: torch.tensor([v], dtype=torch.float64) for k, v in of_part.items()}
        return convert_state_dict(arrays, self.config), convert_state_dict(norms, self.config)


@pytest.fixture(params=[pytest.param(torch.float64, id="float64"), FLOAT32], scope="module")
def dtype(request):
    return request.param


@pytest.fixture(params=NAMES, scope="module")
def golden(request, dtype):
    return Golden(request.param, dtype)


def test_parser_gives_the_reference_scores_merge_order_and_tree(golden):
    parser = golden.model(FastR2D2ForConstituencyParsing)
    output = parser(**golden.inputs)
    lengths = torch.tensor(golden.lengths)
    *_, nesting = parser._read(**golden.inputs)
    ranks = merge_ranks(output.split_scores, lengths, nesting).split(golden.lengths)
    for b, n in enumerate(golden.lengths):
        assert golden.is_close(output.split_scores[b, : n - 1], golden.case["parser"]["split_scores"][b])
        assert ranks[b][:-1].argsort().tolist() == golden.case["parser"]["merge_order"][b]
        assert golden.tree_of(output.spans, b) == sorted(golden.case["parser"]["tree"][b])


def test_forced_encoding_gives_the_reference_vectors(golden):
    output = golden.model(FastR2D2ForPreTraining).model(**golden.inputs, encoding="forced")
    assert output.log_prob is None
    assert golden.is_close(output.pooler_output, golden.arrays["forced_root"])
    seq_len = golden.inputs["input_ids"].shape[1]
    for b, nodes in enumerate(golden.case["forced"]["nodes"]):
        for i, j, k, _, row in nodes:
            assert output.spans[b, k].tolist() == [i, j]
            assert golden.is_close(output.last_hidden_state[b, seq_len + k], golden.arrays["forced_e"][row])


def test_chart_has_the_reference_cells_candidates_and_vectors(golden):
    _, _, chart, encoded = golden.encoded("chart")
    rows = {tuple(span): row for row, span in enumerate(chart.spans.tolist())}
    assert chart.num_cells == sum(map(len, golden.case["chart"]["cells"]))
    for offset, cells in zip(chart.offsets.tolist(), golden.case["chart"]["cells"], strict=True):
        for cell in cells:
            node = rows[cell["i"] + offset, cell["j"] + offset]
            at, count = node - chart.num_tokens, len(cell["splits"])
            assert [k - offset for k in chart.splits[at].tolist() if k >= 0] == cell["splits"]
            assert chart.splits[at, encoded.chosen[at]] - offset == cell["chosen"]
            assert golden.is_close(encoded.candidate_log_prob[at, :count], cell["log_p"])
            assert golden.is_close(encoded.log_prob[node], cell["log_p_sum"])
            assert golden.is_close(encoded.nodes[node], golden.arrays["cell_e"][cell["row"]])


def test_chart_gives_the_reference_root_and_best_tree_with_and_without_unreachable_cells(golden):
    model = golden.model(FastR2D2ForPreTraining)
    for output in (model(**golden.inputs), model.model(**golden.inputs, encoding="chart")):
        assert golden.is_close(output.pooler_output, golden.arrays["chart_root"])
        assert golden.is_close(output.log_prob, golden.case["chart"]["root_log_p_sum"])
        for b, tree in enumerate(golden.case["chart"]["best_tree"]):
            assert golden.tree_of(output.spans, b) == sorted(tree)


def test_language_model_has_the_reference_contexts_logits_and_loss(golden):
    model, _, chart, encoded = golden.encoded("chart")
    spans = chart.spans.tolist() + [None]
    for nodes, name in zip(widest_neighbours(chart), ("left_context", "right_context"), strict=True):
        offsets = chart.offsets.repeat_interleave(chart.lengths).tolist()
        ours = [spans[node] and [t - offset for t in spans[node]] for node, offset in zip(nodes, offsets, strict=True)]
        assert ours == [context for sentence in golden.case["bilm"][name] for context in sentence]
    config, weight = golden.config, model.model.embeddings.weight
    contexts = language_model_contexts(chart, encoded.nodes, weight[[config.bos_token_id, config.eos_token_id]])
    logits = model.lm_head(model.run_decoder(weight[[config.mask_token_id]], contexts))
    assert golden.is_close(logits, golden.arrays["bilm_logits"])
    assert golden.is_close(model(**golden.inputs).lm_loss, golden.case["bilm"]["loss"])


def test_given_samples_have_the_reference_log_probabilities_and_tree_loss(golden):
    _, batch, chart, encoded = golden.encoded("chart")
    scores, trees = batch.sentences.flatten(batch.split_scores), golden.sampled_trees(chart)
    for tokens, b in zip(torch.arange(chart.num_tokens).split(golden.lengths), range(len(golden.lengths)), strict=True):
        for s, tree in enumerate(trees[:, tokens[:-1]]):
            log_prob = split_log_prob(scores, chart.spans[tree], tokens[:-1]).sum()
            assert golden.is_close(log_prob, golden.case["sampled"]["log_prob"][b][s])
    loss = TreeDistribution(chart, encoded.choices()).tree_loss(scores, counts_of(chart, trees).to(scores.dtype))
    assert golden.is_close(loss, golden.case["sampled"]["loss"])


@pytest.mark.parametrize(("name", "kind"), HEADS)
def test_heads_give_the_reference_logits_and_objective(name, kind, dtype):
    golden = Golden(name, dtype)
    classes = {"classification": FastR2D2ForSequenceClassification, "pair": FastR2D2ForPairClassification}
    model = golden.model(classes[kind])
    inputs = golden.inputs
    if kind == "pair":
        inputs = {name: value.unflatten(0, (-1, 2)) for name, value in inputs.items()}
    reference = golden.case["objective"][kind]
    labels = torch.tensor(reference["labels"])
    for encoding, loss in (("forced", "forced_ce"), ("chart", "chart_ce")):
        output = model(**inputs, encoding=encoding, labels=labels)
        assert golden.is_close(output.logits, golden.case["downstream"][f"{kind}_{encoding}"]["logits"])
        assert golden.is_close(output.loss, reference[loss])
    model.config.split_noise = model.config.choice_noise = 0
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout | torch.nn.LSTM):
            module.p = module.dropout = 0
    output = model(**inputs, labels=labels)  # the tree loss is exact here, sampled in the reference
    expected = reference["forced_ce"] + reference["chart_ce"] + reference["bilm"]
    assert golden.is_close(output.lm_loss, reference["bilm"])
    assert golden.is_close(output.loss - output.tree_loss, expected)


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients_are_the_references(name, dtype):
    golden = Golden(name, dtype)
    model, batch, chart, encoded = golden.encoded("chart")
    model(**golden.inputs).lm_loss.backward()
    scores, counts = batch.sentences.flatten(batch.split_scores), counts_of(chart, golden.sampled_trees(chart))
    TreeDistribution(chart, encoded.choices()).tree_loss(scores, counts.to(scores.dtype)).backward()
    arrays, norms = golden.gradients()
    gradients = {parameter_name: parameter.grad for parameter_name, parameter in model.named_parameters()}
    assert gradients.keys() == norms.keys()
    assert all(golden.is_close(gradients[name].norm()[None], norm) for name, norm in norms.items())
    assert all(golden.is_close(gradients[name], array) for name, array in arrays.items())
