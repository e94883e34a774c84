"""The layers at a glance: a row a parameter, colour by size, over the whole training."""

import numpy as np

from sonde.core.parameter_kinds import Kind
from sonde.core.records import Float64, Int64
from sonde.reports.document import Block, Figure, Figures, Heading, Paragraph, Strong
from sonde.reports.meanings import meaning
from sonde.reports.pictures import window
from sonde.reports.strips import Strip, columns_of
from sonde.reports.subject import Subject
from sonde.rules.layer_kinds import Kinds

_ROWS = 40
_COLUMNS = 160
_STATISTICS = ("grad/rms", "update/ratio")


def layers(subject: Subject) -> tuple[Block, ...]:
    """A strip for gradients, one for updates."""
    blocks = [Figures((strip,)) for path in _STATISTICS if (strip := _strip(subject, path)) is not None]
    if not blocks:
        return ()
    return (
        Heading("Layers at a glance"),
        Paragraph(
            (
                "A row is a parameter of the model, the input at the top; time goes from left to right. Rows of about "
                "the same colour are healthy; one that is much darker or lighter than its neighbours, or changes "
                "suddenly, is worth a look.",
            ),
        ),
        *blocks,
    )


def _strip(subject: Subject, path: str) -> Figure | None:
    names = _names(subject, path)
    kinds = Kinds(subject.run.model)
    kept = names if len(names) <= _ROWS else [name for name in names if kinds.of(name) is not Kind.BIAS]
    if len(kept) > _ROWS:
        kept = [kept[i] for i in np.linspace(0, len(kept) - 1, _ROWS).round().astype(int).tolist()]
    windows = {name: window(subject.run, f"{path}@{name}", points=_COLUMNS) for name in kept}
    found = {name: one for name, one in windows.items() if one is not None}
    if len(found) < 2:
        return None
    first = min(int(one.step[0]) for one in found.values())
    last = max(int(one.step[-1]) for one in found.values())
    widest = max(len(one.step) for one in found.values())
    edges = columns_of(first, last, most=max(2, min(_COLUMNS, widest)))
    rows = [_row(one.step, one.mean.astype(np.float64), one.nonfinite, edges) for one in found.values()]
    said = meaning(path)
    strip = Strip(names=tuple(found), edges=edges, values=np.array(rows), label=said.title)
    some = f" {len(found)} of {len(names)} parameters are shown, biases left out." if len(found) < len(names) else ""
    return Figure(strip, (Strong(said.title), f": {said.explained}.{some}"))


def _names(subject: Subject, path: str) -> list[str]:
    """The parameters in the order of the model; else that of a statistic that is measured of all of them together."""
    order = dict(subject.run.model.places) if subject.run.model is not None else {}
    for tag in subject.last:
        statistic, at, name = tag.partition("@")
        if at and statistic in ("grad/norm", "weight/norm"):
            order.setdefault(name, len(order))
    names = [tag.partition("@")[2] for tag in subject.last if tag.startswith(f"{path}@")]
    return sorted(names, key=lambda name: order.get(name, len(order)))


def _row(step: Int64, mean: Float64, nonfinite: Int64, edges: Float64) -> Float64:
    """The mean of the buckets in each column; a column without one is like that before it, up to the next bucket."""
    num = len(edges) - 1
    place = np.clip(np.searchsorted(edges, step, side="right") - 1, 0, num - 1)
    finite = np.isfinite(mean)
    total = np.bincount(place[finite], weights=mean[finite], minlength=num)
    count = np.bincount(place[finite], minlength=num)
    with np.errstate(invalid="ignore", divide="ignore"):
        row: Float64 = np.where(count > 0, total / count, np.nan)
    row[np.unique(place[nonfinite > 0])] = np.inf
    # Measured in turns: what lies between two measurements of a parameter is no gap.
    known = np.flatnonzero(~np.isnan(row))
    if len(known):
        reach = 2 * int(np.max(np.diff(known), initial=1))
        ahead = np.searchsorted(known, np.arange(num), side="right") - 1
        held = (ahead >= 0) & (np.arange(num) - known[np.maximum(ahead, 0)] < reach)
        row = np.where(held, row[known[np.maximum(ahead, 0)]], row)
    return row
