"""Where the loss is going, and whether going on is worthwhile."""

import math

import numpy as np

from sonde.core.quantities import amount, number
from sonde.core.records import Float64
from sonde.reports.charts import Band, Chart, Curve, Level, LineStyle, Moment
from sonde.reports.document import Block, Figure, Figures, Heading, Line, Paragraph, Strong, Table
from sonde.reports.outlook import Outlook, outlook
from sonde.reports.pictures import curve, window
from sonde.reports.subject import Subject
from sonde.signals.learning_curve import Interval, NoCurve

_NOTHING = np.empty(0)


def forecast(subject: Subject) -> tuple[Block, ...]:
    """The fitted curve with its fan, or the reason why there is none."""
    if not subject.last:
        return ()
    losses, rates = window(subject.run, "loss", points=4000), window(subject.run, "lr", points=2000)
    values = _NOTHING if losses is None else losses.mean.astype(np.float64)
    if losses is not None:
        values[losses.nonfinite > 0] = np.nan
    ahead = outlook(
        _NOTHING if losses is None else losses.step.astype(np.float64),
        values,
        _NOTHING if rates is None else rates.step.astype(np.float64),
        _NOTHING if rates is None else rates.mean.astype(np.float64),
    )
    if isinstance(ahead, NoCurve):
        return Heading("Forecast"), Paragraph((f"No forecast was made: {ahead.reason}.",))
    since = f"since step {ahead.since:,}, when the learning rate last changed"
    if ahead.since <= subject.first_step:
        since = "of all steps, at a constant learning rate"
    return (
        Heading("Forecast"),
        Paragraph((Strong(ahead.advice),)),
        Paragraph(
            (
                f"A power law was fitted to the training loss {since}. It holds as long as the learning rate "
                "stays as it is; intervals hold the curve, not the loss of single batches, in 95 of 100 cases.",
            )
        ),
        Table(("When", "Training loss", "95% interval"), _rows(ahead, subject.target)),
        Figures((_figure(subject, ahead),)),
    )


def _rows(ahead: Outlook, target: float | None) -> tuple[tuple[Line, ...], ...]:
    last = ahead.curve.last_step
    told: list[tuple[str, Interval]] = [
        (f"Now, at step {last:,.0f}", ahead.now),
        (f"After as many steps again, at step {2 * last:,.0f}", ahead.doubled),
        (f"After ten times as many, at step {10 * last:,.0f}", ahead.curve.loss_at(10 * last)),
        ("In the end, after infinitely many", ahead.limit),
    ]
    rows: list[tuple[Line, ...]] = [
        ((when,), (number(at.best),), (f"{number(at.low)} to {number(at.high)}",)) for when, at in told
    ]
    if target is not None:
        reached = ahead.curve.steps_to(target)
        ends = f"{_steps(reached.low)} to {_steps(reached.high)} more steps"
        rows.append(
            ((f"Until it reaches the target {number(target)}",), (f"{_steps(reached.best)} more steps",), (ends,))
        )
    return tuple(rows)


def _steps(value: float) -> str:
    return "infinitely many" if math.isinf(value) else amount(value)


def _figure(subject: Subject, ahead: Outlook) -> Figure:
    last = ahead.curve.last_step
    # The first steep fall would flatten all that is of interest.
    start = max(ahead.since, 1, int(last / 10))
    raw = curve(subject.run, "loss", "loss of single steps", start=start, look=LineStyle.FAINT)
    assert raw is not None, "a curve was fitted to it"
    fitted = np.linspace(start, last, 120)
    future = np.linspace(last, 2 * last, 60)
    low, best, high = _fan(ahead, future)
    chart = Chart(
        y_label="Training loss",
        curves=(
            raw,
            Curve(label="fitted law", step=fitted, value=_best(ahead, fitted)),
            Curve(label="forecast", step=future, value=best, look=LineStyle.DASHED, series=1),
        ),
        bands=(Band(label="95% interval of the forecast", step=future, low=low, high=high),),
        levels=()
        if subject.target is None
        else (Level(label=f"target {number(subject.target)}", value=subject.target),),
        moments=(Moment(label="now", step=last, is_alarm=False),),
    )
    law = f"L(t) = {number(ahead.curve.a)} + {number(ahead.curve.b)}·t^(−{amount(ahead.curve.c)})"
    return Figure(chart, (Strong("The loss so far and as forecast"), f", if training goes on as it does: {law}."))


def _best(ahead: Outlook, steps: Float64) -> Float64:
    return np.array([ahead.curve.loss_at(step).best for step in steps.tolist()])


def _fan(ahead: Outlook, steps: Float64) -> tuple[Float64, Float64, Float64]:
    found = [ahead.curve.loss_at(step) for step in steps.tolist()]
    return (
        np.array([at.low for at in found]),
        np.array([at.best for at in found]),
        np.array([at.high for at in found]),
    )
