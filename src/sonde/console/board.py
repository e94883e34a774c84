"""Gathers what is shown of a training from its rows as they come."""

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple, TypeVar, final

from sonde.console.coarse_series import CoarseSeries
from sonde.console.layers import Roster
from sonde.console.paces import Pace
from sonde.console.reading import curve_tag, view_of
from sonde.console.view import View
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Detail, Frame, is_missing
from sonde.core.records import Point

T = TypeVar("T")

_MOST_ROWS = 64
"""Which series a row has may change at every step."""
_RATES = ("throughput/samples_per_s", "throughput/tokens_per_s")
_SHARE_OF_NEWEST = 0.1  # of a rate: that of a single step jumps


class _Places(NamedTuple):
    """Where, in a row of a step, the numbers are that are followed from row to row."""

    loss: int | None
    rates: tuple[tuple[str, int], ...]


@final
class Board:
    """Told rows by one thread, asked for views by another.

    Args:
        run: Name or folder of the run.
        began: When, in UTC seconds.
        total_steps: How many there will be, where that is known.
        total_epochs: Likewise.
    """

    def __init__(
        self, run: str, *, began: float, total_steps: int | None = None, total_epochs: int | None = None
    ) -> None:
        self._run, self._began = run, began
        self._total_steps, self._total_epochs = total_steps, total_epochs
        self._lock = threading.Lock()
        self._newest: dict[Columns, Frame] = {}
        self._newest_of_layers: dict[Columns, Frame] = {}
        self._places: dict[Columns, _Places] = {}
        self._rates: dict[str, float] = {}
        self._course, self._pace, self._roster = CoarseSeries(), Pace(), Roster()
        self._last: dict[str, Point] = {}
        self._step, self._time = 0, began
        self.num_steps = 0
        """Steps taken so far: whether there is anything new."""

    def take(self, frame: Frame) -> None:
        """A row, on the thread that records it; hardly anything is worked out here."""
        columns = frame.columns
        with self._lock:
            if columns.detail is Detail.ESSENTIAL:
                if columns.table == "step":
                    self._take_step(frame)
                _keep(self._newest, columns, frame)
            elif columns.bins == 1 and columns.table.startswith("gradients"):
                _keep(self._newest_of_layers, columns, frame)

    def _take_step(self, frame: Frame) -> None:
        places = self._places.get(frame.columns)
        if places is None:
            places = _places(frame.columns.tags)
            _keep(self._places, frame.columns, places)
        if places.loss is not None:
            self._course.put(float(frame.values[places.loss]))
        for tag, place in places.rates:
            value = float(frame.values[place])
            before = self._rates.get(tag, value)
            self._rates[tag] = before + _SHARE_OF_NEWEST * (value - before)
        self._step, self._time = frame.step, frame.time
        self._pace.put(frame.time, frame.step)
        self.num_steps += 1

    def view(self, now: float, findings: Sequence[Finding] | None) -> View:
        """What is to be shown now.

        Args:
            now: UTC seconds.
            findings: All of them, open or closed; None where nobody looks for any.
        """
        with self._lock:
            frames, self._newest = list(self._newest.values()), {}
            of_layers, self._newest_of_layers = list(self._newest_of_layers.values()), {}
            curve, step, when, rates = self._course.columns, self._step, self._time, dict(self._rates)
            steps_per_s = self._pace.per_s
        for frame in sorted(frames, key=lambda frame: frame.step):
            self._note(frame)
        for frame in sorted(of_layers, key=lambda frame: frame.step):
            self._roster.take(frame)
        for tag, value in rates.items():
            if math.isfinite(value):
                self._last[tag] = Point(step, value, when)
        return view_of(
            self._last,
            run=self._run,
            step=step,
            total_steps=self._total_steps,
            total_epochs=self._total_epochs,
            elapsed_s=now - self._began,
            silent_s=now - when,
            steps_per_s=steps_per_s,
            curve=curve,
            findings=findings,
            roster=self._roster,
        )

    def _note(self, frame: Frame) -> None:
        there = (~is_missing(frame.values)).tolist()
        for tag, value, is_there in zip(frame.columns.tags, frame.values.tolist(), there, strict=True):
            if is_there:
                self._last[tag] = Point(frame.step, value, frame.time)


def _keep(kept: dict[Columns, T], columns: Columns, what: T) -> None:
    if len(kept) >= _MOST_ROWS and columns not in kept:
        kept.clear()
    kept[columns] = what


def _places(tags: Sequence[str]) -> _Places:
    curve = curve_tag(tags)
    loss = None if curve is None else tags.index(curve)
    return _Places(loss, tuple((tag, i) for i, tag in enumerate(tags) if tag in _RATES))
