"""The few series that a table of runs shows, at the price of the one table in which they are as a rule."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from sonde.core.errors import StoreError
from sonde.core.frames import is_missing
from sonde.store import branches, layout
from sonde.store.reader import Run
from sonde.store.table_reader import TableReader

_ESSENTIAL = "step"
_SHOWN = ("loss", "lr", "time/step")
_MUCH = 64 << 10  # bytes of tags: a search costs less than reading all


class Glance(NamedTuple):
    """Of a run: its loss in a few buckets (NaN where not finite), and its newest numbers; None where not recorded."""

    curve: tuple[float, ...] = ()
    lr: float | None = None
    step_s: float | None = None


def glance(run: Path, *, points: int) -> Glance:
    """The loss in at most so many buckets, the learning rate and the seconds of a step.

    Never raises for a run that is damaged: what cannot be read is left out.
    """
    table = TableReader(run / layout.TABLES / _ESSENTIAL)
    places = _places(table)
    loss = places.get("loss")
    if loss is None:
        return _from_all(run, points)
    try:
        known = branches.read(run)
        line = branches.line(known, known[-1].number)
        window = table.window(loss, line, None, None, points)
        columns = {tag: column for tag, column in places.items() if tag != "loss"}
        newest = table.latest(list(columns.values()), line)
        tags = list(columns)
        found = {tags[at]: float(newest.value[at]) for at in np.flatnonzero(~is_missing(newest.value)).tolist()}
    except (OSError, ValueError):
        return Glance()
    return Glance(_curve(window.mean.tolist(), window.nonfinite), found.get("lr"), found.get("time/step"))


def _places(table: TableReader) -> dict[str, int]:
    """The columns of the tags that are shown."""
    if table.columns.num_bytes > _MUCH:
        found = {tag: table.columns.find(tag) for tag in _SHOWN}
        return {tag: column for tag, column in found.items() if column is not None}
    return {tag: column for column, tag in enumerate(table.columns.tags()) if tag in _SHOWN}


def _from_all(run: Path, points: int) -> Glance:
    """Of a run that somebody else recorded, with tables of their own."""
    try:
        opened = Run(run)
        newest = opened.latest(_SHOWN)
        told = {tag: point.value for tag, point in newest.items()}
        if "loss" not in told:
            return Glance((), told.get("lr"), told.get("time/step"))
        window = opened.window("loss", points=points)
    except (StoreError, OSError, ValueError):
        return Glance()
    return Glance(_curve(window.mean.tolist(), window.nonfinite), told.get("lr"), told.get("time/step"))


def _curve(means: list[float], nonfinite: np.ndarray) -> tuple[float, ...]:
    return tuple(np.nan if lost else mean for mean, lost in zip(means, nonfinite.tolist(), strict=True))
