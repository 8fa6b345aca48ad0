"""The systems that are timed: a function of a batch for each, with random weights and the same hidden size."""

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
    """A system that is timed.

    Attributes:
        run: encodes a padded batch.
        sorts: whether its batches have sentences of similar length.
        same_as: a function with equal outputs, if there is one.
    """

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
    """The systems to time on a device; on a GPU, all have torch's products."""
    return [name for name in DEFAULT_NAMES if device == "cpu" or not name.endswith("our products")]


def make_systems(names: Sequence[str], model: FastR2D2Model) -> list[System]:
    """Make the systems with these names, in their order.

    - ``BERT-12L`` and ``BERT-4L`` are BERTs of transformers with three times our layers (as many products per token as
      one composition per token has) and with as many layers. ``..., sorted`` has sentences of similar length together,
      with hardly any padding. ``..., our products`` has the matrix products of our models.
    - ``Fast-R2D2*`` is the parser, then the encoder along its tree; ``Fast-R2D2* encoder`` encodes along given scores.
      In ``..., compiled``, torch compiles the composition, for a minute before the first batch.
    - ``Fast-R2D2`` is parser and pruned chart; ``R2D2`` is the chart that is pruned by the heuristic.
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
    """``input_ids`` and ``attention_mask`` of a batch."""
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
