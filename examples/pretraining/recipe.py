"""A recipe describes a run in one small file: values of options, and stages with settings.

options:                      # any option of pretrain.py; the command line overrides them
  size: tiny
  learning_rate: 2e-3
stages:                       # without stages, the options alone describe the run
  - name: warm-up
    steps: 100                # or, approximately, tokens: 600_000
    learning_rate: {from: 0, to: 2e-3}
  - name: wider
    tokens: 1_000_000
    window_size: 3            # what a stage does not set is as in the options or in the paper
    times: 2                  # two such stages, one after the other
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

from pretraining.settings import TYPES, Ramp, Stage

MAX_STAGES = 1000  # each "times" counts


@dataclass(frozen=True)
class Recipe:
    """Options by name, as the file has them, and stages in order."""

    options: dict[str, object]
    stages: tuple[Stage, ...]

    def arguments(self) -> list[str]:
        """The options as arguments of a command line."""
        arguments: list[str] = []
        for name, value in self.options.items():
            values = value if isinstance(value, list) else [value]
            arguments += [f"--{name}", *map(str, values)] if value is not None else []
        return arguments


def read_recipe(path: str | Path, known_options: set[str]) -> Recipe:
    """Read and check a file.

    Args:
        known_options: the names that may stand in ``options``.

    Raises:
        ValueError: for a file that is missing or wrong, with the file and the stage.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"no recipe could be read from {str(path)!r}: {error}") from error
    try:
        _check_names(content, {"options", "stages"}, "the file")
        options, stages = content.get("options") or {}, content.get("stages") or []
        _check_names(options, known_options - {"recipe"}, "options")
        for name, value in options.items():
            if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, list | dict) for v in value)):
                raise ValueError(f"option {name} must have a value or a list of values, got {value!r}")
        if not isinstance(stages, list):
            raise ValueError(f"stages must be a list with a '- name: ...' for each stage, got {stages!r}")
        read: list[Stage] = []
        for number, stage in enumerate(stages, start=1):
            read += _read_stage(stage, number)
            if len(read) > MAX_STAGES:
                raise ValueError(f"a recipe has at most {MAX_STAGES:,} stages; there are more up to stage {number}")
        return Recipe(options, tuple(read))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_names(content: object, known: set[str], where: str) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"{where} must have names and values, 'name: value', got {content!r}")
    if unknown := [str(name) for name in content if name not in known]:
        raise ValueError(f"{where} has no {', '.join(unknown)}; there are {', '.join(sorted(known))}")


def _read_stage(content: object, number: int) -> list[Stage]:
    """The stage, as many times as it says."""
    name = content.get("name") if isinstance(content, dict) else None
    try:
        _check_names(content, {"name", "steps", "tokens", "times", *TYPES}, "a stage")
        times = content.get("times", 1)
        if type(times) is not int or not 1 <= times <= MAX_STAGES:
            raise ValueError(f"times must be a whole number >= 1 and <= {MAX_STAGES:,}, got {times!r}")
        values = {name: _value(name, value) for name, value in content.items() if name in TYPES}
        names = [str(name or number)] if times == 1 else [f"{name or number} {time}" for time in range(1, times + 1)]
        return [Stage(name, content.get("steps"), content.get("tokens"), values) for name in names]
    except ValueError as error:
        raise ValueError(f"stage {number}{f' ({name})' if name else ''}: {error}") from error


def _value(name: str, value: object) -> object:
    if not isinstance(value, dict):
        return _number(value) if TYPES[name] is float else value
    if value.keys() != {"from", "to"}:
        raise ValueError(f"{name} must be a value or {{from: value, to: value}}, got {value!r}")
    return Ramp(_number(value["from"]), _number(value["to"]))


def _number(value: object) -> object:
    """As a float if possible: YAML reads ``2e-3`` as a string and 1 as an integer."""
    try:
        return value if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return value
