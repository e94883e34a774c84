"""Axes: where a value lies in a picture, and which values are written beside it."""

import math
from dataclasses import dataclass

import numpy as np

from sonde.core.quantities import number
from sonde.core.records import Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps [low, high] to [0, 1], straight or by the logarithm.

    Args:
        low: Above 0 where `is_log`.
        high: Above `low`.
        is_log: Whether equal ratios get equal room.

    Example:
        >>> Scale(low=1.0, high=100.0, is_log=True).place(10.0)
        0.5
    """

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`."""
        return float(self.places(np.array([value]))[0])

    def places(self, values: Float64) -> Float64:
        """Where values lie; NaN where there is no place for them."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.is_log:
                logs = np.log(np.where(values > 0, values, np.nan))
                found: Float64 = (logs - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
            else:  # halved, or the range of the largest numbers overflows
                found = (values / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return found

    def ticks(self, most: int) -> list[float]:
        """Round values in the range, at most about `most`, at least two where the range allows."""
        if self.is_log and len(ticks := self._log_ticks(most)) > 1:
            return ticks
        size = (self.high - self.low) / most
        if not math.isfinite(size) or size <= 0:
            return [self.low, self.high]
        unit = 10.0 ** math.floor(math.log10(size))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= size * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        low, high = math.log10(self.low), math.log10(self.high)
        if high - low < 1:
            candidates = [m * 10.0**e for e in range(math.floor(low), math.ceil(high)) for m in (1, 2, 3, 5, 7)]
        elif high - low < 2:
            candidates = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 3)]
        else:
            stride = max(1, math.ceil((high - low) / most))
            candidates = [10.0**e for e in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1, stride)]
        return [value for value in candidates if self.low * 0.999 <= value <= self.high * 1.001]

    def label(self, value: float) -> str:
        """A tick's value as it is written."""
        if not self.is_log and abs(value) < abs(self.high - self.low) * 1e-9:
            return "0"
        return f"{int(value):,}" if value == int(value) and abs(value) < 1e6 else number(value, largest=1e6)


def fitting(values: Float64, *, is_log: bool | None = None) -> Scale:
    """The scale that holds all finite values, with a little room; logarithmic where they are positive and span decades.

    Args:
        values: What is to be shown.
        is_log: Decided from the values where None; True is overruled where a value is not positive.

    Example:
        >>> fitting(np.array([1e-3, 10.0])).is_log, fitting(np.array([1.0, 10.0])).is_log
        (True, False)
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Scale(low=0.0, high=1.0)
    low, high = float(finite.min()), float(finite.max())
    positive = low > 0
    if positive and (high > 50 * low if is_log is None else is_log):
        margin = max((high / low) ** 0.04, 1.02)
        return Scale(low=low / margin, high=high * margin, is_log=True)
    margin = high * 0.05 - low * 0.05
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # as good as constant: rounding is no curve
        margin = max(abs(high) * 0.1, 1e-12)
    padded = low - margin
    return Scale(low=0.0 if low >= 0 > padded else padded, high=high + margin)
