"""A comparison as a document: the curves, since when runs are not the same, their figures, what differs."""

import numpy as np

from sonde.core.records import Float64
from sonde.diagnosis.architecture import told
from sonde.reports.charts import STEP, Chart, Curve, Level, LineStyle, Moment
from sonde.reports.comparison import Against, Comparison, health_rows, parting, setting_cells, verdict
from sonde.reports.document import (
    Block,
    Code,
    Document,
    Figure,
    Figures,
    Heading,
    Items,
    Line,
    Named,
    Paragraph,
    Strong,
    Table,
)

_BUCKETS = 240
_FEW = 60  # points that are drawn one by one
_MOST_CHANGES = 200
_AXES = {"step": STEP, "time": "seconds since the start"}


def compared(comparison: Comparison) -> Document:
    """The pictures and everything that was found."""
    names: list[Line] = [(Named(variant.label, i),) for i, variant in enumerate(comparison.variants)]
    curves, differences = charts(comparison)
    blocks: list[Block] = [
        Table(
            ("Run", "Folder"),
            tuple((name, (Code(one.path),)) for name, one in zip(names, comparison.variants, strict=True)),
        ),
        Heading(f"{comparison.tag} by {comparison.by}"),
        Items(tuple((*names[other.variant], " ", verdict(comparison, other)) for other in comparison.against)),
        Figures(
            (
                Figure(
                    curves,
                    (
                        Strong("Curves"),
                        ": a line is the median of a stretch, a shade the range of its values; a vertical "
                        "line says since when a run stays apart.",
                    ),
                ),
            )
        ),
        Figures(
            (Figure(differences, (Strong("Differences"), ": dotted lines are the scatter of a single value.")),),
        ),
        Heading("First difference"),
        Items(tuple(line for other in comparison.against for line in _partings(comparison, other, names))),
        Heading("Health"),
        _table(comparison, list(health_rows(comparison))),
        Heading("Configuration and environment"),
        _table(comparison, [(one.key, setting_cells(one)) for one in comparison.settings])
        if comparison.settings
        else Paragraph(("They are the same.",)),
    ]
    for other in comparison.against:
        if changes := list(told(other.parameters, other.modules)):
            if len(changes) > _MOST_CHANGES:
                changes[_MOST_CHANGES:] = [f"and {len(changes) - _MOST_CHANGES:,} more"]
            blocks.append(Heading(f"Model of {comparison.variants[other.variant].label}"))
            blocks.append(Items(tuple((change,) for change in changes)))
    title = " · ".join(variant.label for variant in comparison.variants)
    return Document(title, "Runs compared by Sonde, which watches the training of neural networks", tuple(blocks))


def charts(comparison: Comparison) -> tuple[Chart, Chart]:
    """The curves of all runs, and each one's difference from the reference."""
    axis = _AXES.get(comparison.by, comparison.by)
    labels = [variant.label for variant in comparison.variants]
    curves = [
        _thin(variant.curve.x, variant.curve.value, f"{label} (reference)" if i == 0 else label, i)
        for i, (label, variant) in enumerate(zip(labels, comparison.variants, strict=True))
    ]
    apart = tuple(
        Moment(
            label=f"{labels[other.variant]} apart since {_place(found.since)}", step=found.since, series=other.variant
        )
        for other in comparison.against
        if (found := other.contrast.separation) is not None
    )
    steps = np.concatenate([part for curve in curves for part in (curve.step, curve.lost)])
    span = (float(steps.min()), float(steps.max())) if len(steps) else None
    below: list[Curve] = []
    for other in comparison.against:
        contrast = other.contrast
        scatters = [("", values, LineStyle.DOTTED) for values in (contrast.scatter, -contrast.scatter)]
        below += [
            Curve(label=label, step=contrast.at, value=values, look=look, series=other.variant)
            for label, values, look in ((labels[other.variant], contrast.difference, LineStyle.MAIN), *scatters)
        ]
    return (
        Chart(y_label=comparison.tag, curves=tuple(curves), moments=apart, x_label=axis, span=span),
        Chart(
            y_label=f"Difference from {labels[0]}",
            curves=tuple(below),
            levels=(Level(label="", value=0.0),),
            is_log=False,
            x_label=axis,
            span=span,
        ),
    )


def _partings(comparison: Comparison, other: Against, names: list[Line]) -> tuple[Line, Line]:
    whole, layers = (parting(found, comparison.tolerance) for found in (other.whole, other.layers))
    return (*names[other.variant], f" the run: {whole}"), (*names[other.variant], f" tensors: {layers}")


def _table(comparison: Comparison, rows: list[tuple[str, list[str]]]) -> Table:
    cells = tuple(((name,), *((cell,) for cell in values)) for name, values in rows)
    return Table(("", *(variant.label for variant in comparison.variants)), cells)


def _place(at: float) -> str:
    return f"{at:,.4g}" if at < 1000 else f"{at:,.0f}"


def _thin(x: Float64, values: Float64, label: str, series: int) -> Curve:
    """A curve in at most `_BUCKETS` pieces: lowest, median and highest value of each."""
    known = np.isfinite(x)
    finite = known & np.isfinite(values)
    lost, x, values = x[known & ~finite], x[finite], values[finite]
    num = len(x) if len(x) <= _FEW else min(_BUCKETS, len(x) // 4)
    cuts = np.linspace(0, len(x), num + 1).astype(np.int64)[1:-1]
    parts = np.split(values, cuts) if len(x) else []
    low, middle, high = (np.array([float(measure(part)) for part in parts]) for measure in (np.min, np.median, np.max))
    at = np.array([part.mean() for part in np.split(x, cuts)]) if len(x) else x
    return Curve(label=label, step=at, value=middle, low=low, high=high, lost=lost, series=series)
