"""Folders that are whole or not there: they are written aside, listed with checksums and then renamed.

A checkpoint holds the state of a run: model, losses' parameters, optimiser, progress, the parser's snapshot, and
each process's position and random state.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_model
from transformers import PreTrainedTokenizerBase

from modeling_fast_r2d2.text_files import LOCK_FILE, OWNER_FILE, checksum, disk_errors, read_record
from pretraining.grammar import Grammar

logger = get_logger(__name__)

MANIFEST, MODEL = "files.json", "model"  # the latter is the folder of a finished run's model
STOPPED = "stopped; the same command with --resume_from_checkpoint true goes on from the newest checkpoint"
OF_THE_RUN = MANIFEST, "optimizer.pt", "process-*.pt", "progress.json"  # files of a checkpoint beside its model's
# By the name of a figure in evaluations.
HIGHER_IS_BETTER = {"f1": True, "validation_lm_loss": False}


class Checkpoints:
    """A run's checkpoints, in folders ``checkpoint-<step>``; only the newest ``keep`` of them and the best stay."""

    def __init__(self, folder: Path, keep: int, accelerator: Accelerator):
        self.folder, self.keep, self.accelerator = folder, keep, accelerator

    def of(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step:09d}"

    def save(self, step: int, write: Callable[[Path], None], best: int | None = None) -> None:
        """Save a checkpoint. Every process calls ``write(folder)``, and their files must have different names. That of
        the step ``best`` stays, however old it is."""
        final = self.of(step)
        aside = final.with_name(f".{final.name}.part")
        if self.accelerator.is_main_process:
            for unfinished in self.folder.glob(".checkpoint-*"):
                shutil.rmtree(unfinished)
            aside.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        write(aside)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            publish(aside, final)
            # Later ones are damaged, or the run would have resumed from them.
            newest_first = numbered(self.folder.glob("*"))
            later = [path for path in newest_first if path.name > final.name]
            for old in later + newest_first[len(later) + self.keep :]:
                if best is None or old != self.of(best):
                    shutil.rmtree(old)
        self.accelerator.wait_for_everyone()

    def newest_good(self) -> Path | None:
        """The newest checkpoint that is not damaged; None if there is no checkpoint. Damaged ones are reported. Raises
        ValueError if there are checkpoints and all are damaged."""
        found, problems = None, []
        if self.accelerator.is_main_process:
            self._name_whole_ones()
        for checkpoint in numbered(self.folder.glob("*")) if self.accelerator.is_main_process else []:
            problem = find_damage(checkpoint)
            if problem is None:
                found = checkpoint
                break
            problems.append(f"{checkpoint} is damaged: {problem}")
            logger.warning(f"{problems[-1]}; trying the one before it")
        found, problems = broadcast_object_list([found, problems])
        if problems and found is None:
            raise ValueError(
                f"all checkpoints are damaged. {'. '.join(problems)}. To start again, give another --output_dir"
            )
        return found

    def _name_whole_ones(self) -> None:
        """Of a process that was killed while it saved a step again, a whole checkpoint may be without its name."""
        for path in sorted(self.folder.glob(".checkpoint-*"), reverse=True):  # the .part before the .old one
            final = path.with_name(path.stem.removeprefix("."))
            if not final.exists() and find_damage(path) is None:
                os.rename(path, final)


def numbered(paths: Iterable[Path]) -> list[Path]:
    """Those that are called ``checkpoint-<number>``, the highest number first."""
    found = [path for path in paths if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]), reverse=True)


def best_step(evaluations: list[dict], metric: str | None) -> int | None:
    """The step of the evaluation with the best value of a metric, the first of equal ones; None if there is none."""
    found = [figures for figures in evaluations if metric is not None and math.isfinite(figures[metric])]
    best = max if metric is not None and HIGHER_IS_BETTER[metric] else min
    return best(found, key=lambda figures: figures[metric])["step"] if found else None


