"""What `Trainer` logs in fine-tuning: the losses whose weighted sum is its ``loss``."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from accelerate.utils import reduce
from torch import Tensor
from transformers import TrainerCallback

NAMES = ("forced_loss", "chart_loss", "lm_loss", "tree_loss")


class LossParts(TrainerCallback):
    """Adds the parts of a classifier's loss to `Trainer`'s log: ``Trainer(..., callbacks=[LossParts()])``.

    Beside each ``loss`` stand ``forced_loss`` and ``chart_loss`` (the task along the parser's tree and over the chart),
    ``lm_loss`` and ``tree_loss``: means since the last log, in nats, without their weights. A part of weight 0 is not
    there. Reporters such as TensorBoard show them if they are given after this one, in ``callbacks`` in place of
    ``report_to``.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[Tensor]] = defaultdict(list)
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._found.clear()
        if self._hook is not None:  # of a training that was broken off
            self._hook.remove()
        self._hook = model.register_forward_hook(self._keep)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" in logs:  # not a log of an evaluation
            means = {name: reduce(torch.stack(found).mean(), "mean").item() for name, found in self._found.items()}
            self._found.clear()
            logs |= means
            state.log_history[-1] |= means

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._hook.remove()

    def _keep(self, model: Any, inputs: Any, output: Any) -> None:
        if model.training and isinstance(output, Mapping):
            for name in NAMES:
                if output.get(name) is not None:
                    self._found[name].append(output[name].detach())
