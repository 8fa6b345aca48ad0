"""What a person sees: progress and figures during a run, and at its end its curves and a model card."""

import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path

from accelerate import Accelerator
from huggingface_hub import ModelCardData
from matplotlib.figure import Figure
from tqdm import tqdm

from pretraining.evaluation import LABELS
from pretraining.losses import LOSSES
from pretraining.options import DataOptions

FORMATS = {
    **{f"{loss.name}_loss": loss.name + " {:.3f}" for loss in LOSSES}, "lm_loss": "LM {:.3f}",
    "tokens_per_second": "{:,.0f} tokens/s", "stage": "stage {}",
    "encoder_learning_rate": "lr {:.1e}", "parser_learning_rate": "parser {:.1e}", "skipped": "{} skipped",
    "left_out": "{:,} too long",
    "validation_lm_loss": "validation LM {:.3f}", "validation_tree_loss": "tree {:.3f}",
}  # fmt: skip
MEANINGS = (
    "LM is the loss of predicting each token, tree the cross entropy of the parser's trees and the encoder's. "
    "Both are in nats per token; the latter is a mean over sentences."
)
SHOWN_UNLESS_ZERO = ("skipped", "left_out", "stage")
# Whose trees a figure describes, by the suffix of its name.
TREES = {"": "parser", "_counts": "encoder on charts by counts"}
SHARES = {"right_share": "R", "left_share": "L"}
USAGE = """\
```python
from transformers import AutoModel

model = AutoModel.from_pretrained("{place}", trust_remote_code=True)
print(model.encode(["A cat sleeps", "It rained all day"]).shape)  # one vector per sentence
for words, span, vector in model.constituents("The old man bought a new car"):
    print(span, " ".join(words))
```
"""


class Display:
    """Progress and messages, shown by the main process only: a bar on a terminal, plain lines in a pipe."""

    def __init__(self, num_steps: int, is_shown: bool):
        self.is_shown, self.num_steps = is_shown, num_steps
        self.bar = tqdm(total=num_steps, unit="step", disable=None if is_shown else True)
        self.first_step, self.began = 0, time.monotonic()

    def start(self, step: int) -> None:
        """Begin at the step that an earlier session reached."""
        self.bar.initial = self.bar.n = step
        self.bar.unpause()
        self.first_step, self.began = step, time.monotonic()

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
            shown = [f"{name.partition('_')[0]} {value:.0f}" for name, value in figures.items()
                     if name.endswith("_recall" + suffix)]  # fmt: skip
            shown += [f"{short} {figures[name + suffix]:.2f}" for name, short in SHARES.items()
                      if name + suffix in figures]  # fmt: skip
            kinds.append(f"{whose}: F1 {figures['f1' + suffix]:.1f} ({' '.join(shown)})")
    return kinds


