"""Drives a signal over a whole series, as the diagnosis does a row at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.signals.signal import Signal, TimedSignal


def rows(series: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """A series of one tag, or a row a step, as rows."""
    array = np.asarray(series, np.float64)
    return array[:, None] if array.ndim == 1 else array


def run(signal: Signal, series: npt.ArrayLike) -> list[Any]:
    """The results of a signal at every step."""
    given = rows(series)
    state, outs = signal.init(given.shape[1]), []
    for row in given:
        state, out = signal.step(state, row)
        outs.append(out)
    return outs


def run_timed(signal: TimedSignal, series: npt.ArrayLike, steps: npt.ArrayLike | None = None) -> list[Any]:
    """The same for a signal that is told the steps, 0, 1, 2 … where none are given."""
    given = rows(series)
    state, outs = signal.init(given.shape[1]), []
    for at, row in zip(np.arange(len(given)) if steps is None else np.asarray(steps), given, strict=True):
        state, out = signal.step(state, row, int(at))
        outs.append(out)
    return outs


def correlated(rng: np.random.Generator, shape: tuple[int, int], phi: float) -> npt.NDArray[np.float64]:
    """Noise of variance 1 whose successive rows have a correlation of phi."""
    noise = rng.normal(size=shape)
    for i in range(1, len(noise)):
        noise[i] = phi * noise[i - 1] + np.sqrt(1 - phi**2) * noise[i]
    return noise
