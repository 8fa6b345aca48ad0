"""A recipe describes a run in one small file: values of options, stages with settings that change during the run, and
what comes after them.

options:                      # any option of pretrain.py; the command line overrides them
  size: tiny
  learning_rate: 2e-3
stages:                       # without stages, the options alone describe the run
  - name: warm-up
    steps: 100                # or, approximately, tokens: 600_000
    learning_rate: {from: 0, to: 2e-3}
  - &wider                    # a stage that YAML marks so comes again at `- *wider`
    name: wider
    tokens: 1_000_000
    window_size: 3            # what a stage does not set is as in the options or in the paper
    always: false             # left out by character, and if counts_skew is 0
  - *wider
afterwards:                   # one after another, each from the model that the one before has made
  - distill: {methods: minimum_risk}    # any option of distill.py, but not whom it teaches, what and where
  - pretrain: {recipe: settle}          # the same of pretrain.py
"""

import bisect
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, get_args, get_type_hints

import yaml

RECIPES = Path(__file__).parents[1] / "recipes"
ALLOWED_WORDS = {
    "encoding": ("chart", "forced"),
    "chart_scores": ("parser", "snapshot", "minimum_risk", "grammar", "counts", "mixed"),
    "choice_scores": ("counts", "snapshot"),
}
OF_MINIMUM_RISK = ("minimum_risk", "grammar")  # among chart_scores
OF_THE_SNAPSHOT = ("snapshot", *OF_MINIMUM_RISK)


@dataclass(frozen=True)
class Settings:
    """The settings of one step. The defaults are the paper's objective; None stands for the value in the options.

    Attributes:
        chart_scores: the scores that prune the charts: of the ``"parser"``; of a ``"snapshot"``, the parser as it was
            when the stage began; of the snapshot's trees of ``"minimum_risk"``; of such trees of the snapshot and a
            ``"grammar"`` together (of `grammar`); ``"counts"`` (of `counts`); or ``"mixed"``, counts for a share
            of the sentences and the parser's for the others. The model's noise is added to all, and changes nothing for
            those of minimum risk.
        counts_share: the share of counts if they are ``"mixed"``, 0 to 1.
        choice_loss: weight of a cross entropy between the encoder's choice among a cell's candidates and the candidate
            that ``choice_scores`` split first. It is a mean over cells of two or more candidates.
        choice_scores: ``"counts"``, or the scores of a ``"snapshot"``.
        bounds_bonus: nats that are added to all these scores where punctuation other than quotes was left out.
        names_bonus: nats that are taken from all these scores within names (`ReadSentence.names`).
        skew: by how many nats all these scores fall from one split point to the next, times the run's ``counts_skew``.
            Without it, trees of languages that branch to one side lose the direction that counts gave them.
        pairs_bonus: with trees of ``"minimum_risk"`` or a ``"grammar"``, nats times the run's ``counts_skew`` by which
            they have fewer pairs of words before longer phrases (`guidance.loosen_pairs`).
        lm_trains_choice: whether the language model's gradient reaches the choice.
        encoding: ``"chart"``; or ``"forced"``, along the tree of ``chart_scores``. It costs a fraction of a chart, but
            the losses of tree and choice need a chart.
        learning_rate, parser_learning_rate: the rates themselves; the warm-up and decay of the options do not apply.
        window_size: window size of the charts.
        lm_weight, tree_weight: weights of the paper's losses.
        meaning_weight, topic_weight, similarity_weight: weights of the losses that compare vectors with count vectors:
            those of constituents, those of sentences, and similarities within the batch.
        memory_weight: weight of the loss that keeps what the given model's vectors tell.
    """

    chart_scores: str = "parser"
    counts_share: float = 1.0
    choice_loss: float = 0.0
    choice_scores: str = "counts"
    bounds_bonus: float = 0.0
    names_bonus: float = 0.0
    skew: float = 0.0
    pairs_bonus: float = 0.0
    lm_trains_choice: bool = True
    encoding: str = "chart"
    learning_rate: float | None = None
    parser_learning_rate: float | None = None
    window_size: int | None = None
    lm_weight: float = 1.0
    tree_weight: float = 1.0
    meaning_weight: float = 0.0
    topic_weight: float = 0.0
    similarity_weight: float = 0.0
    memory_weight: float = 0.0

    @property
    def effective_counts_share(self) -> float:
        """Share of the sentences with charts that are pruned by counts, 0 to 1."""
        return {"counts": 1.0, "mixed": self.counts_share}.get(self.chart_scores, 0.0)

    @property
    def needs_counts(self) -> bool:
        return self.chart_scores in ("counts", "mixed") or (self.choice_loss > 0 and self.choice_scores == "counts")

    @property
    def needs_count_vectors(self) -> bool:
        return bool(self.meaning_weight or self.topic_weight or self.similarity_weight)

    @property
    def needs_snapshot(self) -> bool:
        return self.chart_scores in OF_THE_SNAPSHOT or self.choice_scores == "snapshot"


