"""What it took a training to reach a target: steps, time, samples and operations."""

import math
from dataclasses import dataclass

import numpy as np

from sonde.core.errors import TagNotFound
from sonde.core.quantities import duration, number
from sonde.store.reader import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When a series came to a value, and what that took; None for what the run does not tell.

    Attributes:
        tag: The series.
        target: The value.
        first: The value that the series began with.
        best: The value that came closest to the target or beyond it, up to `step`.
        step: The first step with the target or better; None where no step has it.
        seconds: Of training: the sum of `time/step` up to there. What lies between two sessions does not count.
        samples: That the training was given up to there.
        flops: Operations up to there.
    """

    tag: str
    target: float
    first: float
    best: float
    step: int | None
    seconds: float | None = None
    samples: float | None = None
    flops: float | None = None

    def per_unit(self, cost: float | None) -> float | None:
        """What one unit of improvement of the series took."""
        way = abs(self.first - self.best)
        return cost / way if cost is not None and way > 0 else None

    def __str__(self) -> str:
        what = f"{self.tag} {number(self.target)}"
        if self.step is None:
            return f"{what}: not reached, the closest is {number(self.best)}"
        took = [
            *([] if self.seconds is None else [f"{duration(self.seconds)} of training"]),
            *([] if self.samples is None else [f"{round(self.samples):,} samples"]),
            *([] if self.flops is None else [f"{number(self.flops)} FLOPs"]),
        ]
        each, flops = self.per_unit(self.seconds), self.per_unit(self.flops)
        units = [
            *([] if each is None else [f"{duration(each)}"]),
            *([] if flops is None else [f"{number(flops)} FLOPs"]),
        ]
        costs = {"time": self.seconds, "samples": self.samples, "FLOPs": self.flops}
        missing = [name for name, cost in costs.items() if cost is None]
        return (
            ", ".join([f"{what}: reached at step {self.step:,}", *took])
            + (f"; {' and '.join(units)} for each unit of improvement" if units else "")
            + (f"; not measured: {', '.join(missing)}" if missing else "")
        )


def reached(run: Run, tag: str, target: float) -> Reached:
    """When a series first came to a value, from the side on which it began.

    A loss that begins above the target must fall to it or below, an accuracy that begins below must rise to it.

    With t_i the `time/step` of step i, r_i its `throughput/samples_per_s` and s the step that reached the target:
    seconds = Σ_{i≤s} t_i and samples = Σ_{i≤s} r_i·t_i; steps where one is not known count as the mean of the
    others. FLOPs are the mean of `flops/step` up to there (or of the first that was counted), times s.

    Raises:
        TagNotFound: the run has no such series.
    """
    series = run.series(tag)
    known = np.isfinite(series.value)
    steps, values = series.step[known], series.value[known].astype(np.float64)
    if not len(values):
        return Reached(tag=tag, target=target, first=math.nan, best=math.nan, step=None)
    first, target = float(values[0]), float(np.float32(target))  # as the run has numbers: 1.2 is not above 1.2
    sign = 1.0 if first >= target else -1.0
    there = np.flatnonzero(sign * values <= sign * target)
    end = int(there[0]) if len(there) else len(values) - 1
    best = float(sign * np.min(sign * values[: end + 1]))
    if not len(there):
        return Reached(tag=tag, target=target, first=first, best=best, step=None)
    step = int(steps[end])
    times, rates = _until(run, "time/step", step), _until(run, "throughput/samples_per_s", step)
    flops = _flops(run, step)
    return Reached(
        tag=tag,
        target=target,
        first=first,
        best=best,
        step=step,
        seconds=_total(times, step),
        samples=_total({at: rate * times[at] for at, rate in rates.items() if at in times}, step),
        flops=None if flops is None else flops * step,
    )


def _until(run: Run, tag: str, step: int) -> dict[int, float]:
    try:
        series = run.series(tag)
    except TagNotFound:
        return {}
    kept = np.isfinite(series.value) & (series.step <= step)
    return dict(zip(series.step[kept].tolist(), series.value[kept].tolist(), strict=True))


def _total(values: dict[int, float], num_steps: int) -> float | None:
    return math.fsum(values.values()) / len(values) * num_steps if values else None


def _flops(run: Run, step: int) -> float | None:
    found = _until(run, "flops/step", step)
    if not found:
        later = _until(run, "flops/step", 1 << 62)
        found = dict(list(later.items())[:1])
    return sum(found.values()) / len(found) if found else None