def plot(run, file: Path) -> None:
    """Draw the loss curves and, if there was a treebank, F1 of all kinds of trees and the parser's recall by label."""
    curve, evaluations, unigram = run.progress.curve, run.progress.evaluations, run.data.unigram_losses
    panels = {"language model, nats per token": {"lm_loss": "training", "validation_lm_loss": "validation"},
              "tree loss, nats per token": {"tree_loss": "training", "validation_tree_loss": "validation"}}  # fmt: skip
    if any("f1" in figures for figures in evaluations):
        panels["sentence F1, treebank"] = {f"f1{suffix}": whose for suffix, whose in TREES.items()}
        panels["recall, parser"] = {f"{label}_recall": label for label in LABELS}
    figure = Figure(figsize=(10, 2 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels) // 2, 2)
    for axis, (title, lines) in zip(axes.flatten(), panels.items(), strict=True):
        for name, label in lines.items():
            points = [point for point in curve + evaluations if name in point]
            if points:
                tokens = [point["tokens"] / 1e6 for point in points]
                axis.plot(tokens, [point[name] for point in points], label=label, marker="o", markersize=2)
        if title.startswith("language") and unigram:
            axis.axhline(unigram["unigram_validation_loss"], color="gray", linestyle="--", label="unigrams, validation")
        axis.set(title=title, xlabel="million tokens")
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend()
    figure.savefig(file, dpi=120)


def model_card(run, figures: dict) -> str:
    """The model card, as Markdown with the Hub's header; the figures are those of the evaluation of its weights."""
    output, progress, sizes, unigram = run.options.output, run.progress, run.data.sizes, run.data.unigram_losses
    place = output.hub_model_id if output.push_to_hub else str(run.folder / "model")
    data = ModelCardData(library_name="transformers", tags=["fast-r2d2", "grammar-induction"], license=output.license,
                         pipeline_tag="feature-extraction")  # fmt: skip
    best_metric, accelerator = figures.get("metric_for_best_model"), run.accelerator
    machine = f"{accelerator.num_processes} x {accelerator.device.type}, {os.cpu_count()} cores, {platform.machine()}"
    counted = ": {sentences:,} sentences, {tokens:,} tokens".format(**sizes) if sizes else ", streamed"
    rows = [
        ("corpus", ", ".join(run.options.data.corpus) + counted),
        *((f"`{found.option}`, by the text", f"{found.value}: {found.reason}") for found in run.options.decisions),
        ("trained on", f"{progress.tokens:,} tokens in {progress.step:,} steps"),
        ("afterwards", ", ".join(program for program, *_ in run.options.afterwards)),
        ("afterwards begun with weights of" if run.options.afterwards else "weights of",
         f"step {figures['step']:,}, best by {best_metric}" if best_metric else None),
        ("time", f"{progress.seconds / 60:,.0f} minutes in steps; {machine}"),
        ("sentences left out because they are too long", f"{progress.left_out + sizes.get('too_long', 0):,}"),
        ("steps skipped because losses or gradients were not finite", f"{progress.skipped:,}"),
        ("validation LM loss, nats per token", _figure(figures, "validation_lm_loss")),
        ("unigram loss on the same text", _figure(unigram, "unigram_validation_loss")),
        ("unigram entropy of the training text", _figure(unigram, "unigram_entropy")),
        ("validation tree loss, nats per token", _figure(figures, "validation_tree_loss")),
        (f"sentence F1 of the parser's trees on {describe_treebank(run.options.data)}",
         _figure(figures, "f1", "{:.1f}")),
        ("sentence F1 of the encoder's trees by counts", _figure(figures, "f1_counts", "{:.1f}")),
        ("share of spans that end with the last word (chain: 1)", _figure(figures, "right_share", "{:.2f}")),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {run.folder.name}\n\n"
        "A [Fast-R2D2](https://arxiv.org/abs/2203.00281) model: a parser and a recursive encoder, pretrained together "
        f"on raw text.\n\n| | |\n| --- | --- |\n{table}\n\n![curves](training.png)\n\nMade with\n\n    "
        f"{describe_command(accelerator)}\n\n"
        f"{USAGE.format(place=place)}\nAll settings:\n\n```json\n"
        f"{json.dumps(run.options.as_flat_dict(), indent=1)}\n```\n"
    )


def describe_command(accelerator: Accelerator) -> str:
    """The command that started the run. A launcher's own options are not known, only its processes and precision."""
    processes = accelerator.num_processes
    launcher = f"torchrun --nproc_per_node {processes}" if processes > 1 else "python"
    is_given = any(argument.split("=")[0] == "--mixed_precision" for argument in sys.argv)
    precision = [] if is_given else ["--mixed_precision", accelerator.mixed_precision]
    return f"{launcher} {shlex.join([*sys.argv, *precision])}"


def describe_treebank(data: DataOptions) -> str:
    split = f", {data.treebank_split}" if data.treebank_split else ""
    half = f", lines of {data.treebank_half} number" if data.treebank_half else ""
    return f"{data.treebank and Path(data.treebank).name}{split}{half}"


def _figure(figures: dict[str, float], name: str, form: str = "{:.3f}") -> str | None:
    return form.format(figures[name]) if name in figures else None
