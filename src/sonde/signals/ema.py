"""An exponential moving average that is right from the first value on."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64
from sonde.signals import windows


class EmaState(NamedTuple):
    """The raw average of each tag and how many values it has seen."""

    raw: Float64
    num_values: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ema:
    """Smooths series: m ← β·m + (1−β)·x, divided by 1 − β^t, so that the first values count in full.

    β weighs the *old* value: the window, and the lag, are about 1/(1−β) steps. On white noise the variance of the
    result is (1−β)/(1+β) of the raw one, 0.5% at β = 0.99. A value that is NaN or infinite, or was not measured, leaves
    the average as it is.

    Args:
        decay: β, in [0.95, 0.999]; larger is smoother and later.

    Example:
        >>> ema = Ema(decay=0.95)
        >>> state = ema.init(1)
        >>> for x in (1.0, 3.0, float("nan")):
        ...     state, smooth = ema.step(state, np.array([x]))
        >>> smooth.round(3)
        array([2.026])
    """

    decay: float = 0.99

    def __post_init__(self) -> None:
        if not 0.95 <= self.decay <= 0.999:
            raise ValueError(f"`Ema(decay=...)` must be in [0.95, 0.999], got {self.decay}.")

    def init(self, num_tags: int) -> EmaState:
        """The state before the first value."""
        return EmaState(np.zeros(num_tags), np.zeros(num_tags, np.int64))

    def step(self, state: EmaState, values: Float64) -> tuple[EmaState, Float64]:
        """Take a value of each tag; the averages, NaN where there was no value yet."""
        if len(values) <= windows.FEW:
            return self._few(state, values)
        taken = np.isfinite(values)
        raw = np.where(taken, self.decay * state.raw + (1 - self.decay) * np.where(taken, values, 0.0), state.raw)
        count = state.num_values + taken
        with np.errstate(invalid="ignore", divide="ignore"):
            smooth: Float64 = np.where(count > 0, raw / (1 - self.decay**count), np.nan)
        return EmaState(raw, count), smooth

    def _few(self, state: EmaState, values: Float64) -> tuple[EmaState, Float64]:
        raws, counts, smooth = state.raw.tolist(), state.num_values.tolist(), []
        for tag, value in enumerate(values.tolist()):
            raws[tag], counts[tag], average = self.one(value, raws[tag], counts[tag])
            smooth.append(average)
        return EmaState(np.array(raws, np.float64), np.array(counts, np.int64)), np.array(smooth, np.float64)

    def one(self, value: float, raw: float, num_values: int) -> tuple[float, int, float]:
        """The state of one tag after this value, and its average."""
        if math.isfinite(value):
            raw = self.decay * raw + (1 - self.decay) * value
            num_values += 1
        return raw, num_values, raw / (1 - self.decay**num_values) if num_values else math.nan
