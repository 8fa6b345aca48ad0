"""The report of a run that has ended: its curves as a picture, and a model card with its figures."""

import json
from pathlib import Path

from huggingface_hub import ModelCardData

from pretraining.display import TREES
from pretraining.options import DataOptions, Options
from pretraining.progress import Progress
from pretraining.treebank import LABELS

USAGE = """\
```python
from transformers import AutoModel

model = AutoModel.from_pretrained("{place}", trust_remote_code=True)
print(model.encode(["A cat sleeps", "It rained all day"]).shape)  # one vector per sentence
for words, span, vector in model.constituents("The old man bought a new car"):
    print(span, " ".join(words))
```
"""


def plot(progress: Progress, unigram: dict[str, float], file: Path) -> None:
    """Draw the loss curves and, if there was a treebank, the figures of trees."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    has_f1 = any("f1" in figures for figures in progress.evaluations)
    rows = 2 if has_f1 else 1
    figure, axes = pyplot.subplots(rows, rows + 1, figsize=(5 * (rows + 1), 4 * rows), layout="constrained")
    axes = axes.flatten()
    panels = (("lm_loss", "language model, nats per token"), ("tree_loss", "tree KL, nats per token"))
    for axis, (name, title) in zip(axes, panels, strict=False):
        draw_line(axis, progress.curve, name, "training", color="tab:blue", alpha=0.7)
        draw_line(axis, progress.evaluations, f"validation_{name}", "validation", color="tab:orange", marker="o")
        axis.set_title(title)
    if "unigram_validation_loss" in unigram:
        axes[0].axhline(unigram["unigram_validation_loss"], color="gray", linestyle="--", label="unigrams, validation")
    if has_f1:
        draw_tree_figures(axes[2:], progress.evaluations)
    for axis in axes:
        axis.set_xlabel("million tokens")
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def draw_tree_figures(axes, evaluations: list[dict]) -> None:
    """Draw F1 of all kinds of trees, recall by label of parser and encoder, and how far their trees are chains."""
    for (suffix, whose), color in zip(TREES.items(), ("tab:green", "tab:orange", "tab:gray"), strict=True):
        draw_line(axes[0], evaluations, f"f1{suffix}", whose, color=color, marker="o")
        for share, style in (("right", "-"), ("left", "--")):
            label = None if suffix else f"{share} share"  # one legend for all colors would hide the curves
            draw_line(axes[3], evaluations, f"{share}_share{suffix}", label, color=color, linestyle=style, marker="o")
    for axis, (suffix, whose) in zip(axes[1:], list(TREES.items())[:2], strict=False):
        for label in LABELS:
            draw_line(axis, evaluations, f"{label}_recall{suffix}", label, marker="o")
        axis.set_title(f"recall, {whose}")
    axes[0].set_title("sentence F1, treebank")
    axes[3].set_title("share of spans at the sentence's ends, colors as for F1")


def draw_line(axis, points: list[dict], name: str, label: str | None, **style) -> None:
    points = [point for point in points if name in point]
    if points:
        axis.plot([point["tokens"] / 1e6 for point in points], [point[name] for point in points], label=label,
                  markersize=3, **style)  # fmt: skip


def model_card(
    options: Options, progress: Progress, figures: dict, unigram: dict[str, float], command: str, machine: str
) -> str:
    """The model card, as Markdown with the Hub's header.

    Args:
        figures: of the evaluation of the model's weights.
        unigram: the losses of unigrams.
        command, machine: how and where the run was started, as text.
    """
    output = options.output
    place = output.hub_model_id if output.push_to_hub else str(Path(output.output_dir) / "model")
    data = ModelCardData(library_name="transformers", tags=["fast-r2d2", "grammar-induction"], license=output.license,
                         pipeline_tag="feature-extraction")  # fmt: skip
    best_metric = figures.get("metric_for_best_model")
    rows = [
        ("corpus", describe_corpus(options.data.corpus, progress.corpus)),
        ("trained on", f"{progress.tokens:,} tokens in {progress.step:,} steps"),
        ("weights of", f"step {figures['step']:,}, best by {best_metric}" if best_metric else None),
        ("time", f"{progress.seconds / 60:,.0f} minutes in steps; {machine}"),
        ("sentences left out because they are too long", f"{progress.left_out + progress.corpus.get('too_long', 0):,}"),
        ("steps skipped because losses or gradients were not finite", f"{progress.skipped:,}"),
        ("validation LM loss, nats per token", _figure(figures, "validation_lm_loss")),
        ("unigram loss on the same text", _figure(unigram, "unigram_validation_loss")),
        ("unigram entropy of the training text", _figure(unigram, "unigram_entropy")),
        ("validation tree KL, nats per token", _figure(figures, "validation_tree_loss")),
        (f"sentence F1 of the parser's trees on {describe_treebank(options.data)}", _figure(figures, "f1", "{:.1f}")),
        ("sentence F1 of the encoder's trees by counts", _figure(figures, "f1_counts", "{:.1f}")),
        ("share of spans that end with the last word (chain: 1)", _figure(figures, "right_share", "{:.2f}")),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {Path(options.output.output_dir).name}\n\n"
        "A [Fast-R2D2](https://arxiv.org/abs/2203.00281) model: a parser and a recursive encoder, pretrained together "
        f"on raw text.\n\n| | |\n| --- | --- |\n{table}\n\n![curves](training.png)\n\nMade with\n\n    {command}\n\n"
        f"{USAGE.format(place=place)}\nAll settings:\n\n```json\n"
        f"{json.dumps(options.as_flat_dict(), indent=1)}\n```\n"
    )


def describe_corpus(sources: list[str], counts: dict[str, int]) -> str:
    sizes = ": {sentences:,} sentences, {tokens:,} tokens".format(**counts) if counts else ", streamed"
    return ", ".join(sources) + sizes


def describe_treebank(data: DataOptions) -> str:
    split = f", {data.treebank_split}" if data.treebank_split else ""
    half = f", lines of {data.treebank_half} number" if data.treebank_half else ""
    return f"{data.treebank and Path(data.treebank).name}{split}{half}"


def _figure(figures: dict[str, float], name: str, form: str = "{:.3f}") -> str | None:
    return form.format(figures[name]) if name in figures else None
