"""A heat strip: layers from top to bottom, time from left to right, a value by colour."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sonde.core.palette import NUM_HEATS
from sonde.core.quantities import number
from sonde.core.records import Float64
from sonde.reports.charts import STEP
from sonde.reports.scales import Scale
from sonde.reports.shapes import STRONG, Drawing, Paint, Shape, shortened, writing

_TOP = 42.0
_LETTER = 6.2
_MOST_LETTERS = 38
_HEATS = tuple(Paint(fill=f"heat-{i}") for i in range(NUM_HEATS))
_LOST, _EMPTY = Paint(fill="critical"), Paint(fill="ground", stroke="line", more={"stroke-width": 0.5})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strip:
    """A table of values that becomes a picture.

    Args:
        names: Of the rows, top first.
        edges: Steps at which columns begin, and where the last one ends: one more than columns.
        values: A row a name, a column a stretch of steps; NaN where nothing was measured, infinite where it was not
            finite.
        label: What the colours say, with the unit.
    """

    names: tuple[str, ...]
    edges: Float64
    values: Float64
    label: str

    def shades(self) -> tuple[Float64, Float64]:
        """The colour of each value, 0 to `NUM_HEATS` − 1 (NaN where it has none), and the borders between colours.

        Colours go by the logarithm, from the 1st to the 99th percentile; values that are not positive get the lowest.
        """
        good = self.values[np.isfinite(self.values) & (self.values > 0)]
        if not len(good):
            return np.full(self.values.shape, np.nan), np.empty(0)
        low, high = (float(q) for q in np.percentile(np.log10(good), (1, 99)))
        if high - low < 0.5:  # a flat picture should look flat
            low, high = (low + high) / 2 - 0.25, (low + high) / 2 + 0.25
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log10(np.maximum(self.values, 10.0**low))
            shade = np.clip(np.floor((logs - low) / (high - low) * NUM_HEATS), 0, NUM_HEATS - 1)
        shade[~np.isfinite(self.values)] = np.nan
        return shade, 10.0 ** np.linspace(low, high, NUM_HEATS + 1)


def drawn(strip: Strip, *, width: int = 1120) -> Drawing:
    """The strip on paper of that width, as high as its rows need."""
    row = 14.0 if len(strip.names) <= 30 else 10.0
    return Drawing(
        label=f"{strip.label} of {len(strip.names)} parameters over training steps",
        width=width,
        height=round(_TOP + row * len(strip.names) + 40),
        shapes=tuple(_shapes(strip, width, row)),
    )


def _shapes(strip: Strip, width: int, row: float) -> Iterator[Shape]:
    left = 20 + _LETTER * min(_MOST_LETTERS, max(map(len, strip.names), default=0))
    across, bottom = width - left - 14, _TOP + row * len(strip.names)
    scale = Scale(low=float(strip.edges[0]), high=float(max(strip.edges[-1], strip.edges[0] + 1)))
    x = left + across * scale.places(strip.edges)
    shade, borders = strip.shades()
    yield _EMPTY.path(f"M{left:.1f} {_TOP}h{across:.1f}V{bottom:.1f}h{-across:.1f}z")
    lost = np.isinf(strip.values)
    for paint, there in (*((heat, shade == i) for i, heat in enumerate(_HEATS)), (_LOST, lost)):
        if cells := "".join(_cells(there, x, row)):
            yield paint.path(cells, kind="cells")
    for i, name in enumerate(strip.names):
        yield writing(left - 7, _TOP + row * (i + 0.5) + 3.5, shortened(name, _MOST_LETTERS), anchor="end")
    for value in scale.ticks(8):
        if value == int(value):
            yield writing(left + across * scale.place(value), bottom + 16, scale.label(value), anchor="middle")
    yield writing(left + across / 2, bottom + 33, STEP, anchor="middle")
    yield writing(4, 15, strip.label, STRONG)
    yield from _key(borders, left, lost=bool(lost.any()), gaps=bool(np.isnan(strip.values).any()))


def _cells(there: Float64, x: Float64, row: float) -> Iterator[str]:
    """Rectangles over the cells that are True, neighbours of a row joined."""
    for i, line in enumerate(there):
        edges = np.flatnonzero(np.diff(np.concatenate(([False], line, [False])).astype(np.int8)))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            yield f"M{x[first]:.1f} {_TOP + row * i:.1f}H{x[last]:.1f}v{row - 1:.1f}H{x[first]:.1f}z"


def _key(borders: Float64, left: float, *, lost: bool, gaps: bool) -> Iterator[Shape]:
    at = left
    if len(borders):
        low, high = (number(value, 2) for value in (float(borders[0]), float(borders[-1])))
        yield writing(at - 7, 32, low, anchor="end")
        for heat in _HEATS:
            yield heat.path(f"M{at:.1f} 22h22v12h-22z")
            at += 22
        yield writing(at + 7, 32, high)
        at += 7 + _LETTER * len(high) + 24
    for paint, label, is_there in ((_LOST, "NaN or infinite", lost), (_EMPTY, "not measured", gaps)):
        if is_there:
            yield paint.path(f"M{at:.1f} 22h22v12h-22z")
            yield writing(at + 29, 32, label)
            at += 29 + _LETTER * len(label) + 24


def columns_of(first: int, last: int, *, most: int) -> Float64:
    """Edges of at most `most` columns of equal width from the first step to the last.

    Example:
        >>> columns_of(1, 10, most=4)
        array([ 1.,  4.,  7., 10., 13.])
    """
    width = max(1, math.ceil((last - first + 1) / most))
    return np.arange(first, last + width + 1, width, dtype=np.float64)
