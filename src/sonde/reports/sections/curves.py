"""The main curves of a training."""

import re
from collections.abc import Iterator

import numpy as np

from sonde.reports.charts import Chart, Curve, LineStyle, Moment
from sonde.reports.document import Block, Figure, Figures, Heading, Strong
from sonde.reports.meanings import meaning
from sonde.reports.pictures import curve, smoothed
from sonde.reports.subject import Subject

_MARKED = 6  # alarms written on the loss: more cannot be read
_LONG = 5_000  # steps, against which the memory of `loss/ema`, 100 steps, is short
_FURTHER = 6  # metrics of evaluations and series of the user's own
_OWN = re.compile(
    "(?:loss|lr|grad|weight|update|act|gain|attn|logits|adam|clip|amp|batch|label|spectrum|time|throughput|memory|host"
    "|device|monitor|epoch|evaluation|gradient_monitor|flops|operator|optimizer|phase)(?:/|$)"
)


def curves(subject: Subject) -> tuple[Block, ...]:
    """The loss, then what moves it, then how fast."""
    wide = _loss(subject)
    others = tuple(figure for figure in _others(subject) if figure is not None)
    if wide is None and not others:
        return ()
    blocks: list[Block] = [Heading("The course of the training")]
    if wide is not None:
        blocks.append(Figures((wide,)))
    if others:
        blocks.append(Figures(others))
    return tuple(blocks)


def _loss(subject: Subject) -> Figure | None:
    raw = curve(subject.run, "loss", "each step", look=LineStyle.FAINT)
    checks = curve(subject.run, "val/loss", "validation", look=LineStyle.POINTS, series=1)
    shown: list[Curve] = []
    if raw is not None:
        shown.append(raw)
        # Of a short run β = 0.99 shows the past rather than the curve.
        smooth = curve(subject.run, "loss/ema", "smoothed") if subject.state.steps >= _LONG else None
        if smooth is None:
            average = smoothed(raw.value, length=max(3.0, len(raw.step) / 80))
            average[~np.isfinite(raw.value)] = np.nan
            smooth = Curve(label="smoothed", step=raw.step, value=average)
        shown.append(smooth)
    if checks is not None:
        shown.append(checks)
    if not shown:
        return None
    marks = tuple(
        Moment(label=finding.code, step=finding.first_step)
        for finding in sorted(subject.alarms[:_MARKED], key=lambda finding: finding.first_step)
    )
    where = "" if checks is None else ", on the data it trains on and on data it does not (validation)"
    note = " Lines with a code mark where alarms begin." if marks else ""
    return Figure(
        Chart(y_label="Loss", curves=tuple(shown), moments=marks, span=_span(subject)),
        (Strong("Loss"), f": what the training makes smaller{where}.{note}"),
    )


def _others(subject: Subject) -> Iterator[Figure | None]:
    yield _plain(subject, "lr")
    norm = _plain(subject, "grad/norm", beside=(("clip/limit", "clipping limit"),))
    yield norm
    yield _plain(subject, "update/ratio")
    fast = next((t for t in ("throughput/tokens_per_s", "throughput/samples_per_s", "time/step") if subject.has(t)), "")
    yield _plain(subject, fast) if fast else None
    for tag in [tag for tag in subject.last if _is_metric(tag)][:_FURTHER]:
        yield _plain(subject, tag)


def _span(subject: Subject) -> tuple[float, float]:
    return subject.first_step, subject.state.steps


def _is_metric(tag: str) -> bool:
    """Whether a series is the user's own: of evaluations, or logged or imported under a name that Sonde has not."""
    return "@" not in tag and not _OWN.match(tag) and tag != "val/loss"


def _plain(subject: Subject, tag: str, *, beside: tuple[tuple[str, str], ...] = ()) -> Figure | None:
    said = meaning(tag)
    line = curve(subject.run, tag, said.title)
    if line is None:
        return None
    others = [
        found
        for other, label in beside
        if (found := curve(subject.run, other, label, look=LineStyle.DASHED, series=1)) is not None
        and np.isfinite(found.value).any()
    ]
    explained = f": {said.explained}" if said.explained else ""
    return Figure(
        Chart(y_label=said.axis, curves=(line, *others), span=_span(subject)),
        (Strong(said.title), f"{explained}."),
    )
