"""Series as columns of numbers, at any zoom."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64, Int64
from sonde.core.strict_json import Json
from sonde.server import binary
from sonde.store.reader import Run

_MOST_LOST = 200


class _Curve(NamedTuple):
    header: dict[str, Json]
    columns: list[npt.NDArray[np.float64]]


def series(
    run: Run, tags: Sequence[str], *, start: float | None, end: float | None, points: int, by_time: bool
) -> bytes:
    """Windows of series, a block a tag: step or time, mean, low and high of each bucket.

    Args:
        run: The run.
        tags: The series; one that the run does not have is a block without values, and says so.
        start: First step wanted, or time in UTC seconds.
        end: Last step or time wanted, included.
        points: The most buckets of a series.
        by_time: Whether the first column is the time.
    """
    made = [_curve(run, tag, start, end, points, by_time) for tag in tags]
    headers: list[Json] = []
    offset = 0
    for curve in made:
        headers.append({**curve.header, "offset": offset})
        offset += sum(column.nbytes for column in curve.columns)
    return binary.packed({"schema": 1, "series": headers}, [column for curve in made for column in curve.columns])


def _curve(run: Run, tag: str, start: float | None, end: float | None, points: int, by_time: bool) -> _Curve:
    header: dict[str, Any] = {"tag": tag, "n": 0, "columns": ["time" if by_time else "step", "mean", "low", "high"]}
    header |= {"exact": True, "last_step": None, "nonfinite": 0, "lost": []}
    if not run.has(tag):
        return _Curve({**header, "reason": f"the run has no series {tag!r}"}, [])
    clock = run.clock(tag) if by_time else None
    first, last = (_step_at(clock, start), _step_at(clock, end)) if clock else (_whole(start), _whole(end, up=True))
    window = run.window(tag, first, last, points)
    newest = run.latest([tag]).get(tag)
    if not len(window.step):
        return _Curve({**header, "reason": "nothing was measured there", "last_step": newest and newest.step}, [])
    counts = window.finite + window.nonfinite
    lost = np.flatnonzero(window.nonfinite)
    header |= {
        "n": len(window.step),
        "exact": bool((counts <= 1).all()),
        "last_step": None if newest is None else newest.step,
        "nonfinite": int(window.nonfinite.sum()),
        "lost": window.step[lost[:_MOST_LOST]].tolist(),
    }
    at = window.step.astype(np.float64) if clock is None else _times(run, tag, window.step, clock, header["exact"])
    return _Curve(header, [binary.float64(column) for column in (at, window.mean, window.min, window.max)])


def _whole(step: float | None, *, up: bool = False) -> int | None:
    """A bound as a step: what lies between two steps is the next one inside of the window."""
    if step is None:
        return None
    return int(np.floor(step)) if up else int(np.ceil(step))


def _step_at(clock: tuple[Int64, Float64], time: float | None) -> int | None:
    """About the step that was under way at a time."""
    steps, times = clock
    if time is None or not len(steps):
        return None
    return int(np.interp(time, np.maximum.accumulate(times), steps))


def _times(run: Run, tag: str, steps: Int64, clock: tuple[Int64, Float64], exact: bool) -> Float64:
    if exact:  # every row was read: their own times are at hand
        found = run.series(tag, start=int(steps[0]), end=int(steps[-1]))
        if np.array_equal(found.step, steps):
            return found.time
    return np.interp(steps, *clock)
