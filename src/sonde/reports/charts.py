"""Curves over steps, and what they are held against; `sonde.reports.drawing` draws them."""

import enum
from dataclasses import dataclass, field

import numpy as np

from sonde.core.records import Float64
from sonde.reports.scales import Scale, fitting

STEP = "training step"
_NOTHING = np.empty(0)


class LineStyle(enum.StrEnum):
    """How a curve is drawn."""

    MAIN = "main"
    FAINT = "faint"
    """Raw values behind their average."""
    DASHED = "dashed"
    DOTTED = "dotted"
    """A limit of what is noise."""
    POINTS = "points"
    """Few values, joined by a thin line."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """Values over steps.

    Args:
        label: What the legend calls it; it is not in the legend where it has none.
        step: Rising.
        value: One a step; NaN makes a gap.
        low: Least value that each of `value` stands for, where it stands for several; drawn as a shade up to `high`.
        high: The largest.
        lost: Steps at which NaN or infinity was measured; marked at the top.
        look: How it is drawn.
        series: Its place among those of the picture that have a colour of their own.
    """

    label: str
    step: Float64
    value: Float64
    low: Float64 = field(default_factory=lambda: _NOTHING)
    high: Float64 = field(default_factory=lambda: _NOTHING)
    lost: Float64 = field(default_factory=lambda: _NOTHING)
    look: LineStyle = LineStyle.MAIN
    series: int = 0


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
    """A vertical line.

    Args:
        label: Written at its top.
        step: Where.
        is_alarm: Whether it is bad news.
        series: The curve that it is about, whose colour it then has.
    """

    label: str
    step: float
    is_alarm: bool = True
    series: int | None = None


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
        span: First and last step to show; those of the curves where left out.
    """

    y_label: str
    curves: tuple[Curve, ...]
    bands: tuple[Band, ...] = ()
    levels: tuple[Level, ...] = ()
    moments: tuple[Moment, ...] = ()
    spots: tuple[Spot, ...] = ()
    is_log: bool | None = None
    x_label: str = STEP
    span: tuple[float, float] | None = None

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
