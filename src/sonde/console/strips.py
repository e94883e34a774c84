"""The layers of a model in a row of cells: how large their gradients are, and which of them are ill."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from sonde.console.glyphs import Glyphs
from sonde.console.view import Layers
from sonde.core.sparkline import level

WARNING, CRITICAL, LOST, ZERO, NONE, FINE = "warning", "critical", "nonfinite", "zero", "not measured", "ok"
SIGNS = {WARNING: "!", CRITICAL: "X", LOST: "N", ZERO: "0"}
"""The same with and without Unicode; those that are fine have the height of their gradient instead."""

_SEVERITY = {CRITICAL: 2, WARNING: 1}
_LEAST_DECADES = 2.0  # layers whose gradients are about the same should look so


class Cell(NamedTuple):
    """A layer, or several that stand side by side."""

    sign: str
    health: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """A row of cells.

    Args:
        cells: First layer first.
        layers_per_cell: The last cell may have fewer.
        low: The smallest gradient that is finite and not zero; None where there is none.
        high: The largest.
    """

    cells: tuple[Cell, ...]
    layers_per_cell: int
    low: float | None
    high: float | None


def strip(layers: Layers, *, width: int, glyphs: Glyphs) -> Strip:
    """The layers in at most `width` cells; several share one where there are more.

    A cell shows the worst of its layers: an open critical alarm that names it (`X`), a gradient that is not finite
    (`N`), a warning (`!`), a gradient of exactly zero (`0`). Where all are fine its height is the logarithm of the
    gradient, the geometric mean of several, between the smallest and the largest of the model; they are taken to be two
    decades apart at least.

    Example:
        >>> from sonde.console.glyphs import ASCII
        >>> layers = Layers(names=("a", "b", "c", "d"), values=(1.0, 0.01, 0.0, float("nan")), marks=("", "", "", ""))
        >>> "".join(cell.sign for cell in strip(layers, width=8, glyphs=ASCII).cells)
        '@_0N'
        >>> strip(layers, width=2, glyphs=ASCII).layers_per_cell
        2
    """
    num = len(layers.names)
    if not num or width < 1:
        return Strip(cells=(), layers_per_cell=1, low=None, high=None)
    good = [value for value in layers.values if value is not None and math.isfinite(value) and value > 0]
    low, high = min(good, default=None), max(good, default=None)
    per = -(-num // width)
    bottom, span = 0.0, 1.0
    if low is not None and high is not None:
        span = max(_LEAST_DECADES, math.log10(high) - math.log10(low))
        bottom = (math.log10(high) + math.log10(low) - span) / 2
    cells = tuple(_cell(layers, slice(at, at + per), bottom, span, glyphs) for at in range(0, num, per))
    return Strip(cells=cells, layers_per_cell=per, low=low, high=high)


def _cell(layers: Layers, some: slice, bottom: float, span: float, glyphs: Glyphs) -> Cell:
    worst = max((_SEVERITY.get(mark, 0) for mark in layers.marks[some]), default=0)
    values = [value for value in layers.values[some] if value is not None]
    if worst == _SEVERITY[CRITICAL]:
        return Cell(SIGNS[CRITICAL], CRITICAL)
    if not all(map(math.isfinite, values)):
        return Cell(SIGNS[LOST], LOST)
    if worst:
        return Cell(SIGNS[WARNING], WARNING)
    if not values:
        return Cell(glyphs.none, NONE)
    positive = [math.log10(value) for value in values if value > 0]
    if len(positive) < len(values):
        return Cell(SIGNS[ZERO], ZERO)
    return Cell(level((sum(positive) / len(positive) - bottom) / span, glyphs.levels), FINE)
