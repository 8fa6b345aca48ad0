"""Pretrain parser and encoder together on raw text (paper, Section 4), on one CPU or on many GPUs.

    python examples/pretrain.py --corpus text.txt.gz --output_dir runs/mine --size tiny --use_cpu
    accelerate launch --config_file examples/accelerate/8_gpus.yaml examples/pretrain.py --output_dir runs/base \\
        --corpus Salesforce/wikitext --corpus_config wikitext-103-raw-v1 --sentence_rule wikitext --clean_wikitext

    texts ── lines ── sentences ── ids, word spans (cached) ── plan of the epoch ── steps ──► losses, update
    └─ data.py, corpus.py ──────────────────────────────┘      └─ batches.py ────┘     loop.py ── losses.py

    python examples/pretrain.py --recipe english.yaml --output_dir runs/english

A recipe is a file of options. It may also have stages, with settings that change during the run, and what comes after
them: distillations (``distill.py``) and further recipes. Options on the command line override the recipe's, and those
of ``--config_overrides`` field by field. A run ends with a model in ``<output_dir>/model``; a run that was stopped
resumes from its newest checkpoint when the same command is given again.
"""

import argparse
import contextlib
import gzip
import os
import shlex
import shutil
import sys
import warnings
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs
from datasets import disable_progress_bars
from huggingface_hub import HfApi
from transformers import HfArgumentParser
from transformers.utils.logging import disable_progress_bar

import distill
from modeling_fast_r2d2 import FastR2D2ForPreTraining
from modeling_fast_r2d2.checkpoints import load_model
from modeling_fast_r2d2.parsing.tree_parser import TreeParser
from modeling_fast_r2d2.text_files import hold_folder
from pretraining.afterwards import (
    AFTERWARDS,
    GIVEN,
    SENTENCES,
    UNFINISHED,
    command_afterwards,
    keep_state_of_accelerate,
)
from pretraining.checkpoints import MODEL, OF_THE_RUN, find_damage, put_in_place, resume, save_model
from pretraining.corpus import sentences_of
from pretraining.data import read_data, read_held_out
from pretraining.decisions import decide, sample
from pretraining.evaluation import Interrupted, evaluate
from pretraining.loop import train
from pretraining.losses import check_stages, leave_parameters_out
from pretraining.models import final_config, override, read_as_given_model
from pretraining.options import DataOptions, ModelOptions, Options, OutputOptions, TrainingOptions
from pretraining.recipe import Recipe, read_recipe
from pretraining.report import MEANINGS, model_card, plot
from pretraining.run import Run

GROUPS = (DataOptions, ModelOptions, TrainingOptions, OutputOptions)
LINES_AFTERWARDS = 100_000  # from all over the corpus; others each time


def main(arguments: list[str] | None = None) -> None:
    disable_progress_bar()  # transformers' own bars, for loading and saving
    if not sys.stderr.isatty():
        disable_progress_bars()  # those of `datasets`; in a file, each refresh would be a line
    options = parse_options(arguments)
    say_what_has_no_effect(sys.argv[1:] if arguments is None else arguments, options)
    check_afterwards(options)
    pretrain_in_folder(options).end_training()


def pretrain_in_folder(options: Options) -> Accelerator:
    check_stages(options.stages)
    accelerator = make_accelerator(options)
    with hold_folder(Path(options.output.output_dir)):
        pretrain(options, accelerator)
    return accelerator


def parse_options(arguments: list[str] | None = None) -> Options:
    """Options of the command line and of the recipe, if one is given; the command line overrides the recipe."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = HfArgumentParser(GROUPS, description=__doc__.split("\n")[0], allow_abbrev=False)
    recipe_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    recipe_parser.add_argument("--recipe")
    recipe_parser.add_argument("--config_overrides", "--config-overrides")
    of_user = recipe_parser.parse_known_args(arguments)[0]
    recipe, of_both = Recipe(), []
    if of_user.recipe is not None:
        own, of_distillation = ({option.name for group in groups for option in fields(group)}
                                for groups in (GROUPS, distill.GROUPS))  # fmt: skip
        known = {"distill": of_distillation - {*GIVEN["distill"]}, "pretrain": own - {*GIVEN["pretrain"]}}
        recipe = read_recipe(of_user.recipe, own, known)
        before = recipe_parser.parse_known_args(recipe.options)[0].config_overrides
        joined = [before, of_user.config_overrides]  # of a field in both, the latter value counts
        of_both = ["--config_overrides", ",".join(joined)] if all(joined) else []
    given = parser.parse_args_into_dataclasses([*recipe.options, *arguments, *of_both])
    return Options(*given, stages=recipe.stages, afterwards=recipe.afterwards)


def check_afterwards(options: Options) -> None:
    """Raise ValueError if the recipe's programs would refuse their arguments at once."""
    for number, (program, *of_recipe) in enumerate(options.afterwards, start=1):
        command = command_afterwards(options, number)
        if program == "distill":
            distill.check_arguments(command)
            continue
        further = parse_options(command)
        say_what_has_no_effect(of_recipe, further)
        check_stages(further.stages)
        override(final_config(options.model), further.model.config_overrides)
        read_held_out(further.data)
        if further.afterwards:
            raise ValueError("a recipe that comes afterwards must not have `afterwards` of its own; list them in one")