def save_model(model, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a model's folder. An OSError of a full disk says so."""
    with disk_errors(folder):
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def publish(aside: Path, final: Path) -> None:
    """List a folder's files with checksums, flush them to the disk, and then give the folder its name."""
    files = sorted(path for path in aside.rglob("*") if path.is_file())
    listing = {str(path.relative_to(aside)): checksum(path) for path in files}
    manifest = aside / MANIFEST
    manifest.write_text(json.dumps(listing, indent=1), encoding="utf-8")
    for path in [*files, manifest, aside]:
        _flush(path)
    put_in_place(aside, final)


def put_in_place(aside: Path, final: Path) -> None:
    """Give a folder its name; what had it before goes at last."""
    replaced = final.with_name(f".{final.name}.old")
    if final.exists():
        shutil.rmtree(replaced, ignore_errors=True)  # left by a process that was killed here
        os.rename(final, replaced)
    os.rename(aside, final)
    _flush(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def find_damage(checkpoint: Path) -> str | None:
    """Say what is wrong with a checkpoint's files; None if nothing is."""
    try:
        for name, expected in read_record(checkpoint / MANIFEST).items():
            if checksum(checkpoint / name) != expected:
                return f"{name} has changed since it was written"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_folder(folder: Path, resume_from_checkpoint: str | None, may_be_over: bool = False) -> None:
    """Raise ValueError if a run of `Trainer` would replace a model, or mix its checkpoints with another run's."""
    held = [path.name for path in folder.glob("*") if path.name not in (LOCK_FILE, OWNER_FILE)]
    if MODEL in held and not (may_be_over and resume_from_checkpoint):
        raise ValueError(f"{folder} holds a finished model already; give another --output_dir")
    if held and not resume_from_checkpoint:
        raise ValueError(f"{folder} is not empty; give another --output_dir, or go on with a run that was stopped by "
                         "--resume_from_checkpoint true")  # fmt: skip


def last_whole_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint of a `Trainer` that has all its files; its state is written last. None if there is none."""
    whole = numbered(path.parent for path in folder.glob("*/trainer_state.json"))
    return str(whole[0]) if whole else None


def write_state(run, folder: Path) -> None:
    """Write a process's own state; the main process also writes the model, for `from_pretrained`, and the rest."""
    accelerator, random = run.accelerator, {"cpu": torch.get_rng_state()}
    if accelerator.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(accelerator.device)
    with disk_errors(folder):
        torch.save({"position": run.position, "random": random}, folder / f"process-{accelerator.process_index}.pt")
    if accelerator.is_main_process:
        save_model(run.model, run.tokenizer, folder)
        with disk_errors(folder):
            torch.save({name: part.state_dict() for name, part in _parts(run).items()}, folder / "optimizer.pt")
        (folder / "progress.json").write_text(json.dumps(asdict(run.progress)), encoding="utf-8")


def resume(run, checkpoint: Path) -> None:
    """Bring a run to the state of a checkpoint, bit for bit."""
    for name, value in read_record(checkpoint / "progress.json").items():
        setattr(run.progress, name, value)
    load_model(run.model, checkpoint / "model.safetensors")
    state = torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True)
    if "snapshot" in state:
        run.guide.take_snapshot()
    if "grammar" in state:
        run.guide.grammar = Grammar(run.model.config.vocab_size).to(run.accelerator.device)
    for name, part in _parts(run).items():
        part.load_state_dict(state[name])
    own = checkpoint / f"process-{run.accelerator.process_index}.pt"
    own = torch.load(own, map_location="cpu", weights_only=True)
    run.position, run.saved_step = own["position"], run.progress.step
    torch.set_rng_state(own["random"]["cpu"])
    if "cuda" in own["random"]:
        torch.cuda.set_rng_state(own["random"]["cuda"], run.accelerator.device)


def _parts(run) -> dict:
    """What has a state beside the model, by name."""
    parts = {
        "losses": run.accelerator.unwrap_model(run.objective).own,
        "optimizer": run.optimizer,
        "scaler": run.accelerator.scaler,
        "snapshot": run.guide.snapshot,
        "grammar": run.guide.grammar,
    }
    return {name: part for name, part in parts.items() if part is not None}
