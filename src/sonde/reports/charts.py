"""Curves over steps, drawn as inline SVG. Colours are classes of the page's style sheet, so that both themes fit."""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64
from sonde.reports.escaping import escape
from sonde.reports.scales import Scale, fitting

_LEFT, _RIGHT, _BOTTOM = 62.0, 26.0, 40.0
_LETTER, _BOLD = 6.6, 7.6  # mean width of a letter of the labels, in units of the picture
_FEW = 40  # values: so few are shown each
_NOTHING = np.empty(0)


class LineStyle(enum.StrEnum):
    """How a curve is drawn; the value is its class."""

    MAIN = "main"
    SECOND = "second"
    FAINT = "faint"
    """Raw values behind their average."""
    DASHED = "dashed"
    DOTS = "dots"
    """Few values, joined by a thin line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Values over steps.

    Args:
        label: What the legend calls it.
        step: Rising.
        value: One a step; NaN makes a gap.
        low: Least value that each of `value` stands for, where it stands for several; drawn as a shade up to `high`.
        high: The largest.
        lost: Steps at which NaN or infinity was measured; marked at the top.
        look: How it is drawn.
    """

    label: str
    step: Float64
    value: Float64
    low: Float64 = field(default_factory=lambda: _NOTHING)
    high: Float64 = field(default_factory=lambda: _NOTHING)
    lost: Float64 = field(default_factory=lambda: _NOTHING)
    look: LineStyle = LineStyle.MAIN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """A shaded range over steps: what is usual, or what is likely."""

    label: str
    step: Float64
    low: Float64
    high: Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A horizontal line."""

    label: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A vertical line."""

    label: str
    step: float
    is_alarm: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A value that is pointed at."""

    label: str
    step: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """A picture of curves over steps.

    Args:
        y_label: What is shown, with its unit.
        curves: The first is the one that it is about.
        bands: Behind the curves.
        levels: Values to hold the curves against.
        moments: Steps to hold them against.
        spots: Values to look at.
        is_log: Whether equal ratios get equal room; decided from the values where None.
        x_label: What the steps are.
    """

    y_label: str
    curves: tuple[Curve, ...]
    bands: tuple[Band, ...] = ()
    levels: tuple[Level, ...] = ()
    moments: tuple[Moment, ...] = ()
    spots: tuple[Spot, ...] = ()
    is_log: bool | None = None
    x_label: str = "training step"
    span: tuple[float, float] | None = None
    """First and last step to show; those of the curves where left out."""

    def y_scale(self) -> Scale:
        """The scale that holds all curves, levels and spots.

        Bands may reach beyond it, and so may a level far away where a logarithm is not possible.
        """
        own = np.concatenate([part for c in self.curves for part in (c.value, c.low, c.high)] or [_NOTHING])
        others = np.array([*(level.value for level in self.levels), *(spot.value for spot in self.spots)])
        values = np.concatenate([own, others])
        if self.is_log is None and not np.all(own[np.isfinite(own)] > 0):
            values = own  # a level must not stretch a scale that cannot become logarithmic
        return fitting(values, is_log=self.is_log)

    def x_scale(self) -> Scale:
        """The scale from the first step to the last."""
        if self.span is not None and self.span[0] < self.span[1]:
            return Scale(low=self.span[0], high=self.span[1])
        ends = [*(curve.step for curve in self.curves), *(curve.lost for curve in self.curves)]
        steps = np.concatenate([_NOTHING, *ends, *(band.step for band in self.bands)])
        if not len(steps):
            return Scale(low=0.0, high=1.0)
        low, high = float(steps.min()), float(steps.max())
        return Scale(low=low, high=high) if high > low else Scale(low=low - 1, high=high + 1)


def svg(chart: Chart, *, width: int = 560, height: int = 250) -> str:
    """The chart as an SVG element, for a page that has the classes of `report.css`."""
    return "".join(_Drawing(chart, width, height).parts())


class _Drawing:
    """A chart on its paper: turns steps and values into places."""

    def __init__(self, chart: Chart, width: int, height: int) -> None:
        self.chart, self.width, self.height = chart, width, height
        self.legend = list(self._legend())
        self.top = 28.0 + (18 if self.legend else 0) + (18 if chart.moments else 0)
        self.x, self.y = chart.x_scale(), chart.y_scale()

    def xs(self, steps: Float64) -> Float64:
        return _LEFT + (self.width - _LEFT - _RIGHT) * self.x.places(steps)

    def ys(self, values: Float64) -> Float64:
        bottom = self.height - _BOTTOM
        places = bottom - (bottom - self.top) * self.y.places(values)
        return np.clip(places, self.top - 1, bottom + 1)

    def parts(self) -> Iterator[str]:
        said = (
            f"{self.chart.y_label} over {self.chart.x_label}: {', '.join(curve.label for curve in self.chart.curves)}"
        )
        yield f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(said)}">'
        yield from self._axes()
        for band in self.chart.bands:
            yield self._area("band", band.step, band.low, band.high)
        for curve in self.chart.curves:
            yield from self._curve(curve)
        for level in self.chart.levels:
            yield from self._level(level)
        yield from self._moments()
        for spot in self.chart.spots:
            yield from self._spot(spot)
        yield from self._lost()
        yield from self._legend_parts()
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        left, right, bottom = _LEFT, self.width - _RIGHT, self.height - _BOTTOM
        for value in self.y.ticks(6):
            y = float(self.ys(np.array([value]))[0])
            yield f'<path class="grid" d="M{left} {y:.1f}H{right}"/>'
            yield _text(left - 7, y + 4, self.y.label(value), "tick end")
        for value in self.x.ticks(6):
            if value == int(value):
                x = float(self.xs(np.array([value]))[0])
                yield f'<path class="axis" d="M{x:.1f} {bottom}v4"/>'
                yield _text(x, bottom + 17, f"{int(value):,}", "tick middle")
        yield f'<path class="axis" d="M{left} {bottom}H{right}"/>'
        note = " (log scale)" if self.y.is_log else ""
        room = int((self.width - 8) / _LETTER) - len(note)
        yield _text(4, 15, shortened(self.chart.y_label, room) + note, "name")
        yield _text((left + right) / 2, self.height - 6, self.chart.x_label, "tick middle")

    def _area(self, kind: str, step: Float64, low: Float64, high: Float64) -> str:
        parts = []
        for run in _runs(np.isfinite(low) & np.isfinite(high)):
            x, up, down = self.xs(step[run]), self.ys(high[run]), self.ys(low[run])
            there = " ".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, up, strict=True))
            back = " ".join(f"{a:.1f} {b:.1f}" for a, b in zip(x[::-1], down[::-1], strict=True))
            parts.append(f"M{there}L{back}Z")
        return f'<path class="{kind}" d="{"".join(parts)}"/>' if parts else ""

    def _curve(self, curve: Curve) -> Iterator[str]:
        if len(curve.low):
            yield self._area("shade", curve.step, curve.low, curve.high)
        x, y = self.xs(curve.step), self.ys(curve.value)
        parts, alone = [], []
        for run in _runs(np.isfinite(y)):
            parts.append("M" + " ".join(f"{a:.1f} {b:.1f}" for a, b in zip(x[run], y[run], strict=True)))
            if run.stop - run.start == 1:
                alone.append(run.start)
        if parts:
            yield f'<path class="curve {curve.look}" d="{"".join(parts)}"/>'
        dotted = curve.look is LineStyle.DOTS or (curve.look is LineStyle.MAIN and len(y) <= _FEW)
        for i in np.flatnonzero(np.isfinite(y)) if dotted else alone:
            yield f'<circle class="dot {curve.look}" cx="{x[i]:.1f}" cy="{y[i]:.1f}" r="2.6"/>'

    def _level(self, level: Level) -> Iterator[str]:
        if 0 <= self.y.place(level.value) <= 1:
            y = float(self.ys(np.array([level.value]))[0])
            yield f'<path class="level" d="M{_LEFT} {y:.1f}H{self.width - _RIGHT}"/>'
            below = y < self.top + 14
            yield _text(self.width - _RIGHT - 3, y + (14 if below else -5), level.label, "note end")

    def _moments(self) -> Iterator[str]:
        taken = -1e9  # right end of the labels written so far
        for moment in sorted(self.chart.moments, key=lambda moment: moment.step):
            if not 0 <= self.x.place(moment.step) <= 1:
                continue
            x, kind = float(self.xs(np.array([moment.step]))[0]), "alarm" if moment.is_alarm else "calm"
            yield f'<path class="moment {kind}" d="M{x:.1f} {self.top - 6}V{self.height - _BOTTOM}"/>'
            room = _BOLD * len(moment.label)
            start = min(x - 3, self.width - 4 - room)
            if start > taken:
                yield _text(start, self.top - 10, moment.label, f"note {kind}")
                taken = start + room + 8

    def _spot(self, spot: Spot) -> Iterator[str]:
        if not (
            np.isfinite(spot.value) and 0 <= self.x.place(spot.step) <= 1 and np.isfinite(self.y.place(spot.value))
        ):
            return
        x, y = float(self.xs(np.array([spot.step]))[0]), float(self.ys(np.array([spot.value]))[0])
        side = "end" if x > 0.6 * self.width else ""
        yield f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        down = 16 if y < self.top + 14 else -7
        yield _text(x + (-8 if side else 8), y + down, spot.label, f"note alarm {side}")

    def _lost(self) -> Iterator[str]:
        y = self.top + 5
        steps = np.unique(np.concatenate([_NOTHING, *(curve.lost for curve in self.chart.curves)]))
        if not len(steps):
            return
        x = self.xs(steps)
        gaps = np.flatnonzero(np.diff(x) > 6)
        for first, last in zip(x[[0, *(gaps + 1)]], x[[*gaps, -1]], strict=True):
            if last - first < 6:
                yield f'<path class="lost" d="M{first - 4:.1f} {y - 4}l8 8m0 -8l-8 8"/>'
            else:
                yield f'<path class="lost wide" d="M{first:.1f} {y}H{last:.1f}"/>'

    def _legend(self) -> Iterator[tuple[str, str]]:
        entries = [(curve.label, f"curve {curve.look}") for curve in self.chart.curves]
        if len(entries) > 1:
            yield from entries
        for band in self.chart.bands:
            yield band.label, "band"
        if any(len(curve.lost) for curve in self.chart.curves):
            yield "NaN or infinite", "lost"

    def _legend_parts(self) -> Iterator[str]:
        x = _LEFT
        for label, kind in self.legend:
            if kind == "band":
                yield f'<rect class="band" x="{x}" y="22" width="20" height="11"/>'
            elif kind == "lost":
                yield f'<path class="lost" d="M{x + 6} 24l8 8m0 -8l-8 8"/>'
            else:
                yield f'<path class="{kind}" d="M{x} 28h20"/>'
            yield _text(x + 25, 32, label, "note")
            x += 25 + _LETTER * len(label) + 14


def shortened(text: str, most: int) -> str:
    """Text of at most so many letters, the middle left out.

    Example:
        >>> shortened("Gradient size of blocks.0.weight", 16)
        'Gradien….0.weight'
    """
    if len(text) <= most:
        return text
    half = max(1, most // 2)
    return f"{text[: half - 1]}…{text[len(text) - half - 1 :]}"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _runs(there: npt.NDArray[np.bool_]) -> Iterable[slice]:
    """The stretches of consecutive True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], there, [False])).astype(np.int8)))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
