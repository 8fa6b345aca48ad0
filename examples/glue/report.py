"""Reports of fine-tuning: scores by epoch, a table, a JSON file and a model card."""

import json
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData
from transformers import Trainer

from glue.tasks import Task
from glue.training import SCORED_ENCODINGS, FineTuningArguments, GlueOptions
from modeling_fast_r2d2.checkpoints.folders import OUR_TYPE
from modeling_fast_r2d2.grammar_induction.comparison import as_markdown

USAGE = """\
```python
from transformers import pipeline

classify = pipeline("text-classification", model="{place}", trust_remote_code=True)
print(classify({example}))
```
"""


def collect_results(task: Task, trainer: Trainer, options: GlueOptions, arguments: FineTuningArguments) -> dict:
    """Scores of all epochs, those of the epoch whose weights are kept, times and settings."""
    epochs: dict[float, dict] = {}
    for entry in trainer.state.log_history:
        figures = {key.removeprefix("eval_"): entry[key] for key in entry if key.startswith("eval_") or key == "loss"}
        epochs.setdefault(entry["epoch"], {"epoch": entry["epoch"]}).update(figures)
    by_epoch = [epoch for epoch in epochs.values() if len(epoch) > 2]
    # The score that chose the weights; without a choice they are those of the last epoch.
    chooser = arguments.metric_for_best_model.removeprefix("eval_") if arguments.load_best_model_at_end else None
    trained = [epoch for epoch in by_epoch if epoch["epoch"] > 0]
    kept = max(trained, key=lambda epoch: epoch[chooser]) if chooser else trained[-1]
    summary = next(entry for entry in reversed(trainer.state.log_history) if "train_runtime" in entry)
    return {
        "task": task.name,
        "metric": task.metric,
        "chosen_by": chooser,
        "best": kept,
        "epochs": by_epoch,
        "train_rows": len(trainer.train_dataset),
        "train_seconds": summary["train_runtime"],
        "model": options.model,
        "model_type": trainer.model.config.model_type,
        "loss_weights": {
            loss: getattr(trainer.model.config, f"{loss}_loss_weight")
            for loss in ("forced", "chart", "lm", "tree")
            if trainer.model.config.model_type == OUR_TYPE
        },
        "settings": {
            "learning_rate": arguments.learning_rate,
            "parser_learning_rate": arguments.parser_learning_rate,
            "batch_size": arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps,
            "num_train_epochs": arguments.num_train_epochs,
            "max_length": options.max_length,
            "seed": arguments.seed,
        },
    }


def scores(result: dict) -> list[tuple[str, str, float]]:
    """Evaluation set, metric and value for each score of the best epoch."""
    names = ("accuracy", "matthews_correlation", "f1")
    return [
        (key.removesuffix(f"_{name}"), name, value)
        for key, value in result["best"].items() for name in names if key.endswith(f"_{name}")
    ]  # fmt: skip


def table(all_results: list[dict]) -> str:
    """A Markdown table of scores times 100, with a line per task, evaluation set and encoding (Fast-R2D2's alone)."""
    rows = [["task", "on", "encoding", "accuracy", "MCC", "F1", "epoch", "minutes"]]
    for result in all_results:
        places = dict.fromkeys(place for place, _, _ in scores(result))
        for place in places:
            values = {name: f"{100 * value:.1f}" for where, name, value in scores(result) if where == place}
            stem, _, encoding = place.rpartition("_")
            if encoding not in SCORED_ENCODINGS:
                stem, encoding = place, ""
            rows.append([
                result["task"], stem, encoding, values["accuracy"], values.get("matthews_correlation", ""),
                values.get("f1", ""), f"{result['best']['epoch']:g}", f"{result['train_seconds'] / 60:.1f}",
            ])  # fmt: skip
    return as_markdown(rows)


def model_card(task: Task, result: dict, place: str, license: str | None = None) -> str:
    """The model card, as Markdown with the Hub's header: data, scores, and code that runs as it is, for a model in a
    folder or on the Hub."""
    name = f"{Path(result['model']).name}-{task.hub_name}"
    data = ModelCardData(
        library_name="transformers", license=license, datasets=["nyu-mll/glue"], model_name=name,
        pipeline_tag="text-classification", tags=[result["model_type"].replace("_", "-")],
        eval_results=[
            EvalResult(
                task_type="text-classification", dataset_type="nyu-mll/glue", dataset_name=f"GLUE {task.name}",
                dataset_config=task.hub_name, dataset_split=where, metric_type=metric, metric_value=round(value, 4),
            )
            for where, metric, value in scores(result)
        ],
    )  # fmt: skip
    example = '{"text": "A man sleeps.", "text_pair": "Nobody is awake."}' if task.is_pair else '"A gripping film."'
    chosen = (
        f"The epoch was chosen by `{result['chosen_by']}`, so these scores are slightly too high."
        if result["chosen_by"] else "The weights are those of the last epoch."
    )  # fmt: skip
    is_ours = result["model_type"] == OUR_TYPE
    weights = ", ".join(f"{loss} {weight:g}" for loss, weight in result["loss_weights"].items())
    kind = "[Fast-R2D2](https://arxiv.org/abs/2203.00281)" if is_ours else result["model_type"]
    encodings = " `forced` is the parser's tree (Fast-R2D2* in the paper), `chart` the pruned chart." * is_ours
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {name}\n\nA {kind} model, fine-tuned "
        f"on {task.name} of [GLUE](https://gluebenchmark.com): {result['train_rows']:,} rows, "
        f"{result['settings']['num_train_epochs']:g} epochs, {result['train_seconds'] / 60:.0f} minutes.{encodings}"
        f"\n\n{table([result])}\n\n{chosen}{f' Loss weights: {weights}.' * is_ours}\n\n"
        f"{USAGE.format(place=place, example=example)}\n"
        f"Classes: {', '.join(task.classes)}.\n\n"
        f"Settings:\n\n```json\n{json.dumps(result['settings'], indent=1)}\n```\n"
    )
