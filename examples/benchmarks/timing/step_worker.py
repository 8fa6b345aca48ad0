"""A process that makes training steps with the code of one checkout, on request.

    python -m timing.step_worker CHECKOUT     # a request per line on stdin, an answer per line on stdout, both JSON

It uses only names that every version of the project has. The learning rates are zero: an update takes the usual time
but does not change the weights, so that the same step can be made again to record its products.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch

from timing.checkout import imported_files, use_checkout
from timing.recorder import ProductRecorder


class Steps:
    """A model and the batches that it is trained on.

    Args:
        fields: fields of the configuration.
        overrides: more fields, as ``config.update_from_string`` takes them.
        batches: path of a list of batches, written by ``torch.save``.
    """

    def __init__(self, fields: dict, overrides: str, batches: str, gradient_checkpointing: bool):
        from modeling_fast_r2d2 import FastR2D2Config, FastR2D2ForPreTraining, parameter_groups

        config = FastR2D2Config(**fields)
        if overrides:
            config.update_from_string(overrides)
        torch.manual_seed(0)
        self.model = FastR2D2ForPreTraining(config).train()
        if gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.optimizer = torch.optim.AdamW(parameter_groups(self.model, 0.0, 0.0))
        self.batches = torch.load(batches)

    def files(self) -> list[str]:
        return imported_files()

    def set_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def step(self, batch: int, seed: int) -> dict[str, float]:
        """Forward pass, backward pass, clipping and update; returns the loss, and wall-clock and CPU seconds."""
        torch.manual_seed(seed)
        wall, cpu = time.perf_counter(), time.process_time()
        loss = self.model(**self.batches[batch]).loss
        loss.backward()
        for name in ("encoder", "parser"):
            groups = [group for group in self.optimizer.param_groups if group["name"] == name]
            torch.nn.utils.clip_grad_norm_([weight for group in groups for weight in group["params"]], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"wall": wall, "cpu": cpu, "loss": loss.item()}

    def record(self, batch: int, seed: int) -> list:
        """The matrix products of the same step."""
        with ProductRecorder() as recorder:
            self.step(batch, seed)
        return recorder.products


def main() -> None:
    # Only answers go to stdout; what libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    use_checkout(Path(sys.argv[1]))
    steps = None
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            if name == "begin":
                steps, answer = Steps(**arguments), None
            else:
                answer = getattr(steps, name)(**arguments)
            answer = {"answer": answer}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
