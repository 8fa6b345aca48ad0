"""The weights of the best evaluation so far; a run may end with them instead of its last weights."""

import json
import math
import shutil
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.text_files import disk_errors
from pretraining.checkpoints import find_damage, publish

# By the name of a figure in evaluations.
HIGHER_IS_BETTER = {"f1": True, "validation_lm_loss": False}


class Best:
    """A folder with a model and the figures of its evaluation, written whole or not at all.

    A run that resumes from an earlier checkpoint repeats the same evaluations, so that nothing else has to be kept.

    Args:
        metric: the figure that is compared; with None no model is kept.
    """

    def __init__(self, folder: Path, metric: str | None):
        self.folder, self.metric = folder, metric

    @property
    def figures(self) -> dict | None:
        """Figures of the evaluation whose weights are in the folder; None if there are none or they are damaged."""
        if self.metric is None or find_damage(self.folder):
            return None
        return json.loads((self.folder / "evaluation.json").read_text(encoding="utf-8"))

    def keep_if_better(self, figures: dict, model, tokenizer: PreTrainedTokenizerBase) -> None:
        """Save the model if its evaluation beats the one in the folder. Only the main process may call this."""
        if self.metric is None or not math.isfinite(figures[self.metric]):
            return
        before, sign = self.figures, 1 if HIGHER_IS_BETTER[self.metric] else -1
        if before is None or sign * figures[self.metric] > sign * before[self.metric]:
            aside = self.folder.with_name(f".{self.folder.name}.new")
            shutil.rmtree(aside, ignore_errors=True)
            with disk_errors(aside):
                model.save_pretrained(aside)
            tokenizer.save_pretrained(aside)
            (aside / "evaluation.json").write_text(
                json.dumps(figures | {"metric_for_best_model": self.metric}), encoding="utf-8"
            )
            publish(aside, self.folder)