TYPES = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(Settings).items()}


class Ramp(NamedTuple):
    """A value that changes linearly within a stage; it reaches ``end`` when the next stage begins."""

    start: float
    end: float

    def at(self, share: float) -> float:
        return self.start + (self.end - self.start) * share


@dataclass(frozen=True)
class Stage:
    """A part of a run. Its length is given in steps or, approximately, in tokens; the other one is None.

    Attributes:
        values: settings that differ from the defaults: a value, or a `Ramp` of numbers.
        always: whether the stage is also for tokenizers by character and for languages that branch to both sides.

    Raises:
        ValueError: for lengths and settings that are not possible.
    """

    name: str
    steps: int | None = None
    tokens: int | None = None
    values: dict[str, object] = field(default_factory=dict)
    always: bool = True

    def __post_init__(self):
        lengths = [length for length in (self.steps, self.tokens) if length is not None]
        if len(lengths) != 1 or type(lengths[0]) is not int or lengths[0] < 1:
            raise ValueError(f"a stage has either steps or tokens, a whole number >= 1; got "
                             f"steps {self.steps!r} and tokens {self.tokens!r}")  # fmt: skip
        if not isinstance(self.always, bool):
            raise ValueError(f"always must be true or false, got {self.always!r}")
        for name, value in self.values.items():
            _check_setting(name, value)
        is_mixed = self.values.get("chart_scores") == "mixed"
        if is_mixed != ("counts_share" in self.values):
            raise ValueError("counts_share needs chart_scores: mixed, and chart_scores: mixed needs counts_share")
        if "pairs_bonus" in self.values and self.values.get("chart_scores") not in OF_MINIMUM_RISK:
            raise ValueError(f"pairs_bonus needs chart_scores: {' or '.join(OF_MINIMUM_RISK)}")

    def at(self, share: float) -> Settings:
        """Settings at the point where ``share`` of the stage is over, 0 to 1."""
        values = {name: value.at(share) if isinstance(value, Ramp) else value for name, value in self.values.items()}
        return Settings(**values)


def _check_setting(name: str, value: object) -> None:
    kind = TYPES[name]
    if isinstance(value, Ramp) and kind is not float:
        raise ValueError(f"{name} cannot change within a stage, from {value.start} to {value.end}")
    for part in value if isinstance(value, Ramp) else [value]:
        if type(part) is not kind and not (kind is float and type(part) is int):
            in_words = {str: "a word", bool: "true or false", int: "a whole number", float: "a number"}
            raise ValueError(f"{name} must be {in_words[kind]}, got {part!r}")
        if kind is str and part not in ALLOWED_WORDS[name]:
            raise ValueError(f"{name} must be one of {', '.join(ALLOWED_WORDS[name])}, got {part!r}")
        least, most = (1 if kind is int else 0), (1 if name == "counts_share" else math.inf)
        if kind in (int, float) and not (least <= part <= most and math.isfinite(part)):
            raise ValueError(f"{name} must be >= {least}{f' and <= {most}' if most == 1 else ''}, got {part}")


def ends_of(stages: Iterable[Stage]) -> list[Settings]:
    """Settings at the beginning and at the end of each stage."""
    return [stage.at(share) for stage in stages for share in (0, 1)]