def say_what_has_no_effect(arguments: list[str], options: Options) -> None:
    """Warn of options of the command line in whose place something else decides."""
    idle, stages = {}, options.stages
    if options.model.model or options.data.tokenizer:
        idle |= dict.fromkeys(("vocab_size", "word_rule"), "the given tokenizer decides")
    if options.model.model:
        idle["size"] = "the given model decides"
    if stages:
        rates = ("learning_rate", "parser_learning_rate")
        in_stages = [name for name in rates if all(name in stage.values for stage in stages)]
        more = ["num_train_epochs", *(["warmup_steps"] if len(in_stages) == 2 else [])]
        idle |= dict.fromkeys([*in_stages, *more], "the stages of the recipe decide; change them there")
    elif not options.afterwards:
        idle["length"] = "it is for the stages of a recipe"
    for argument in arguments:
        name = argument.removeprefix("--").split("=")[0].replace("-", "_")
        if argument.startswith("--") and name in idle:
            warnings.warn(f"{argument} has no effect: {idle[name]}", stacklevel=2)


def make_accelerator(options: Options) -> Accelerator:
    training, output = options.training, options.output
    if training.mixed_precision == "fp16" and (training.use_cpu or not torch.accelerator.is_available()):
        raise ValueError("--mixed_precision fp16 needs a GPU; on a CPU give bf16 or no")
    # `accelerate launch --cpu` sets the address at which several processes would meet, and starts one.
    if {"ACCELERATE_USE_CPU", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ:
        warnings.warn(
            "accelerate launch has started one process, not several; on a CPU torchrun --nproc_per_node starts them",
            stacklevel=2,
        )
    unused = leave_parameters_out(options.stages)
    return Accelerator(
        mixed_precision=training.mixed_precision, cpu=training.use_cpu,
        log_with=None if output.report_to == "none" else output.report_to, project_dir=output.output_dir,
        kwargs_handlers=[
            DistributedDataParallelKwargs(gradient_as_bucket_view=True, find_unused_parameters=unused),
            InitProcessGroupKwargs(timeout=timedelta(days=1)),  # the others wait while the main process reads
        ],
    )  # fmt: skip


def pretrain(options: Options, accelerator: Accelerator) -> None:
    """Begin a run or resume it, to its end or until a signal."""
    with accelerator.main_process_first():
        held_out = read_held_out(options.data)
        options, warnings = decide(read_as_given_model(options))
    if accelerator.is_main_process:
        for line in [*options.decisions, *(f"warning: {warning}" for warning in warnings), "reading the corpus"]:
            print(line, flush=True)  # a corpus of ten million words takes minutes
    data = read_data(options, held_out, accelerator)
    run = Run(options, accelerator, data)
    print_overview(run)
    if checkpoint := run.checkpoints.newest_good():
        resume(run, checkpoint)
        run.display.say(f"resuming from {checkpoint}")
    if options.output.report_to != "none":
        accelerator.init_trackers("logs", config={name: str(value) for name, value in options.as_flat_dict().items()})
    if run.is_over and (run.folder / MODEL).exists() and not options.output.push_to_hub:
        run.display.say(f"the run is over already; its model in {run.folder / MODEL} stays as it is")
        return
    run.display.start(run.progress.step)
    is_over = train(run)
    run.display.bar.close()
    if is_over:
        with contextlib.suppress(Interrupted):  # by a run that comes afterwards, which has said so
            run.display.say(f"the model is in {finish(run)}")
    else:
        run.display.say(f"stopped and saved at step {run.progress.step:,}; the same command resumes the run")


def print_overview(run: Run) -> None:
    """Print the sizes of model and corpus, the losses of unigrams, and what the figures of the progress are."""
    accelerator, sizes = run.accelerator, run.data.sizes
    run.display.say(f"{run.model.num_parameters():,} parameters on {accelerator.num_processes} x {accelerator.device}")
    if sizes:
        run.display.say("{sentences:,} sentences, {tokens:,} tokens; {too_long:,} are too long and left out".format(
            **sizes))  # fmt: skip
    for name, value in run.data.unigram_losses.items():
        run.display.say(f"{name.replace('_', ' ')}: {value:.3f} nats per token")
    run.display.say(MEANINGS)


def finish(run: Run) -> Path:
    """Write the model's folder, whole or not at all: weights, tokenizer, curves and model card. All processes call
    this, since they share what comes afterwards."""
    final, unfinished, is_main_process = run.folder / MODEL, run.folder / UNFINISHED, run.accelerator.is_main_process
    figures = write_weights(run, unfinished) if is_main_process else {}
    if run.options.afterwards:
        figures |= (found := go_on(run))
        if found:
            run.display.show_evaluation(found | {"step": run.progress.step})
    if is_main_process:
        if run.options.afterwards:
            shutil.rmtree(unfinished)
            shutil.copytree(run.folder / AFTERWARDS.format(len(run.options.afterwards)) / MODEL, unfinished)
        plot(run, unfinished / "training.png")
        (unfinished / "README.md").write_text(model_card(run, figures), encoding="utf-8")
        put_in_place(unfinished, final)
        if run.options.output.push_to_hub:
            push(run, final)
    return final


def write_weights(run: Run, folder: Path) -> dict:
    """Write the last weights, or the best ones, with the tokenizer; the figures are those of their evaluation."""
    best, figures = run.best_step, run.progress.evaluations[-1]
    shutil.rmtree(folder, ignore_errors=True)
    if best is None or find_damage(run.checkpoints.of(best)):
        save_model(run.model, run.tokenizer, folder)
        return figures
    shutil.copytree(run.checkpoints.of(best), folder, ignore=shutil.ignore_patterns(*OF_THE_RUN))
    figures = next(figures for figures in run.progress.evaluations if figures["step"] == best)
    return figures | {"metric_for_best_model": run.options.output.metric_for_best_model}


def go_on(run: Run) -> dict[str, float]:
    """Carry out what the recipe has after its stages, or go on with it. The run then has the last model. Returns the
    figures of its evaluation; raises `Interrupted` if a signal came before."""
    options, afterwards = run.options, run.options.afterwards
    lines, _ = sample(run.data.texts, LINES_AFTERWARDS * len(afterwards))
    for number, (program, *of_recipe) in enumerate(afterwards, start=1):
        folder = run.folder / AFTERWARDS.format(number)
        if (folder / MODEL).exists():
            continue
        run.display.say(f"afterwards, {number} of {len(afterwards)}: {program} {shlex.join(of_recipe)}")
        if run.accelerator.is_main_process and not folder.exists():  # what has begun goes on with its text
            shares = max(1, len(lines) // LINES_AFTERWARDS)
            own = lines[(number - 1) % shares :: shares]
            with gzip.open(run.folder / SENTENCES.format(number), "wt", encoding="utf-8") as file:
                file.writelines(f"{sentence}\n" for sentence in sentences_of(own, options.data))
        run.accelerator.wait_for_everyone()
        command = command_afterwards(options, number)
        if program == "distill":
            with keep_state_of_accelerate():
                distill.main(command)
        else:
            pretrain_in_folder(parse_options(command))
        if not (folder / MODEL).exists():  # a signal came
            raise Interrupted
    run.model = load_model(FastR2D2ForPreTraining, str(folder / MODEL)).to(run.accelerator.device)
    if run.scorer:
        run.scorer.parser = TreeParser(run.model, run.tokenizer)
    return evaluate(run)


def push(run: Run, folder: Path) -> None:
    name = run.options.output.hub_model_id
    try:
        HfApi().create_repo(name, exist_ok=True)
        run.display.say(f"uploaded: {HfApi().upload_folder(repo_id=name, folder_path=folder)}")
    except Exception as error:  # whatever a network raises
        raise OSError(f"the model in {folder} was not uploaded ({error}); the same command does it") from error


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:  # once it trains, a run saves and ends
        sys.exit("stopped; the same command goes on from what was saved")
