"""The state of a run in a checkpoint: model, losses' parameters, optimiser, schedule, progress, the parser's snapshot,
and each process's position and random state."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_model

from modeling_fast_r2d2.text_files import disk_errors
from pretraining.progress import Progress


def write_state(run, folder: Path) -> None:
    """Write a process's own state; the main process also writes the model, for `from_pretrained`, and the rest."""
    accelerator = run.accelerator
    own = {"position": run.position, "random": random_state(accelerator.device)}
    with disk_errors(folder):
        torch.save(own, folder / f"process-{accelerator.process_index}.pt")
    if not accelerator.is_main_process:
        return
    run.tokenizer.save_pretrained(folder)
    state = {
        "losses": accelerator.unwrap_model(run.objective).own.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "schedule": run.schedule.state_dict(),
    }
    if accelerator.scaler is not None:
        state["scaler"] = accelerator.scaler.state_dict()
    if run.guide.snapshot is not None:
        state["snapshot"] = run.guide.snapshot.state_dict()
    with disk_errors(folder):
        run.model.save_pretrained(folder)
        torch.save(state, folder / "optimizer.pt")
    (folder / "progress.json").write_text(json.dumps(run.progress.as_dict()), encoding="utf-8")


def resume(run, checkpoint: Path) -> None:
    """Bring a run to the state of a checkpoint, bit for bit.

    Raises:
        ValueError: if the corpus has changed.
    """
    accelerator = run.accelerator
    progress = Progress(**json.loads((checkpoint / "progress.json").read_text(encoding="utf-8")))
    if progress.corpus != run.progress.corpus:
        raise ValueError(f"the corpus has changed since {checkpoint}: it was {progress.corpus}, now it is "
                         f"{run.progress.corpus}; restore the old corpus, or give another --output_dir")  # fmt: skip
    load_model(run.model, checkpoint / "model.safetensors")
    state = torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True)
    accelerator.unwrap_model(run.objective).own.load_state_dict(state["losses"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.schedule.load_state_dict(state["schedule"])
    if "snapshot" in state:
        run.guide.take_snapshot(state["snapshot"])
    if accelerator.scaler is not None:
        accelerator.scaler.load_state_dict(state["scaler"])
    own = torch.load(checkpoint / f"process-{accelerator.process_index}.pt", map_location="cpu", weights_only=True)
    run.progress, run.position, run.saved_step = progress, own["position"], progress.step
    set_random_state(own["random"], accelerator.device)


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """State of the random generators that the model uses on this process."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
