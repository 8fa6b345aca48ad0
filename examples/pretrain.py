"""Pretrain parser and encoder together on raw text (paper, Section 4), on one CPU or on many GPUs.

    python examples/pretrain.py --corpus text.txt.gz --output_dir runs/mine --size tiny --use_cpu
    accelerate launch --config_file examples/accelerate/8_gpus.yaml examples/pretrain.py --output_dir runs/base \\
        --corpus Salesforce/wikitext --corpus_config wikitext-103-raw-v1 --sentence_rule wikitext --clean_wikitext

    texts ── lines ── sentences ── ids, word spans (cached) ── plan of the epoch ── steps ──► losses, update
      │                                                                                          │
      └─ texts.py        corpus.py                batches.py, streaming.py            step.py, loop.py, state.py

    python examples/pretrain.py --recipe examples/recipes/english.yaml --output_dir runs/english

A recipe is a file of options and, where settings change while the run goes, of stages; the command line has the last
word. The same command goes on from the newest checkpoint of its ``--output_dir``, and ends with a model in
``<output>/model``.
"""

import argparse
import os
import platform
import shlex
import shutil
import sys
from dataclasses import fields
from pathlib import Path

from huggingface_hub import HfApi
from transformers import HfArgumentParser
from transformers.utils.logging import disable_progress_bar

from pretraining.assembly import compare_with_unigrams, make_accelerator, make_run, read_data
from pretraining.checkpoints import MANIFEST
from pretraining.loop import Run, train
from pretraining.options import DataOptions, ModelOptions, Options, OutputOptions, TrainingOptions
from pretraining.recipe import read_recipe
from pretraining.report import model_card, plot
from pretraining.state import resume

GROUPS = (DataOptions, ModelOptions, TrainingOptions, OutputOptions)


def parse_options(arguments: list[str] | None = None) -> Options:
    """Options of the recipe, if there is one, and of the command line, which has the last word."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = HfArgumentParser(GROUPS, description=__doc__.split("\n")[0])
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--recipe")
    path = first.parse_known_args(arguments)[0].recipe
    if path is None:
        return Options(*parser.parse_args_into_dataclasses(arguments))
    recipe = read_recipe(path, {option.name for group in GROUPS for option in fields(group)})
    return Options(*parser.parse_args_into_dataclasses([*recipe.arguments(), *arguments]), stages=recipe.stages)


def main(arguments: list[str] | None = None) -> None:
    disable_progress_bar()  # transformers' own, of loading and saving
    options = parse_options(arguments)
    accelerator = make_accelerator(options)
    data = read_data(options, accelerator)
    run = make_run(options, accelerator, data)
    unigram = compare_with_unigrams(data)
    print_overview(run, data, unigram)
    if checkpoint := run.checkpoints.newest_good():
        resume(run, checkpoint)
        run.display.say(f"going on from {checkpoint}")
    if options.output.report_to != "none":
        accelerator.init_trackers("logs", config={name: str(value) for name, value in options.as_flat_dict().items()})
    run.display.start(run.progress.step)
    is_over = train(run)
    run.display.close()
    if is_over and accelerator.is_main_process:
        run.display.say(f"the model is in {write_model(run, unigram)}")
    if not is_over:
        run.display.say(f"stopped and saved at step {run.progress.step:,}; the same command goes on")
    accelerator.end_training()


def print_overview(run: Run, data, unigram: dict[str, float]) -> None:
    model = run.accelerator.unwrap_model(run.model)
    run.display.say(
        f"{model.num_parameters():,} parameters on {run.accelerator.num_processes} x {run.accelerator.device}"
    )
    if data.corpus:
        run.display.say("{sentences:,} sentences, {tokens:,} tokens; {too_long:,} too long and left out".format(
            **run.progress.corpus))  # fmt: skip
    for name, value in unigram.items():
        run.display.say(f"{name.replace('_', ' ')}: {value:.3f} nats a token")


def write_model(run: Run, unigram: dict[str, float]) -> Path:
    """Write the model folder: weights, tokenizer, curves and card; whole or not at all."""
    final = Path(run.options.output.output_dir) / "model"
    aside = final.with_name(".model.part")
    shutil.rmtree(aside, ignore_errors=True)
    figures = run.best.figures
    if figures is None:
        run.accelerator.unwrap_model(run.model).save_pretrained(aside)
        run.tokenizer.save_pretrained(aside)
        figures = run.progress.evaluations[-1]
    else:
        shutil.copytree(run.best.folder, aside, ignore=shutil.ignore_patterns(MANIFEST, "evaluation.json"))
    plot(run.progress, unigram, aside / "training.png")
    card = model_card(run.options, run.progress, figures, unigram, command(run), machine(run))
    (aside / "README.md").write_text(card, encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    os.rename(aside, final)
    output = run.options.output
    if output.push_to_hub:
        HfApi().create_repo(output.hub_model_id, exist_ok=True)
        run.display.say(f"uploaded: {HfApi().upload_folder(repo_id=output.hub_model_id, folder_path=final)}")
    return final


def command(run: Run) -> str:
    """How the run was started, as far as it can be told: launchers leave processes and precision."""
    processes, precision = run.accelerator.num_processes, run.accelerator.mixed_precision
    launcher = f"torchrun --nproc_per_node {processes}" if processes > 1 else "python"
    given = [] if "--mixed_precision" in sys.argv else ["--mixed_precision", precision]
    return f"{launcher} {shlex.join([*sys.argv, *given])}"


def machine(run: Run) -> str:
    return (
        f"{run.accelerator.num_processes} x {run.accelerator.device.type}, {os.cpu_count()} cores, {platform.machine()}"
    )


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
