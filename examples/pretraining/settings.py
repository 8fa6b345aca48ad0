"""Settings that can change during a run, by stages: a function of the step alone."""

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, get_args, get_type_hints

ALLOWED_WORDS = {
    "encoding": ("chart", "forced"),
    "chart_scores": ("parser", "snapshot", "counts", "mixed"),
    "choice_scores": ("counts", "snapshot"),
}


@dataclass(frozen=True)
class Settings:
    """The settings of one step. The defaults are the paper's objective; None stands for the value in the options.

    Attributes:
        encoding: ``"chart"``; or ``"forced"``, along the tree of ``chart_scores``. It costs a fraction of a chart, but
            the losses of tree, choice and height need a chart.
        chart_scores: the scores that prune the charts: of the ``"parser"``; of a ``"snapshot"``, the parser as it was
            when the stage began; ``"counts"`` (of `count_teacher`); or ``"mixed"``, counts for a share of the sentences
            and the parser's for the others. The model's noise is added to all.
        counts_share: the share of counts if they are ``"mixed"``, 0 to 1.
        choice_loss: weight of a cross entropy between the encoder's choice among a cell's candidates and the candidate
            that ``choice_scores`` split first. It is a mean over cells of two or more candidates.
        choice_scores: ``"counts"``, or the scores of a ``"snapshot"``.
        bounds_bonus: nats that are added to all these scores where punctuation other than quotes was left out.
        names_bonus: nats that are taken from all these scores within names (`ReadSentence.names`).
        choice_bonus: the same as ``bounds_bonus`` for ``choice_scores`` alone; None stands for it.
        lm_trains_choice: whether the language model's gradient reaches the choice.
        height_penalty: weight of ``relu(E[height] / n - height_threshold)`` for the chart's trees.
        height_threshold: 0 to 1.
        learning_rate, parser_learning_rate: the rates themselves; the warm-up and decay of the options do not apply.
        window_size: window size of the charts.
        lm_weight, tree_weight: weights of the paper's losses.
        per_device_train_batch_tokens: as the option.
    """

    chart_scores: str = "parser"
    counts_share: float = 1.0
    choice_loss: float = 0.0
    choice_scores: str = "counts"
    bounds_bonus: float = 0.0
    names_bonus: float = 0.0
    choice_bonus: float | None = None
    lm_trains_choice: bool = True
    height_penalty: float = 0.0
    height_threshold: float = 0.35
    encoding: str = "chart"
    learning_rate: float | None = None
    parser_learning_rate: float | None = None
    window_size: int | None = None
    lm_weight: float = 1.0
    tree_weight: float = 1.0
    per_device_train_batch_tokens: int | None = None

    @property
    def effective_counts_share(self) -> float:
        """Share of the sentences with charts that are pruned by counts, 0 to 1."""
        return {"counts": 1.0, "mixed": self.counts_share}.get(self.chart_scores, 0.0)

    @property
    def needs_counts(self) -> bool:
        return self.chart_scores in ("counts", "mixed") or (self.choice_loss > 0 and self.choice_scores == "counts")

    @property
    def needs_snapshot(self) -> bool:
        return "snapshot" in (self.chart_scores, self.choice_scores)


PAPER_SETTINGS = Settings()
TYPES = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(Settings).items()}
AT_MOST_ONE = ("counts_share", "height_threshold")


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

    Raises:
        ValueError: for lengths and settings that are not possible.
    """

    name: str
    steps: int | None = None
    tokens: int | None = None
    values: dict[str, object] = field(default_factory=dict)

    def __post_init__(self):
        lengths = [length for length in (self.steps, self.tokens) if length is not None]
        if len(lengths) != 1 or type(lengths[0]) is not int or lengths[0] < 1:
            raise ValueError(f"a stage has either steps or tokens, a whole number >= 1; got "
                             f"steps {self.steps!r} and tokens {self.tokens!r}")  # fmt: skip
        for name, value in self.values.items():
            _check(name, value)
        is_mixed = self.values.get("chart_scores") == "mixed"
        if is_mixed != ("counts_share" in self.values):
            raise ValueError("counts_share needs chart_scores: mixed, and chart_scores: mixed needs counts_share")

    def at(self, share: float) -> Settings:
        """Settings at the point where ``share`` of the stage is over, 0 to 1."""
        values = {name: value.at(share) if isinstance(value, Ramp) else value for name, value in self.values.items()}
        return Settings(**values)

    def first_and_last(self, name: str) -> list:
        """The values of a setting at the beginning and at the end of the stage."""
        return [getattr(self.at(share), name) for share in (0, 1)]


def _check(name: str, value: object) -> None:
    kind = TYPES.get(name)
    if kind is None:
        raise ValueError(f"unknown setting {name!r}; there are {', '.join(TYPES)}")
    if isinstance(value, Ramp) and kind is not float:
        raise ValueError(f"{name} cannot change within a stage, from {value.start} to {value.end}")
    for part in value if isinstance(value, Ramp) else [value]:
        if type(part) is not kind and not (kind is float and type(part) is int):
            raise ValueError(f"{name} must be {_in_words(kind)}, got {part!r}")
        if kind is str and part not in ALLOWED_WORDS[name]:
            raise ValueError(f"{name} must be one of {', '.join(ALLOWED_WORDS[name])}, got {part!r}")
        least, most = (1 if kind is int else 0), (1 if name in AT_MOST_ONE else math.inf)
        if kind in (int, float) and not (least <= part <= most and math.isfinite(part)):
            raise ValueError(f"{name} must be >= {least}{f' and <= {most}' if most == 1 else ''}, got {part}")


def _in_words(kind: type) -> str:
    return {str: "a word", bool: "true or false", int: "a whole number", float: "a number"}[kind]


class Plan:
    """Settings of every step of a run.

    Args:
        stages: without any, the options alone count.
        tokens_per_step: the mean number of tokens in a step of a stage, for stages with a length in tokens.

    Attributes:
        boundaries: the first step of each stage, then the number of steps of all stages.
    """

    def __init__(self, stages: tuple[Stage, ...] = (), tokens_per_step: Callable[[Stage], float] | None = None):
        self.stages = stages
        lengths = [stage.steps or max(1, round(stage.tokens / tokens_per_step(stage))) for stage in stages]
        self.boundaries = [0, *itertools.accumulate(lengths)]

    @property
    def num_steps(self) -> int:
        """Number of steps in all stages, 0 without stages."""
        return self.boundaries[-1]

    def stage_number(self, step: int) -> int:
        """Number of the stage that a step belongs to, both counted from 0; after the end, of the last stage."""
        return min(bisect.bisect_right(self.boundaries, step), len(self.stages)) - 1

    def at(self, step: int) -> Settings:
        """Settings of a step, counted from 0; after the end, those at the end of the last stage."""
        if not self.stages:
            return PAPER_SETTINGS
        number = self.stage_number(step)
        begin, end = self.boundaries[number : number + 2]
        return self.stages[number].at(min(1.0, (step - begin) / (end - begin)))


PLAN_WITHOUT_STAGES = Plan()
