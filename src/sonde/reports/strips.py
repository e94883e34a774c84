"""A heat strip: layers from top to bottom, time from left to right, a value by colour."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sonde.core.quantities import number
from sonde.core.records import Float64
from sonde.reports.charts import shortened
from sonde.reports.escaping import escape
from sonde.reports.scales import Scale

NUM_COLOURS = 9
_LETTER = 6.2
_MOST_LETTERS = 38


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
        """The colour of each value, 0 to `NUM_COLOURS` − 1 (NaN where it has none), and the borders between colours.

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
            shade = np.clip(np.floor((logs - low) / (high - low) * NUM_COLOURS), 0, NUM_COLOURS - 1)
        shade[~np.isfinite(self.values)] = np.nan
        return shade, 10.0 ** np.linspace(low, high, NUM_COLOURS + 1)


def svg(strip: Strip, *, width: int = 1120) -> str:
    """The strip as an SVG element, for a page that has the classes of `report.css`."""
    return "".join(_parts(strip, width))


def _parts(strip: Strip, width: int) -> Iterator[str]:
    row = 14.0 if len(strip.names) <= 30 else 10.0
    left = 20 + _LETTER * min(_MOST_LETTERS, max(map(len, strip.names), default=0))
    top, right = 42.0, 14.0
    bottom = top + row * len(strip.names)
    height = bottom + 40
    scale = Scale(low=float(strip.edges[0]), high=float(max(strip.edges[-1], strip.edges[0] + 1)))
    x = left + (width - left - right) * scale.places(strip.edges)
    shade, borders = strip.shades()
    said = f"{strip.label} of {len(strip.names)} parameters over training steps"
    yield f'<svg class="strip" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(said)}">'
    room = f'width="{width - left - right:.1f}" height="{bottom - top:.1f}"'
    yield f'<rect class="empty" x="{left:.1f}" y="{top}" {room}/>'
    lost = np.isinf(strip.values)
    for colour in range(NUM_COLOURS):
        if path := "".join(_cells(shade == colour, x, top, row)):
            yield f'<path class="heat{colour}" d="{path}"/>'
    if path := "".join(_cells(lost, x, top, row)):
        yield f'<path class="heat-lost" d="{path}"/>'
    for i, name in enumerate(strip.names):
        shown = shortened(name, _MOST_LETTERS)
        y = top + row * (i + 0.5) + 3.5
        yield f'<text class="tick end" x="{left - 7:.1f}" y="{y:.1f}">{escape(shown)}</text>'
    for value in scale.ticks(8):
        if value == int(value):
            at = left + (width - left - right) * scale.place(value)
            yield f'<text class="tick middle" x="{at:.1f}" y="{bottom + 16:.1f}">{int(value):,}</text>'
    middle = (left + width - right) / 2
    yield f'<text class="tick middle" x="{middle:.1f}" y="{bottom + 33:.1f}">training step</text>'
    yield from _key(strip, borders, left, lost=bool(lost.any()))
    yield "</svg>"


def _cells(there: Float64, x: Float64, top: float, row: float) -> Iterator[str]:
    """Rectangles over the cells that are True, neighbours of a row joined."""
    for i, line in enumerate(there):
        edges = np.flatnonzero(np.diff(np.concatenate(([False], line, [False])).astype(np.int8)))
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            yield f"M{x[first]:.1f} {top + row * i:.1f}H{x[last]:.1f}v{row - 1:.1f}H{x[first]:.1f}z"


def _key(strip: Strip, borders: Float64, left: float, *, lost: bool) -> Iterator[str]:
    yield f'<text class="name" x="4" y="15">{escape(strip.label)}</text>'
    at = left
    if len(borders):
        low, high = (number(float(f"{value:.2g}")) for value in (borders[0], borders[-1]))
        yield f'<text class="tick end" x="{at - 7:.1f}" y="32">{low}</text>'
        for colour in range(NUM_COLOURS):
            yield f'<rect class="heat{colour}" x="{at + 22 * colour:.1f}" y="22" width="22" height="12"/>'
        at += 22 * NUM_COLOURS
        yield f'<text class="tick" x="{at + 7:.1f}" y="32">{high}</text>'
        at += 7 + _LETTER * len(high) + 24
    if lost:
        yield f'<rect class="heat-lost" x="{at:.1f}" y="22" width="22" height="12"/>'
        yield f'<text class="tick" x="{at + 29:.1f}" y="32">NaN or infinite</text>'
        at += 29 + _LETTER * 15 + 24
    if np.isnan(strip.values).any():
        yield f'<rect class="empty" x="{at:.1f}" y="22" width="22" height="12"/>'
        yield f'<text class="tick" x="{at + 29:.1f}" y="32">not measured</text>'


def columns_of(first: int, last: int, *, most: int) -> Float64:
    """Edges of at most `most` columns of equal width from the first step to the last.

    Example:
        >>> columns_of(1, 10, most=4)
        array([ 1.,  4.,  7., 10., 13.])
    """
    width = max(1, math.ceil((last - first + 1) / most))
    return np.arange(first, last + width + 1, width, dtype=np.float64)
