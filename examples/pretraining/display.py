"""What a person sees during a run: a progress bar on a terminal, plain lines in a pipe."""

import sys
import time

from tqdm import tqdm

from pretraining.losses import LOSSES

FORMATS = {
    **{f"{loss.name}_loss": loss.name + " {:.3f}" for loss in LOSSES}, "lm_loss": "LM {:.3f}", "tree_loss": "KL {:.3f}",
    "tokens_per_second": "{:,.0f} tokens/s", "stage": "stage {}",
    "encoder_learning_rate": "lr {:.1e}", "parser_learning_rate": "parser {:.1e}", "skipped": "{} skipped",
    "left_out": "{:,} too long",
    "validation_lm_loss": "validation LM {:.3f}", "validation_tree_loss": "KL {:.3f}",
}  # fmt: skip
MEANINGS = (
    "LM is the loss of predicting each token; KL says how far the parser's trees are from the encoder's. "
    "Both are in nats per token."
)
SHOWN_UNLESS_ZERO = ("skipped", "left_out", "stage")
# Whose trees a figure describes, by the suffix of its name.
TREES = {"": "parser", "_counts": "encoder on charts by counts", "_random": "on random charts"}
SHARES = {"right_share": "R", "left_share": "L"}


class Display:
    """Progress and messages, shown by the main process only."""

    def __init__(self, num_steps: int, is_shown: bool):
        self.is_shown, self.num_steps = is_shown, num_steps
        self.bar = tqdm(total=num_steps, unit="step", disable=None if is_shown else True)
        self.first_step, self.began = 0, time.monotonic()

    def start(self, step: int) -> None:
        """Begin at the step that an earlier session reached."""
        self.bar.initial = self.bar.n = step
        self.bar.unpause()
        self.first_step, self.began = step, time.monotonic()

    def advance(self) -> None:
        self.bar.update()

    def show_point(self, figures: dict[str, float]) -> None:
        if self.bar.disable:
            left = tqdm.format_interval(self.seconds_left(figures["step"]))
            self.say(f"step {figures['step']:,} of {self.num_steps:,}, {left} left: {describe_figures(figures)}")
        else:
            self.bar.set_postfix_str(describe_figures(figures))

    def seconds_left(self, step: int) -> float:
        """At the speed since `start`, evaluations and checkpoints included."""
        seconds_per_step = (time.monotonic() - self.began) / (step - self.first_step)
        return max(0, self.num_steps - step) * seconds_per_step

    def show_evaluation(self, figures: dict) -> None:
        parts = [describe_figures(figures), *describe_trees(figures)]
        self.say(f"step {figures['step']:,}: {'; '.join(filter(None, parts))}")

    def say(self, text: str) -> None:
        if self.is_shown:
            self.bar.write(text, file=sys.stdout)
            sys.stdout.flush()

    def close(self) -> None:
        self.bar.close()


def describe_figures(figures: dict[str, float]) -> str:
    """The figures in `FORMATS`, in that order; those of `SHOWN_UNLESS_ZERO` only if they are not zero."""
    known = [name for name in FORMATS if name in figures and (figures[name] or name not in SHOWN_UNLESS_ZERO)]
    return ", ".join(FORMATS[name].format(figures[name]) for name in known)


def describe_trees(figures: dict[str, float]) -> list[str]:
    """For each kind of trees: F1, recall by label, and the shares of spans that reach the end (R) and the beginning (L)
    of the sentence."""
    kinds = []
    for suffix, whose in TREES.items():
        if "f1" + suffix in figures:
            recalls = [f"{name.partition('_')[0]} {value:.0f}" for name, value in figures.items()
                       if name.endswith("_recall" + suffix)]  # fmt: skip
            shares = [
                f"{short} {figures[name + suffix]:.2f}" for name, short in SHARES.items() if name + suffix in figures
            ]
            kinds.append(f"{whose}: F1 {figures['f1' + suffix]:.1f} ({' '.join(recalls + shares)})")
    return kinds
