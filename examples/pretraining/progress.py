"""The progress of a run and its curves: everything that a checkpoint holds besides tensors."""

from dataclasses import asdict, dataclass, field

from pretraining.losses import LOSSES


@dataclass
class Progress:
    """What a run has done so far, counted over all processes together.

    Attributes:
        step: number of updates, skipped ones included.
        epoch: number of the running epoch, from 0.
        tokens: number of tokens trained on.
        seconds: time spent in steps, over all sessions of the run.
        skipped: number of steps that were skipped because losses or gradients were not finite.
        skipped_in_a_row: the same, since the last good step.
        left_out: number of sentences of a stream that were too long; ``corpus`` counts those of other corpora.
        corpus: numbers of sentences and tokens in the corpus, by which a changed corpus is noticed.
        curve: a point every ``logging_steps``, with means over these steps.
        evaluations: the figures of every evaluation.
        since_point: sums over the steps since the last point of the curve.
    """

    step: int = 0
    epoch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    left_out: int = 0
    corpus: dict = field(default_factory=dict)
    curve: list[dict] = field(default_factory=list)
    evaluations: list[dict] = field(default_factory=list)
    since_point: dict[str, float] = field(default_factory=dict)

    def add(self, losses: dict[str, float], sizes: dict[str, int], seconds: float) -> None:
        """Count a step.

        Args:
            losses: means, by name.
            sizes: numbers of tokens, sentences and constituents.
        """
        self.step += 1
        self.tokens += sizes["tokens"]
        self.seconds += seconds
        amounts = {"tokens": sizes["tokens"], "seconds": seconds}
        for loss in LOSSES:
            if loss.name in losses:
                number = sizes[loss.unit]
                amounts |= {f"{loss.name}_loss": losses[loss.name] * number, f"{loss.name}_number": number}
        for name, amount in amounts.items():
            self.since_point[name] = self.since_point.get(name, 0.0) + amount

    def skip(self, seconds: float) -> None:
        """Count a step that was skipped."""
        self.step += 1
        self.seconds += seconds
        self.skipped += 1
        self.skipped_in_a_row += 1

    def end_point(self, more: dict[str, float]) -> dict[str, float]:
        """Add a point to the curve; it has no losses if all its steps were skipped."""
        sums, self.since_point = self.since_point, {}
        point = {"step": self.step, "tokens": self.tokens, "skipped": self.skipped, "left_out": self.left_out, **more}
        if sums:
            point["tokens_per_second"] = sums["tokens"] / max(sums["seconds"], 1e-9)
        for loss in (name for name in sums if name.endswith("_loss")):
            point[loss] = sums[loss] / max(1, sums[loss.replace("_loss", "_number")])
        self.curve.append(point)
        return point

    def as_dict(self) -> dict:
        return asdict(self)
