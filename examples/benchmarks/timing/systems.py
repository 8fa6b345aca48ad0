"""What is timed: one function of a batch for each system, all with random weights of the same size."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from transformers import BertModel

from modeling_fast_r2d2 import FastR2D2Model
from timing.bert import make_bert, on_our_products

Batch = list[list[int]]
Run = Callable[[dict[str, Tensor]], Tensor]


@dataclass(frozen=True)
class System:
    """``run`` takes a padded batch, ``sorts`` says that it is given sentences of like length together, ``same_as`` is
    a function with equal outputs."""

    name: str
    run: Run
    sorts: bool = False
    same_as: Run | None = None


BERT = "BERT-12L"
FAIR_BERT = "BERT-12L, our products"
NAMES = (
    FAIR_BERT, BERT, "BERT-12L, sorted", "BERT-4L, our products", "BERT-4L", "R2D2", "Fast-R2D2", "Fast-R2D2*",
    "Fast-R2D2* encoder", "Fast-R2D2*, compiled",
)  # fmt: skip
DEFAULT_NAMES = NAMES[:-1]


def default_names(device: str) -> list[str]:
    """On a GPU all systems have torch's products."""
    return [name for name in DEFAULT_NAMES if device == "cpu" or not name.endswith("our products")]


def make_systems(names: Sequence[str], model: FastR2D2Model) -> list[System]:
    """Of these names, in their order:

    - ``BERT-12L``, ``BERT-4L``: transformers' BERT of three times the layers (the same products a token as a
      composition a token) and of as many layers; ``..., sorted`` with like lengths together, hardly any padding;
      ``..., our products`` with the matrix products that our models have;
    - ``Fast-R2D2*``: the parser, then the encoder along its tree; ``Fast-R2D2* encoder`` along given scores;
      ``..., compiled`` with the composition compiled by torch, a minute before the first batch;
    - ``Fast-R2D2``: parser and pruned chart; ``R2D2``: the chart pruned by the heuristic.
    """
    bert = cache(lambda times: make_bert(times, model))
    makers: dict[str, Callable[[], System]] = {
        FAIR_BERT: lambda: _fair(FAIR_BERT, bert(3)),
        BERT: lambda: System(BERT, _states(bert(3))),
        "BERT-12L, sorted": lambda: System("BERT-12L, sorted", _states(bert(3)), sorts=True),
        "BERT-4L, our products": lambda: _fair("BERT-4L, our products", bert(1)),
        "BERT-4L": lambda: System("BERT-4L", _states(bert(1))),
        "R2D2": lambda: System("R2D2", _ours(model, "heuristic")),
        "Fast-R2D2": lambda: System("Fast-R2D2", _ours(model, "chart")),
        "Fast-R2D2*": lambda: System("Fast-R2D2*", _ours(model, "forced")),
        "Fast-R2D2* encoder": lambda: System("Fast-R2D2* encoder", _along_random_scores(model)),
        "Fast-R2D2*, compiled": lambda: System("Fast-R2D2*, compiled", _ours(_compiled(model), "forced")),
    }
    return [makers[name]() for name in names]


def pad(batch: Batch, device: str) -> dict[str, Tensor]:
    rows = [torch.tensor(ids) for ids in batch]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def _fair(name: str, bert: BertModel) -> System:
    return System(name, _states(on_our_products(bert)), same_as=_states(bert))


def _states(bert: BertModel) -> Run:
    return lambda batch: bert(**batch).last_hidden_state


def _compiled(model: FastR2D2Model) -> FastR2D2Model:
    compiled = copy.deepcopy(model)
    compiled.composition.compile(dynamic=True)
    return compiled


def _ours(model: FastR2D2Model, encoding: str) -> Run:
    return lambda batch: model(**batch, encoding=encoding).pooler_output


def _along_random_scores(model: FastR2D2Model) -> Run:
    def run(batch: dict[str, Tensor]) -> Tensor:
        rows, seq_len = batch["input_ids"].shape
        scores = torch.rand(rows, seq_len - 1, generator=torch.Generator().manual_seed(0))
        return model(**batch, split_scores=scores.to(model.device), encoding="forced").pooler_output

    return run
