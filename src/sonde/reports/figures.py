"""The health of a run in a few numbers, so that variants can be held against each other."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from sonde.core.own_settings import OwnSettings
from sonde.core.records import Float64
from sonde.core.strict_json import Json, number
from sonde.reports.diagnosing import diagnose
from sonde.store.reader import Run

_PARTS = 20  # a loss is judged by twentieths of its run: shorter ones are noise


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """What a variant came to; None where the run does not tell.

    Args:
        steps: The last step.
        ending: How the run stands.
        final: Median over the last twentieth of the compared series.
        best: The lowest median of a twentieth.
        lost_step: First step at which the compared series is NaN or infinite.
        validation: The last validation loss.
        validation_best: The lowest.
        validation_best_step: Where.
        lr_highest: The highest learning rate.
        gain_mean: Mean over time of the geometric mean of the blocks' gains.
        gain_sd: Its standard deviation over time.
        gradient_norm: Median of the global norm before clipping.
        update_ratio: Median of ‖Δθ‖/‖θ‖.
        samples_per_s: Median.
        tokens_per_s: Median.
        step_s: Median time of a step, in seconds.
        alarms: Findings of severity warning or above: code → name.
        own_settings: What the run's own settings change about them.
    """

    steps: int
    ending: str
    final: float | None
    best: float | None
    lost_step: int | None
    validation: float | None
    validation_best: float | None
    validation_best_step: int | None
    lr_highest: float | None
    gain_mean: float | None
    gain_sd: float | None
    gradient_norm: float | None
    update_ratio: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    step_s: float | None
    alarms: Mapping[str, str]
    own_settings: OwnSettings

    def to_json(self) -> dict[str, Json]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: number(value) if isinstance(value, float) else value for name, value in values.items()}
        return {**plain, "alarms": dict(self.alarms), "own_settings": self.own_settings.to_json()}


def health(run: Run, tag: str) -> Health:
    """A run's figures.

    Args:
        run: Finished or live.
        tag: The series that variants are compared by.
    """
    steps, values = _series(run, tag)
    lost = np.flatnonzero(~np.isfinite(values))
    finite = values[np.isfinite(values)]
    parts = [np.median(part) for part in np.array_split(finite, min(_PARTS, len(finite)) or 1) if len(part)]
    val_steps, validation = _series(run, "val/loss")
    gains = _finite(run, "gain/mean")
    rates = _finite(run, "lr")
    measured = np.flatnonzero(np.isfinite(validation))
    lowest = int(measured[np.argmin(validation[measured])]) if len(measured) else None
    diagnosis = diagnose(run)
    return Health(
        steps=run.steps,
        ending=run.state.ending.value,
        final=float(parts[-1]) if parts else None,
        best=float(min(parts)) if parts else None,
        lost_step=int(steps[lost[0]]) if len(lost) else None,
        validation=float(validation[-1]) if len(validation) else None,
        validation_best=None if lowest is None else float(validation[lowest]),
        validation_best_step=None if lowest is None else int(val_steps[lowest]),
        lr_highest=float(rates.max()) if len(rates) else None,
        gain_mean=float(gains.mean()) if len(gains) else None,
        gain_sd=float(gains.std(ddof=1)) if len(gains) > 1 else None,
        gradient_norm=_median(run, "grad/norm"),
        update_ratio=_median(run, "update/ratio"),
        samples_per_s=_median(run, "throughput/samples_per_s"),
        tokens_per_s=_median(run, "throughput/tokens_per_s"),
        step_s=_median(run, "time/step"),
        alarms={finding.code: finding.name for finding in diagnosis if finding.severity.is_alarm},
        own_settings=diagnosis.own_settings,
    )


def _series(run: Run, tag: str) -> tuple[Float64, Float64]:
    if tag not in run.tags(tag):
        return np.empty(0), np.empty(0)
    step, value, _ = run.series(tag)
    return step.astype(np.float64), value.astype(np.float64)


def _finite(run: Run, tag: str) -> Float64:
    _, values = _series(run, tag)
    finite: Float64 = values[np.isfinite(values)]
    return finite


def _median(run: Run, tag: str) -> float | None:
    values = _finite(run, tag)
    return float(np.median(values)) if len(values) else None
