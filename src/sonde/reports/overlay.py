"""The curves of compared runs in one picture: an SVG file of its own, and a page around it."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sonde.core.records import Float64
from sonde.diagnosis.architecture import told
from sonde.reports.comparison import (
    Against,
    Comparison,
    Curve,
    health_rows,
    parting,
    setting_cells,
    verdict,
)
from sonde.reports.escaping import escape
from sonde.reports.scales import Scale, fitting

# Okabe and Ito's colours, which people who see fewer of them can tell apart; the yellow is too pale for a line.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_WIDTH, _LEFT, _RIGHT = 960.0, 76.0, 20.0
_CURVES_HEIGHT, _DIFFERENCE_HEIGHT = 300.0, 150.0
_BUCKETS = 240
_FEW = 60  # points that are drawn one by one
_LEGEND_ROW = 20.0
_LABEL_WIDTH = 140.0
_MOST_CHANGES = 200
_AXIS_NAMES = {"step": "training step", "time": "seconds since the start"}

_STYLE = """
body {
  font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff;
  max-width: 1000px; margin: 24px auto; padding: 0 20px;
}
h1 { font-size: 21px; }
h2 { font-size: 17px; margin-top: 32px; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 4px 18px 4px 0; border-bottom: 1px solid #e3e6ea; }
th { color: #59636e; font-weight: 600; }
ul { list-style: none; padding: 0; }
td, li { overflow-wrap: anywhere; }
.dot { display: inline-block; width: 11px; height: 11px; border-radius: 6px; margin-right: 7px; }
"""


def svg(comparison: Comparison) -> str:
    """The curves above, each one's difference from the reference below, as one SVG document.

    Above, a shade is the range of the values and a line their median, by stretches. Below, the dotted lines are the
    scatter of a single value. A vertical line says since when a run stays apart.
    """
    return "\n".join(_svg(comparison)) + "\n"


def html(comparison: Comparison) -> str:
    """The picture and everything that was found, as one page that needs nothing else."""
    return "\n".join(_page(comparison)) + "\n"


def _svg(comparison: Comparison) -> Iterator[str]:
    labels = [variant.label for variant in comparison.variants]
    legend, legend_height = _legend(labels)
    top = 44.0 + legend_height
    below = top + _CURVES_HEIGHT + 62
    height = below + _DIFFERENCE_HEIGHT + 48
    said = escape(f"{comparison.tag} of {', '.join(labels)}")
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img"'
        f' aria-label="{said}" font-family="system-ui, sans-serif" font-size="13">'
    )
    yield f'<rect width="{_WIDTH:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    curves = [_thin(variant.curve) for variant in comparison.variants]
    x = _span(np.concatenate([at for at, *_ in curves]))
    y = fitting(np.concatenate([part for _, low, middle, high in curves for part in (low, middle, high)]))
    upper = _Panel(x, y, top, _CURVES_HEIGHT)
    name = comparison.tag + (" (log scale)" if y.is_log else "")
    yield from upper.frame(name)
    yield from legend
    for i, (at, low, _, high) in enumerate(curves):
        yield upper.area(at, low, high, _colour(i))
    for i, (at, _, middle, _) in enumerate(curves):
        yield upper.line(at, middle, _colour(i))
    differences = [(other, other.contrast.difference) for other in comparison.against]
    scatters = [values for other in comparison.against for values in (other.contrast.scatter, -other.contrast.scatter)]
    zero = np.zeros(1)
    lower = _Panel(
        x, fitting(np.concatenate([zero, *(d for _, d in differences), *scatters])), below, _DIFFERENCE_HEIGHT
    )
    yield from lower.frame(f"difference from {labels[0]}; dotted: the scatter of a value")
    yield lower.line(np.array([x.low, x.high]), np.zeros(2), _colour(0))
    for other, difference in differences:
        contrast, colour = other.contrast, _colour(other.variant)
        for edge in (contrast.scatter, -contrast.scatter):
            yield lower.line(contrast.at, edge, colour, dash="1 4")
        yield lower.line(contrast.at, difference, colour)
    yield from _separations(comparison.against, upper, lower)
    for i, tick in enumerate(x.ticks(7)):
        place = lower.x(tick)
        yield f'<path d="M{place:.1f} {lower.bottom}v5" stroke="#8b949e"/>'
        yield _text(
            place, lower.bottom + 19, x.label(tick), anchor="start" if i == 0 and place < _LEFT + 4 else "middle"
        )
    yield _text(
        (_LEFT + _WIDTH - _RIGHT) / 2, height - 8, _AXIS_NAMES.get(comparison.by, comparison.by), anchor="middle"
    )
    yield "</svg>"


class _Panel:
    """A stretch of the picture with its own vertical axis."""

    def __init__(self, across: Scale, up: Scale, top: float, height: float) -> None:
        self._across, self._up = across, up
        self.top, self.bottom = top, top + height

    def x(self, value: float) -> float:
        return float(self._xs(np.array([value]))[0])

    def _xs(self, values: Float64) -> Float64:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * self._across.places(values)

    def _ys(self, values: Float64) -> Float64:
        return self.bottom - (self.bottom - self.top) * self._up.places(values)

    def frame(self, name: str) -> Iterator[str]:
        yield _text(_LEFT, self.top - 12, name, weight="600")
        for tick in self._up.ticks(5):
            y = float(self._ys(np.array([tick]))[0])
            yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e3e6ea"/>'
            yield _text(_LEFT - 8, y + 4, self._up.label(tick), anchor="end")

    def line(self, at: Float64, values: Float64, colour: str, *, dash: str = "") -> str:
        points = self._points(at, values)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        return (
            f'<path d="{points}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"{dashes}/>'
            if points
            else ""
        )

    def area(self, at: Float64, low: Float64, high: Float64, colour: str) -> str:
        there = np.isfinite(self._ys(low)) & np.isfinite(self._ys(high))
        if not there.any():
            return ""
        around = self._points(
            np.concatenate([at[there], at[there][::-1]]), np.concatenate([low[there], high[there][::-1]])
        )
        return f'<path d="{around}Z" fill="{colour}" opacity="0.14"/>'

    def _points(self, at: Float64, values: Float64) -> str:
        x, y = self._xs(at), self._ys(values)
        pen, words = "M", []
        for place, value in zip(x.tolist(), y.tolist(), strict=True):
            if not np.isfinite(value):
                pen = "M"
                continue
            words.append(f"{pen}{place:.1f} {value:.1f}")
            pen = "L"
        return "".join(words)


def _separations(against: Sequence[Against], upper: _Panel, lower: _Panel) -> Iterator[str]:
    labelled: list[float] = []
    for other in against:
        if (found := other.contrast.separation) is None:
            continue
        colour, x = _colour(other.variant), upper.x(found.since)
        yield f'<path d="M{x:.1f} {upper.top}V{lower.bottom}" stroke="{colour}" stroke-dasharray="5 4"/>'
        yield f'<path d="M{x - 5:.1f} {upper.top - 8}h10l-5 8z" fill="{colour}"/>'
        if all(abs(x - there) > _LABEL_WIDTH for there in labelled):
            at_edge = x > _WIDTH - _RIGHT - _LABEL_WIDTH
            side, anchor = (-9, "end") if at_edge else (9, "start")
            text = f"apart since {found.since:,.4g}" if found.since < 1000 else f"apart since {found.since:,.0f}"
            yield _text(x + side, upper.top - 2, text, anchor=anchor, colour=colour)
            labelled.append(x)


def _legend(labels: Sequence[str]) -> tuple[list[str], float]:
    """The names of the runs beside their colours, in as many rows as they need, and how high that is."""
    parts, x, y = [], _LEFT, 18.0
    for i, label in enumerate(labels):
        shown = (label if len(label) <= 60 else f"{label[:59]}…") + (" (reference)" if i == 0 else "")
        room = 44 + 7.2 * len(shown)
        if x > _LEFT and x + room > _WIDTH - _RIGHT:
            x, y = _LEFT, y + _LEGEND_ROW
        parts.append(f'<path d="M{x:.1f} {y - 4}h22" stroke="{_colour(i)}" stroke-width="3"/>')
        parts.append(_text(x + 29, y, shown))
        x += room
    return parts, y


def _thin(curve: Curve) -> tuple[Float64, Float64, Float64, Float64]:
    """A curve in at most `_BUCKETS` pieces: middle, lowest, median and highest value of each."""
    finite = np.isfinite(curve.value) & np.isfinite(curve.x)
    x, values = curve.x[finite], curve.value[finite]
    if not len(x):
        return np.empty(0), np.empty(0), np.empty(0), np.empty(0)
    num = len(x) if len(x) <= _FEW else min(_BUCKETS, len(x) // 4)
    cuts = np.linspace(0, len(x), num + 1).astype(np.int64)[1:-1]
    parts = np.split(values, cuts)
    at = np.array([part.mean() for part in np.split(x, cuts)])
    low, middle, high = (np.array([measure(part) for part in parts]) for measure in (np.min, np.median, np.max))
    return at, low, middle, high


def _span(values: Float64) -> Scale:
    """From the first place to the last."""
    if not len(values):
        return Scale(low=0.0, high=1.0)
    low, high = float(values.min()), float(values.max())
    return Scale(low=low, high=high) if high > low else Scale(low=low - 1, high=high + 1)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400", colour: str = "#3d444d") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}" fill="{colour}">{escape(text)}</text>'


def _page(comparison: Comparison) -> Iterator[str]:
    labels = [variant.label for variant in comparison.variants]
    title = escape(" · ".join(labels))
    # Nothing may be fetched or run, whatever a name in a run may hold.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>"
    yield f"<h1>{title}</h1>"
    yield _table(["run", "folder"], [[_dotted(i, v.label), escape(v.path)] for i, v in enumerate(comparison.variants)])
    yield f"<h2>{escape(comparison.tag)} by {escape(comparison.by)}</h2>"
    yield _list(comparison, lambda other: verdict(comparison, other))
    yield svg(comparison)
    yield "<h2>First difference</h2>"
    yield _list(
        comparison,
        lambda other: f"the run: {parting(other.whole, comparison.tolerance)}",
        lambda other: f"tensors: {parting(other.layers, comparison.tolerance)}",
    )
    yield "<h2>Health</h2>"
    yield _table(
        ["", *map(escape, labels)],
        [[escape(name), *map(escape, cells)] for name, cells in health_rows(comparison)],
    )
    yield "<h2>Configuration and environment</h2>"
    if comparison.settings:
        rows = [[escape(setting.key), *map(escape, setting_cells(setting))] for setting in comparison.settings]
        yield _table(["", *map(escape, labels)], rows)
    else:
        yield "<p>They are the same.</p>"
    for other in comparison.against:
        if changes := list(told(other.parameters, other.modules)):
            yield f"<h2>Model of {escape(labels[other.variant])}</h2>"
            if len(changes) > _MOST_CHANGES:
                changes[_MOST_CHANGES:] = [f"and {len(changes) - _MOST_CHANGES:,} more"]
            yield f"<ul>{''.join(f'<li>{escape(change)}</li>' for change in changes)}</ul>"
    yield "</body>\n</html>"


def _list(comparison: Comparison, *says: Callable[[Against], str]) -> str:
    """What each run's lines say, beside its colour."""
    items = []
    for other in comparison.against:
        lines = "<br>".join(escape(say(other)) for say in says)
        items.append(f"<li>{_dotted(other.variant, comparison.variants[other.variant].label)} {lines}</li>")
    return f"<ul>{''.join(items)}</ul>"


def _dotted(number: int, label: str) -> str:
    return f'<span class="dot" style="background:{_colour(number)}"></span><strong>{escape(label)}</strong>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    above = "".join(f"<th>{cell}</th>" for cell in head)
    below = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{above}</tr></thead><tbody>{below}</tbody></table>"
