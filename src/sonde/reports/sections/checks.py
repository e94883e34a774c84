"""The health checklist."""

import math
from collections.abc import Sequence

import numpy as np

from sonde.core.quantities import quantity
from sonde.core.records import Series
from sonde.diagnosis.checklist import Check, Outcome, checklist
from sonde.reports.document import Badge, Block, Heading, Line, Paragraph, Table
from sonde.reports.pictures import window
from sonde.reports.subject import Subject

_PAST_STEPS = 2_000
_WHOLE = (
    "loss",
    "lr",
    "grad/norm",
    "update/ratio",
    "throughput/tokens_per_s",
    "throughput/samples_per_s",
    "time/step",
    "device/utilisation",
    "memory/total",
    "memory/peak",
    "memory/allocated",
    "host/rss",
)
_OF_LAYERS = frozenset(("grad/rms", "update/ratio", *(f"grad/p{q}" for q in (1, 25, 50, 75, 99))))


HEADINGS = ("", "In a healthy training", "Measured", "Usual range", "Remark")


def checks(subject: Subject) -> tuple[Block, ...]:
    """Each line of the checklist with its number and its range."""
    found = answers(subject)
    if not found:
        return ()
    rows = tuple(_row(check) for check in found)
    return Heading("Health checklist"), Paragraph((summary(subject, found),)), Table(HEADINGS, rows)


def answers(subject: Subject) -> tuple[Check, ...]:
    """Each line of the checklist; none where nothing was recorded."""
    if not subject.last:
        return ()
    num_open = sum(finding.open for finding in subject.alarms)
    return checklist(_series(subject), open_alarms=num_open, model=subject.run.model)


def summary(subject: Subject, found: Sequence[Check]) -> str:
    """How many lines are in order, over which past, and how much that says."""
    num_fine = sum(check.standing is Outcome.OK for check in found)
    num_asked = sum(check.standing is not Outcome.NOT_MEASURED for check in found)
    return (
        f"{num_fine} of {num_asked} lines that could be judged are in order, "
        f"over the last {min(_PAST_STEPS, subject.state.steps):,} steps. The ranges are those of most "
        "trainings that go well: being outside of one is a hint, not an alarm."
    )


def words(check: Check) -> tuple[str, str, str, str, str]:
    """A line of the checklist under `HEADINGS`."""
    measured = _measured(check) if math.isfinite(check.value) else "–"
    return check.standing.value, check.name, measured, _range(check), check.remark


def _row(check: Check) -> tuple[Line, ...]:
    standing, *others = words(check)
    return (Badge(standing),), *((text,) for text in others)


def _measured(check: Check) -> str:
    """Its number; one that is rounded to the end of its range says on which side it is."""
    text = quantity(check.value, check.unit)
    if check.value > check.high and text == quantity(check.high, check.unit):
        return f"more than {text}"
    return f"less than {text}" if check.value < check.low and text == quantity(check.low, check.unit) else text


def _range(check: Check) -> str:
    low, high = (quantity(end, check.unit) for end in (check.low, check.high))
    if math.isinf(check.low) and math.isinf(check.high):
        return "–"
    if math.isinf(check.low):
        return "none" if check.high == 0 else f"at most {high}"
    if math.isinf(check.high) or (check.unit == "share" and check.high == 1):
        return f"at least {low}"
    return f"{low.removesuffix(f' {check.unit}')} to {high}"


def _series(subject: Subject) -> dict[str, Series]:
    """The newest part of what the checklist asks for; of layers the newest value, in the order of depth."""
    start = max(0, subject.state.steps - _PAST_STEPS)
    found = {tag: subject.run.series(tag, start=start) for tag in _WHOLE if subject.has(tag)}
    if (rates := window(subject.run, "lr", points=1000)) is not None:
        last = subject.last["lr"]
        found["lr"] = Series(
            np.append(rates.step, last.step),
            np.append(rates.max, np.float32(last.value)),
            np.zeros(len(rates.step) + 1),
        )
    for tag, point in subject.last.items():
        path, at, _ = tag.partition("@")
        if at and path in _OF_LAYERS and point.step >= start:
            found[tag] = Series(np.array([point.step]), np.array([point.value], np.float32), np.array([point.time]))
    return found
