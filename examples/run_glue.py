"""Fine-tune on GLUE with `transformers.Trainer` (paper, Sections 3.3 and 4.2); both encodings are scored every epoch.

    python examples/run_glue.py --tasks CoLA --output_dir runs/glue                     # from the Hub, nyu-mll/glue
    python examples/run_glue.py --tasks SST-2 RTE --data path/to/glue --learning_rate 1e-3

    TSV files or Hub ── text, text_pair, label ── ids, types ── Trainer ──► scores ──► table, JSON, model card
           tasks.py                                 training.py             tasks.py     report.py

The options of `TrainingArguments` are options here, except ``metric_for_best_model``: the task decides the metric that
chooses the best epoch. Model and scores are written to ``<output_dir>/<task>``.
"""

import copy
import json
import sys
from pathlib import Path

from huggingface_hub import HfApi
from transformers import HfArgumentParser

from glue.report import collect_results, model_card, table
from glue.tasks import Task, find_task, read_task
from glue.training import FineTuningArguments, GlueOptions, make_trainer
from modeling_fast_r2d2.text_files import hold_folder, read_record, write_text
from pretraining.checkpoints import STOPPED, check_folder, last_whole_checkpoint


def main(arguments: list[str] | None = None) -> None:
    parser = HfArgumentParser((GlueOptions, FineTuningArguments), description=__doc__.split("\n")[0])
    options, settings = parser.parse_args_into_dataclasses(arguments)
    tasks = [find_task(name) for name in options.tasks]  # a wrong name shows before the first task trains
    if len(tasks) > 1 and settings.push_to_hub:
        raise ValueError("a repository holds one model; give one task at a time with --push_to_hub")
    if len(tasks) > 1 and settings.resume_from_checkpoint not in (None, "True", "true"):
        raise ValueError(
            "a checkpoint belongs to one task; give one task, or --resume_from_checkpoint true for the newest "
            "checkpoint of each"
        )
    with hold_folder(Path(settings.output_dir)):
        for task in tasks:
            check_folder(Path(settings.output_dir) / task.name, settings.resume_from_checkpoint, may_be_over=True)
        all_results = [run(task, options, copy.copy(settings)) for task in tasks]
    if settings.should_save:
        print(f"\n{table(all_results)}\n\nresults of all epochs: {settings.output_dir}/<task>/results.json")


def run(task: Task, options: GlueOptions, settings: FineTuningArguments) -> dict:
    """Train and evaluate one task; write its model and its results to a folder of its own."""
    settings.output_dir = str(Path(settings.output_dir) / task.name)
    if settings.resume_from_checkpoint in ("True", "true"):
        settings.resume_from_checkpoint = last_whole_checkpoint(Path(settings.output_dir))
    with settings.main_process_first(desc="reading the task"):
        data = read_task(task, options.data)
    trainer = make_trainer(task, data, options, settings)
    trainer.train(resume_from_checkpoint=settings.resume_from_checkpoint)
    if settings.should_save:
        folder = Path(settings.output_dir) / "model"
        trainer.model.save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)
    result = collect_results(task, trainer, options, settings)
    if settings.should_save:
        file = Path(settings.output_dir) / "results.json"
        newest = last_whole_checkpoint(Path(settings.output_dir))
        if newest and settings.resume_from_checkpoint == newest and file.is_file():  # the run was over
            result["train_seconds"] += read_record(file)["train_seconds"]
        write_text(file, json.dumps(result, indent=1) + "\n")
        place = trainer.hub_model_id if settings.push_to_hub else str(folder)
        (folder / "README.md").write_text(model_card(task, result, place, options.license), encoding="utf-8")
        if settings.push_to_hub:
            HfApi(token=settings.hub_token).upload_folder(repo_id=place, folder_path=folder)
    return result


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(STOPPED)
