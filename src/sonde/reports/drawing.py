"""A chart as shapes."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from sonde.core import palette
from sonde.core.records import Float64
from sonde.reports.charts import STEP, Chart, Curve, Level, LineStyle, Moment, Spot
from sonde.reports.shapes import ALARM, BOLD, LETTER, SOFT, STRONG, Drawing, Paint, Shape, shortened, writing

_RIGHT, _BOTTOM, _ROW = 22.0, 40.0, 18.0
_FEW = 40  # values: so few are shown each
_NOTHING = np.empty(0)
_LINES: dict[LineStyle, dict[str, object]] = {
    LineStyle.MAIN: {"stroke-width": 1.8},
    LineStyle.FAINT: {"stroke-width": 1, "stroke-opacity": 0.45},
    LineStyle.DASHED: {"stroke-width": 1.8, "stroke-dasharray": "6 4"},
    LineStyle.DOTTED: {"stroke-width": 1.3, "stroke-dasharray": "1 4"},
    LineStyle.POINTS: {"stroke-width": 1.2},
}
_GRID, _AXIS = Paint(stroke="grid"), Paint(stroke="line")
_BAND, _SHADE = Paint(fill="band", more={"fill-opacity": 0.7}), {"fill-opacity": 0.16}
_LEVEL = Paint(stroke="healthy", more={"stroke-dasharray": "4 4"})
_CALM = Paint(stroke="soft", more={"stroke-dasharray": "3 3"})
_BEGINS = Paint(stroke="critical", more={"stroke-width": 1.4})
_LOST = Paint(stroke="critical", more={"stroke-width": 2.2})
_SPOT = Paint(stroke="critical", more={"stroke-width": 2})


def drawn(chart: Chart, *, width: int = 560, height: int = 250) -> Drawing:
    """The chart on paper of that size."""
    plot = _Plot(chart, width, height)
    curves = ", ".join(curve.label for curve in chart.curves if curve.label)
    return Drawing(
        label=f"{chart.y_label} over {chart.x_label}: {curves}",
        width=width,
        height=height,
        shapes=tuple(plot.shapes()),
        plot=plot.place,
    )


class _Plot:
    """A chart on its paper: turns steps and values into places."""

    def __init__(self, chart: Chart, width: int, height: int) -> None:
        self._chart, self._width = chart, width
        self._x, self._y = chart.x_scale(), chart.y_scale()
        self._values = [(value, self._y.label(value)) for value in self._y.ticks(6)]
        self._left = max(62.0, 18 + LETTER * max((len(label) for _, label in self._values), default=0))
        self._right, self._bottom = width - _RIGHT, height - _BOTTOM
        self._top = 28.0
        self._legend = list(self._legend_shapes())
        if self._legend:
            self._top += _ROW
        if chart.moments:
            self._top += _ROW

    @property
    def place(self) -> tuple[float, ...]:
        """As `Drawing.plot` has it."""
        x, y = self._x, self._y
        return self._left, self._right, self._top, self._bottom, x.low, x.high, y.low, y.high, float(y.is_log)

    def shapes(self) -> Iterator[Shape]:
        chart = self._chart
        yield from self._axes()
        for band in chart.bands:
            yield from self._area(_BAND, band.step, band.low, band.high, kind="band")
        for curve in chart.curves:
            yield from self._curve(curve)
        for level in chart.levels:
            yield from self._level(level)
        yield from self._moments()
        for spot in chart.spots:
            yield from self._spot(spot)
        yield from self._lost()
        yield from self._legend

    def _xs(self, steps: Float64) -> Float64:
        return self._left + (self._right - self._left) * self._x.places(steps)

    def _ys(self, values: Float64) -> Float64:
        places = self._bottom - (self._bottom - self._top) * self._y.places(values)
        return np.clip(places, self._top - 1, self._bottom + 1)

    def _at(self, step: float, value: float) -> tuple[float, float]:
        return float(self._xs(np.array([step]))[0]), float(self._ys(np.array([value]))[0])

    def _axes(self) -> Iterator[Shape]:
        for value, label in self._values:
            _, y = self._at(0.0, value)
            yield _GRID.path(f"M{self._left:.1f} {y:.1f}H{self._right}")
            yield writing(self._left - 7, y + 4, label, anchor="end")
        for step in self._x.ticks(6):
            if step == int(step) or self._chart.x_label != STEP:
                x, _ = self._at(step, 0.0)
                yield _AXIS.path(f"M{x:.1f} {self._bottom}v4")
                yield writing(x, self._bottom + 17, self._x.label(step), anchor="middle")
        yield _AXIS.path(f"M{self._left:.1f} {self._bottom}H{self._right}")
        note = " (log scale)" if self._y.is_log else ""
        room = int((self._width - 8) / BOLD) - len(note)
        yield writing(4, 15, shortened(self._chart.y_label, room) + note, STRONG)
        yield writing((self._left + self._right) / 2, self._bottom + 34, self._chart.x_label, anchor="middle")

    def _area(self, paint: Paint, step: Float64, low: Float64, high: Float64, *, kind: str) -> Iterator[Shape]:
        parts = []
        for run in _runs(np.isfinite(low) & np.isfinite(high)):
            x, up, down = self._xs(step[run]), self._ys(high[run]), self._ys(low[run])
            parts.append(f"M{_points(x, up)}L{_points(x[::-1], down[::-1])}Z")
        if parts:
            yield paint.path("".join(parts), kind=kind)

    def _curve(self, curve: Curve) -> Iterator[Shape]:
        colour = palette.series(curve.series)
        if len(curve.low):
            yield from self._area(Paint(fill=colour, more=_SHADE), curve.step, curve.low, curve.high, kind="shade")
        x, y = self._xs(curve.step), self._ys(curve.value)
        runs = list(_runs(np.isfinite(y)))
        if runs:
            line = "".join(f"M{_points(x[run], y[run])}" for run in runs)
            yield self._line(curve).path(line, kind=f"curve {curve.look}", label=curve.label)
        each = curve.look is LineStyle.POINTS or (curve.look is LineStyle.MAIN and len(y) <= _FEW)
        for i in np.flatnonzero(np.isfinite(y)) if each else [run.start for run in runs if run.stop == run.start + 1]:
            place = {"cx": f"{x[i]:.1f}", "cy": f"{y[i]:.1f}", "r": 2.6}
            yield Paint(fill=colour).on("circle", place, kind="point")

    def _line(self, curve: Curve) -> Paint:
        return Paint(stroke=palette.series(curve.series), more={"stroke-linejoin": "round", **_LINES[curve.look]})

    def _level(self, level: Level) -> Iterator[Shape]:
        if 0 <= self._y.place(level.value) <= 1:
            _, y = self._at(0.0, level.value)
            yield _LEVEL.path(f"M{self._left:.1f} {y:.1f}H{self._right}", kind="level")
            below = 14 if y < self._top + 14 else -5
            yield writing(self._right - 3, y + below, level.label, anchor="end")

    def _moments(self) -> Iterator[Shape]:
        taken = -1e9  # right end of the labels written so far
        for moment in sorted(self._chart.moments, key=lambda moment: moment.step):
            if not 0 <= self._x.place(moment.step) <= 1:
                continue
            x, _ = self._at(moment.step, 0.0)
            line, text = _paints(moment)
            yield line.path(f"M{x:.1f} {self._top - 6}V{self._bottom}", kind="moment")
            label = shortened(moment.label, int((self._right - self._left) / BOLD))
            room = BOLD * len(label)
            start = min(x - 3, self._width - 4 - room)
            if start > taken:
                yield writing(start, self._top - 10, label, text)
                taken = start + room + 8

    def _spot(self, spot: Spot) -> Iterator[Shape]:
        if 0 <= self._x.place(spot.step) <= 1 and np.isfinite(self._y.place(spot.value)):
            x, y = self._at(spot.step, spot.value)
            yield _SPOT.on("circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": 4}, kind="spot")
            at_end = x > 0.6 * self._width
            down = 16 if y < self._top + 14 else -7
            yield writing(x + (-8 if at_end else 8), y + down, spot.label, ALARM, anchor="end" if at_end else "start")

    def _lost(self) -> Iterator[Shape]:
        """Crosses and bars at the top; of several series below each other, each in its own colour."""
        steps: dict[int, Float64] = {}
        for curve in self._chart.curves:
            if len(curve.lost):
                steps[curve.series] = np.union1d(steps.get(curve.series, _NOTHING), curve.lost)
        is_alone = len({curve.series for curve in self._chart.curves if curve.look is LineStyle.MAIN}) < 2
        for place, (series, lost) in enumerate(sorted(steps.items())):
            colour = "critical" if is_alone else palette.series(series)
            x, y = self._xs(lost), self._top + 5 + 10 * place
            gaps = np.flatnonzero(np.diff(x) > 6)
            for first, last in zip(x[[0, *(gaps + 1)]], x[[*gaps, -1]], strict=True):
                is_short = last - first < 6
                d = _cross(first - 4, y - 4) if is_short else f"M{first:.1f} {y}H{last:.1f}"
                yield Paint(stroke=colour, more={"stroke-width": 2.2 if is_short else 6}).path(d, kind="lost")

    def _legend_shapes(self) -> Iterator[Shape]:
        """In as many rows as the labels need; `_top` is left at the last of them."""
        x, is_first = self._left, True
        for name, kind, paint in self._legend_entries():
            label = shortened(name, int((self._right - self._left - 25) / LETTER))
            room = 25 + LETTER * len(label) + 14
            if not is_first and x + room > self._width:
                x, self._top = self._left, self._top + _ROW
            is_first = False
            y = self._top
            d = {"band": f"M{x:.1f} {y - 6}h20v11h-20z", "lost": _cross(x + 6, y - 4)}.get(kind, f"M{x:.1f} {y}h20")
            yield paint.path(d, kind=f"key {kind}")
            yield writing(x + 25, y + 4, label)
            x += room

    def _legend_entries(self) -> Iterator[tuple[str, str, Paint]]:
        curves = [curve for curve in self._chart.curves if curve.label]
        for curve in curves if len(curves) > 1 else ():
            yield curve.label, "line", self._line(curve)
        for band in self._chart.bands:
            yield band.label, "band", _BAND
        if any(len(curve.lost) for curve in self._chart.curves):
            yield "NaN or infinite", "lost", _LOST


def _paints(moment: Moment) -> tuple[Paint, Paint]:
    """Of its line and of its label."""
    if moment.series is not None:
        colour = palette.series(moment.series)
        return Paint(stroke=colour, more={"stroke-dasharray": "5 4"}), SOFT
    return (_BEGINS, ALARM) if moment.is_alarm else (_CALM, SOFT)


def _cross(x: float, y: float) -> str:
    return f"M{x:.1f} {y}l8 8m0 -8l-8 8"


def _points(x: Float64, y: Float64) -> str:
    return " ".join(f"{a:.1f} {b:.2f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _runs(there: npt.NDArray[np.bool_]) -> Iterable[slice]:
    """The stretches of consecutive True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], there, [False])).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
