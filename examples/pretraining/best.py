"""The weights of the best evaluation so far, which a run may end with instead of its last ones."""

import json
import math
import shutil
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from pretraining.checkpoints import find_damage, publish

# Whether more is better, by the name that evaluations give a figure.
HIGHER_IS_BETTER = {"f1": True, "validation_lm_loss": False}


class Best:
    """A folder with a model, written whole or not at all, and the figures of its evaluation.

    A run that goes on from an earlier checkpoint meets the same evaluations again, so nothing else has to be kept.
    """

    def __init__(self, folder: Path, by: str | None):
        self.folder, self.by = folder, by

    @property
    def figures(self) -> dict | None:
        """Of the evaluation whose weights are in the folder; None if there are none, or damaged ones."""
        if self.by is None or find_damage(self.folder):
            return None
        return json.loads((self.folder / "evaluation.json").read_text(encoding="utf-8"))

    def keep_if_better(self, figures: dict, model, tokenizer: PreTrainedTokenizerBase) -> None:
        """Take the model if its evaluation is better than that in the folder; for the main process alone."""
        if self.by is None or not math.isfinite(figures[self.by]):
            return
        before, sign = self.figures, 1 if HIGHER_IS_BETTER[self.by] else -1
        if before is None or sign * figures[self.by] > sign * before[self.by]:
            aside = self.folder.with_name(f".{self.folder.name}.new")
            shutil.rmtree(aside, ignore_errors=True)
            model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            (aside / "evaluation.json").write_text(
                json.dumps(figures | {"metric_for_best_model": self.by}), encoding="utf-8"
            )
            publish(aside, self.folder)
