"""Series of a run as a figure of matplotlib (the extra `plot`)."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sonde.core.errors import TagNotFound
from sonde.core.optional import require
from sonde.core.tags import parse_tag

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sonde.store.reader import Run

MOST_SERIES = 200
_POINTS = 1000
_NAMED = 12  # lines that a legend can tell apart
_COLUMNS, _WIDTH, _HEIGHT = 2, 6.0, 2.8


def plot(
    run: "Run", tags: str | Sequence[str], *, start: int | None = None, end: int | None = None, scale: str = "linear"
) -> "Figure":
    """See `Run.plot`."""
    figure_of = require("matplotlib.figure", "plot").Figure
    wanted = run.tags(tags) if isinstance(tags, str) else list(tags)
    if not wanted:
        raise TagNotFound(f"{run.path} has no series that matches {tags!r}; `tags()` lists those that it has.")
    if len(wanted) > MOST_SERIES:
        raise ValueError(f"`plot(tags=...)` draws at most {MOST_SERIES} series, got {len(wanted):,}; name fewer.")
    panels: dict[str, list[str]] = {}
    for tag in wanted:
        panels.setdefault(parse_tag(tag).path, []).append(tag)
    num_columns = min(_COLUMNS, len(panels))
    num_rows = -(-len(panels) // num_columns)
    figure = figure_of(figsize=(_WIDTH * num_columns, _HEIGHT * num_rows), layout="constrained")
    axes = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True).reshape(-1)
    for axis, (path, members) in zip(axes, panels.items(), strict=False):
        for tag in members:
            _draw(axis, run, tag, start, end)
        axis.set_title(path, loc="left", fontsize="medium")
        axis.set_yscale(scale)
        axis.grid(alpha=0.3)
        if 1 < len(members) <= _NAMED:
            axis.legend(fontsize="small")
    for axis in axes[len(panels) :]:
        axis.remove()
    figure.supxlabel("step", fontsize="medium")
    # Notebooks show a figure by themselves only where `pyplot` made it.
    figure._repr_png_ = lambda: _png(figure)
    drawn: Figure = figure
    return drawn


def _draw(axis: Any, run: "Run", tag: str, start: int | None, end: int | None) -> None:
    window = run.window(tag, start, end, points=_POINTS)
    (line,) = axis.plot(window.step, window.mean, linewidth=1.2, label=parse_tag(tag).where or tag)
    axis.fill_between(window.step, window.min, window.max, color=line.get_color(), alpha=0.2, linewidth=0)
    if window.nonfinite.any():  # a mark at the foot of the picture: they have no height
        lost = window.step[window.nonfinite > 0]
        axis.plot(lost, [0.0] * len(lost), "x", color="red", transform=axis.get_xaxis_transform(), clip_on=False)


def _png(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
