"""LOS010 statistical-anomaly."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.core.records import Float64
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.signals.cusum import Cusum, CusumState, threshold_for
from sonde.signals.forecast import Forecast, ForecastState

_SERIES = ("loss", "grad/norm")
_NAMES = ("the loss", "the gradient norm")
_FORECAST = Forecast(warmup=100)
_CUSUM = Cusum(threshold=threshold_for(0.01, 100_000 * len(_SERIES)), clip=4.0)


class StatisticalAnomalyState(NamedTuple):
    """The forecasts and the sums of what they missed."""

    forecast: ForecastState
    cusum: CusumState


@dataclass(frozen=True, kw_only=True, slots=True)
class StatisticalAnomaly:
    """A series leaves the band of its own forecast.

    What it detects:
        - For the loss and the logarithm of the gradient norm, a two-sided CUSUM (k = 0.5) of the standardised one-step
          forecast errors crosses its threshold. Errors are cut at ±4, so that one outlier does not count.
        - Both together give 0.01 false alarms in 100,000 steps of normal noise.
        - Values of a step in which the learning rate jumped do not count.
        - It is always information.

    Why it matters:
        Something changed at that step: data, code path or numerics. It dates the onset of other findings.

    Evidence:
        The series, its value and its forecast.

    What to do:
        Look at what else changed at that step.

    When it is wrong:
        - Series that wander (autocorrelation above 0.9) are reported more often than that.
        - So are sharp bends of healthy learning curves.

    References:
        Page, Continuous inspection schemes, Biometrika 41, 1954.
    """

    code: ClassVar[str] = "LOS010"
    name: ClassVar[str] = "statistical-anomaly"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DATA_DRIFT: For("loss or gradient left their forecast for good"),
        Cause.STATE_RESET: For("the loss left its forecast"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "loss-spike"

    def init(self) -> StatisticalAnomalyState:
        """Before the first step."""
        return StatisticalAnomalyState(_FORECAST.init(len(_SERIES)), _CUSUM.init(len(_SERIES)))

    def step(self, state: StatisticalAnomalyState, look: Look) -> tuple[StatisticalAnomalyState, Sequence[Sighting]]:
        """Look at one more value of each series."""
        raw = loss, norm = look.view.value("loss"), look.view.value("grad/norm")
        values = np.array([loss, math.log(norm) if norm > 0 else math.nan])
        forecast, out = _FORECAST.step(state.forecast, values)
        cusum, sums = _CUSUM.step(state.cusum, np.full(2, np.nan) if look.run.lr_jumped else out.z)
        rose, fell = sums.rose.tolist(), sums.fell.tolist()
        sightings = [
            self._sighting(i, raw, out.expected, rose[i], look.view.step)
            for i in range(len(_SERIES))
            if rose[i] or fell[i]
        ]
        return StatisticalAnomalyState(forecast, cusum), sightings

    def _sighting(self, i: int, raw: tuple[float, ...], expected: Float64, rose: bool, step: int) -> Sighting:
        usual = float(expected[i] if i == 0 else np.exp(expected[i]))
        side = "above" if rose else "below"
        message = f"{_NAMES[i]} stays {side} its forecast: {amount(raw[i])} instead of {amount(usual)}"
        evidence = Evidence(tag=_SERIES[i], step=step, value=raw[i], expected=usual)
        return Sighting(Severity.INFO, message, evidence=(evidence,))