class Plan:
    """Settings of every step of a run.

    Args:
        stages: without any, the options alone count.
        tokens_per_step: the mean number of tokens in a step, for stages with a length in tokens.

    Attributes:
        boundaries: the first step of each stage, then the number of steps of all stages.
        num_steps: the number of steps of all stages, 0 without stages.
    """

    def __init__(self, stages: tuple[Stage, ...] = (), tokens_per_step: float = 1.0):
        self.stages = stages
        lengths = [stage.steps or max(1, round(stage.tokens / tokens_per_step)) for stage in stages]
        self.boundaries = [0, *itertools.accumulate(lengths)]
        self.num_steps = self.boundaries[-1]

    def stage_number(self, step: int) -> int:
        """Number of the stage that a step belongs to, both counted from 0; after the end, of the last stage."""
        return min(bisect.bisect_right(self.boundaries, step), len(self.stages)) - 1

    def at(self, step: int) -> Settings:
        """Settings of a step, counted from 0; after the end, those at the end of the last stage."""
        if not self.stages:
            return Settings()
        number = self.stage_number(step)
        begin, end = self.boundaries[number : number + 2]
        return self.stages[number].at(min(1.0, (step - begin) / (end - begin)))


class Recipe(NamedTuple):
    """Arguments of the command line of ``pretrain.py``, the stages, and what comes after them: the name of a program,
    then arguments of its command line."""

    options: list[str] = []
    stages: tuple[Stage, ...] = ()
    afterwards: tuple[tuple[str, ...], ...] = ()


def read_recipe(path: str | Path, known_options: set[str], known_afterwards: dict[str, set[str]]) -> Recipe:
    """Read a file.

    Args:
        path: a file, or the name of one in ``examples/recipes``, with or without its suffix.
        known_options: the names that may stand in ``options``.
        known_afterwards: the programs that may stand in ``afterwards``, with the names of their options there.

    Raises:
        ValueError: for a file that is missing or wrong, with the file and the stage.
    """
    file = Path(path)
    if not file.is_file() and file.parent == Path():  # a run's folder may have the same name
        file = RECIPES / f"{file.stem}.yaml"
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = ", ".join(sorted(known.stem for known in RECIPES.glob("*.yaml")))
        raise ValueError(f"there is no recipe {str(path)!r}; give a file, or one of {names}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"no recipe could be read from {str(path)!r}: {error}") from error
    try:
        _check_names(content, {"options", "stages", "afterwards"}, "the file")
        options = content.get("options") or {}
        _check_names(options, known_options - {"recipe"}, "options")
        return Recipe(
            _read_options(options),
            tuple(_read_stage(stage, number) for number, stage in enumerate(_list(content, "stages", "name"), start=1)),
            tuple(_read_program(entry, known_afterwards) for entry in _list(content, "afterwards", "distill")),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _list(content: dict, name: str, example: str) -> list:
    found = content.get(name) or []
    if not isinstance(found, list):
        raise ValueError(f"{name} must be a list with a '- {example}: ...' for each of them, got {found!r}")
    return found


def _check_names(content: object, known: set[str], where: str) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"{where} must have names and values, 'name: value', got {content!r}")
    if unknown := [str(name) for name in content if name not in known]:
        raise ValueError(f"{where} has no {', '.join(unknown)}; there are {', '.join(sorted(known))}")


def _read_options(options: dict[str, object]) -> list[str]:
    arguments: list[str] = []
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        if any(isinstance(part, list | dict) for part in values):
            raise ValueError(f"option {name} must have a value or a list of values, got {value!r}")
        words = [("no", "yes")[part] if isinstance(part, bool) else str(part) for part in values]
        arguments += [f"--{name}", *words] if value is not None else []
    return arguments


def _read_program(content: object, known: dict[str, set[str]]) -> tuple[str, ...]:
    _check_names(content, {*known}, "what comes afterwards")
    if len(content) != 1:
        raise ValueError(f"what comes afterwards is one of {', '.join(known)} with its options, got {content!r}")
    [(program, options)] = content.items()
    _check_names(options, known[program], program)
    return (program, *_read_options(options))


def _read_stage(content: object, number: int) -> Stage:
    name = content.get("name") if isinstance(content, dict) else None
    try:
        _check_names(content, {"name", "steps", "tokens", "always", *TYPES}, "a stage")
        values = {name: _read_value(name, value) for name, value in content.items() if name in TYPES}
        steps, tokens, always = content.get("steps"), content.get("tokens"), content.get("always", True)
        return Stage(str(name or number), steps, tokens, values, always)
    except ValueError as error:
        raise ValueError(f"stage {number}{f' ({name})' if name else ''}: {error}") from error


def _read_value(name: str, value: object) -> object:
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
