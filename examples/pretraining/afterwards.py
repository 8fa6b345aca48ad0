"""What comes after the stages of a recipe: the commands of its programs, each with the model of the one before."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from accelerate.state import AcceleratorState, PartialState

from pretraining.checkpoints import MODEL
from pretraining.options import Options

UNFINISHED, AFTERWARDS, SENTENCES = f".{MODEL}.new", "afterwards-{}", "afterwards-{}.txt.gz"  # in a run's folder
# The options that a recipe cannot have here, since the run gives them; models are not uploaded on the way.
GIVEN = {
    "distill": ("teachers", "student", "corpus", "output_dir", "resume_from_checkpoint", "seed", "use_cpu",
                "push_to_hub", "hub_model_id"),
    "pretrain": ("model", "corpus", "sentence_rule", "length", "names", "counts_skew", "tokenizer_kind", "output_dir",
                 "report_to", "mixed_precision", "seed", "use_cpu", "push_to_hub", "hub_model_id"),
}  # fmt: skip


def command_afterwards(options: Options, number: int) -> list[str]:
    """Arguments of a program that comes after the stages, counted from 1: those of the recipe, and others, by which it
    goes on from the run's model, or from that of the one before."""
    run, data, training = Path(options.output.output_dir).resolve(), options.data, options.training
    program, *of_recipe = options.afterwards[number - 1]
    model = run / UNFINISHED if number == 1 else run / AFTERWARDS.format(number - 1) / MODEL
    values = {
        "model": model, "teachers": model, "student": model, "corpus": run / SENTENCES.format(number),
        "sentence_rule": "line", "output_dir": run / AFTERWARDS.format(number), "resume_from_checkpoint": True,
        "report_to": "none", "seed": training.seed, "use_cpu": training.use_cpu, "length": data.length,
        "names": data.names, "counts_skew": data.counts_skew, "tokenizer_kind": data.tokenizer_kind,
    }  # fmt: skip
    given = [name for name in GIVEN[program] if name in values]
    return [*(word for name in given for word in (f"--{name}", str(values[name]))), *of_recipe]


@contextlib.contextmanager
def keep_state_of_accelerate() -> Iterator[None]:
    """`Trainer` begins this state anew, and the precision of what comes then would be another one."""
    before = [(state, dict(state._shared_state)) for state in (PartialState, AcceleratorState)]
    yield
    for state, values in before:
        state._shared_state.clear()
        state._shared_state.update(values)
