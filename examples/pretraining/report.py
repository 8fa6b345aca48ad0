"""What is left when a run has ended: the curves as a picture, and a model card with the figures."""

import json
from pathlib import Path

from huggingface_hub import ModelCardData

from pretraining.options import DataOptions, Options
from pretraining.progress import Progress

USAGE = """\
```python
from transformers import AutoModel

model = AutoModel.from_pretrained("{place}", trust_remote_code=True)
print(model.encode(["A cat sleeps", "It rained all day"]).shape)  # a vector for each sentence
for words, span, vector in model.constituents("The old man bought a new car"):
    print(span, " ".join(words))
```
"""


def plot(progress: Progress, unigram: dict[str, float], file: Path) -> None:
    """Loss curves and, where there was a treebank, F1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    has_f1 = any("f1" in figures for figures in progress.evaluations)
    figure, axes = pyplot.subplots(1, 3 if has_f1 else 2, figsize=(15 if has_f1 else 10, 4), layout="constrained")
    panels = (("lm_loss", "language model, nats a token"), ("tree_loss", "tree KL, nats a token"))
    for axis, (name, title) in zip(axes, panels, strict=False):
        draw_line(axis, progress.curve, name, "training", color="tab:blue", alpha=0.7)
        draw_line(axis, progress.evaluations, f"validation_{name}", "validation", color="tab:orange", marker="o")
        axis.set_title(title)
    if "unigram_validation_loss" in unigram:
        axes[0].axhline(unigram["unigram_validation_loss"], color="gray", linestyle="--", label="unigrams, validation")
    if has_f1:
        draw_line(axes[2], progress.evaluations, "f1", "parser", color="tab:green", marker="o")
        axes[2].set_title("sentence F1, treebank")
    for axis in axes:
        axis.set_xlabel("million tokens")
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def draw_line(axis, points: list[dict], name: str, label: str, **style) -> None:
    points = [point for point in points if name in point]
    if points:
        axis.plot([point["tokens"] / 1e6 for point in points], [point[name] for point in points], label=label,
                  markersize=3, **style)  # fmt: skip


def model_card(
    options: Options, progress: Progress, last: dict, unigram: dict[str, float], command: str, machine: str
) -> str:
    """Markdown with the hub's header; the figures are the run's own, ``last`` those of the weights that it left."""
    output = options.output
    place = output.push_to_hub or str(Path(output.output) / "model")
    data = ModelCardData(library_name="transformers", tags=["fast-r2d2", "grammar-induction"], license=output.license,
                         pipeline_tag="feature-extraction")  # fmt: skip
    rows = [
        ("corpus", describe_corpus(options.data.corpus, progress.corpus)),
        ("trained on", f"{progress.tokens:,} tokens in {progress.step:,} steps"),
        ("weights of", f"step {last['step']:,}, best by {last['best_by']}" if "best_by" in last else None),
        ("time", f"{progress.seconds / 60:,.0f} minutes in steps; {machine}"),
        ("too long sentences, left out", f"{progress.left_out + progress.corpus.get('too_long', 0):,}"),
        ("steps left out for losses that were not finite", f"{progress.skipped:,}"),
        ("validation LM loss, nats a token", _figure(last, "validation_lm_loss")),
        ("unigrams on the same text", _figure(unigram, "unigram_validation_loss")),
        ("unigram entropy of the training text", _figure(unigram, "unigram_entropy")),
        ("validation tree KL, nats a token", _figure(last, "validation_tree_loss")),
        (f"sentence F1 of the parser's trees on {describe_treebank(options.data)}", _figure(last, "f1", "{:.1f}")),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {Path(options.output.output).name}\n\n"
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
