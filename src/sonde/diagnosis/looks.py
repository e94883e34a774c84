"""The first four of seven looks at a training: loss, gradient norms, update ratios, distributions."""

import enum
import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sonde.core.findings import Diagnosis, Finding
from sonde.core.quantities import amount
from sonde.core.records import Float64, Point, Window
from sonde.diagnosis.checklist import Check, Outcome
from sonde.rules.data.contrary_labels import ContraryLabels
from sonde.rules.data.no_learnable_signal import NoLearnableSignal
from sonde.rules.gradients.gradient_shape import GradientShape
from sonde.rules.loops.disconnected_parameter import DisconnectedParameter
from sonde.rules.loops.frozen_layer import FrozenLayer
from sonde.rules.loops.parameter_not_in_optimizer import ParameterNotInOptimizer

WHOLE = (
    "loss",
    "loss/part",
    "loss/relative",
    "val/loss",
    "grad/norm",
    "clip/rate",
    "lr",
    "update/ratio",
    "label/entropy",
    "label/std",
)
"""The series that the looks go through from start to end; of several models, each by the name of a model behind `@`."""

USUAL_RATIO = "Steps change the weights by a usual share"
"""The line of the checklist whose range is that of update ratios."""


class Answer(enum.StrEnum):
    """What a look says."""

    FINE = "fine"
    SUSPICIOUS = "suspicious"
    """Outside of what most trainings that go well have; no alarm."""
    WRONG = "wrong"
    """An alarm belongs to it, or a series ends in NaN or infinity."""
    NOT_MEASURED = "not measured"


class SeriesPoints(NamedTuple):
    """A series in three points."""

    tag: str
    start: Point
    now: Point
    worst: Point
    """The first that is not finite; else the highest, of gradient norms and update ratios the one farthest from the
    median."""
    is_exact: bool
    """Whether points are single values: those of a long series are buckets, known by their first step."""


class Spread(NamedTuple):
    """A statistic over layers, as it was last measured."""

    path: str
    num: int
    lowest: tuple[str, float]
    highest: tuple[str, float]


class GuideStep(NamedTuple):
    """One of the seven looks.

    Attributes:
        name: What is looked at.
        question: What is asked, in one line.
        answer: One of `Answer` for the first four; the leading cause, the first action and whether the fix was
            followed for the others.
        courses: The series that were seen.
        spreads: The layers that were seen.
        missing: What was not measured, and why or what would measure it; a tag that ends in @ or / is any such one.
        checks: Lines of the health checklist that belong to it.
        findings: Those that belong to it, alarms first.
        said: What else there is to say, a line each.
    """

    name: str
    question: str
    answer: str
    courses: tuple[SeriesPoints, ...] = ()
    spreads: tuple[Spread, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    said: tuple[str, ...] = ()


class Measured(NamedTuple):
    """What the looks are taken at.

    Attributes:
        windows: Those series of `WHOLE` that the run has, from start to end.
        last: The newest point of every series.
        checks: The health checklist of the run.
        matrices: The weight matrices in the order of depth: gradients and updates are compared among them; among all
            parameters where there are none.
    """

    windows: Mapping[str, Window]
    last: Mapping[str, Point]
    checks: Sequence[Check] = ()
    matrices: Sequence[str] = ()


class _Plan(NamedTuple):
    """What a look goes through. A path that ends in @ is a statistic of layers."""

    name: str
    question: str
    tags: tuple[str, ...]
    needed: Mapping[str, str]
    """What is missing where it was not measured, and what would measure it; one that ends in @ or / is a prefix."""
    rules: tuple[str, ...]
    """Codes, or families of them, whose findings belong here; a whole code goes before its family."""
    checks: tuple[str, ...]


_WATCH = "train with `sonde.watch(model, optimizer)` or `sonde run`"
_PLANS = (
    _Plan(
        "loss",
        "Does the loss fall without jumps, and does validation follow it?",
        ("loss", "loss/part", "loss/relative", "val/loss"),
        {
            "loss": "give it to `watch.step(loss)`",
            "val/loss": "call `watch.evaluate(loss=...)` after each epoch or every few hundred steps",
        },
        ("LOS", "GEN", NoLearnableSignal.code, ContraryLabels.code),
        ("The loss falls, or stays at its best", "The loss falls smoothly"),
    ),
    _Plan(
        "gradient norms",
        "Do gradients reach every layer, and neither fade nor grow?",
        ("grad/norm", "clip/rate", "grad/rms@"),
        {"grad/norm": _WATCH, "grad/rms@": _WATCH},
        ("GRD", DisconnectedParameter.code),
        ("Early layers get gradients like the last ones",),
    ),
    _Plan(
        "update ratios",
        "Does a step change the weights by a usual share, in every layer?",
        ("lr", "update/ratio", "update/ratio@"),
        {"update/ratio": _WATCH, "update/ratio@": _WATCH},
        ("UPD", "SCH", "OPT", ParameterNotInOptimizer.code, FrozenLayer.code),
        (USUAL_RATIO,),
    ),
    _Plan(
        "distributions",
        "Do units fire, are inputs and activations of ordinary size, and do targets vary?",
        ("act/dead@", "act/saturated@", "grad/zeros@", "batch/std@", "label/entropy", "label/std"),
        {
            "act/rms@": f"{_WATCH}; `watch.burst(20)` looks at once",
            "act/dead@": "needs eight looks at ReLU-like functions; `watch.burst(20)` has them at once",
            "label/": "draw batches from `watch.data(loader)`",
        },
        ("ACT", "ATT", "DAT", "NUM", "WGT", GradientShape.code),
        ("Gradients are bell-shaped around zero",),
    ),
)
_TWO_SIDED = frozenset(("grad/norm", "update/ratio"))
_RECTIFIED = "act/positive@"  # without such a function no unit can be dead


def looks(measured: Measured, diagnosis: Diagnosis) -> tuple[GuideStep, ...]:
    """Loss, gradient norms, update ratios and distributions: what each showed.

    A look is *wrong* where an alarm belongs to it or a series ends in NaN or infinity, *suspicious* where a line of the
    checklist is not in order, *not measured* where none of its series has a value, and *fine* otherwise.

    Example:
        >>> steps, ones = np.arange(100), np.ones(100, np.int64)
        >>> losses = (1 / (1 + steps)).astype(np.float32)
        >>> windows = {"loss": Window(steps, losses, losses, losses, ones, 0 * ones)}
        >>> measured = Measured(windows, {"loss": Point(99, 0.01, 0.0)})
        >>> [look.answer.value for look in looks(measured, Diagnosis(run="runs/demo", steps=100))]
        ['fine', 'not measured', 'not measured', 'not measured']
    """
    return tuple(_look(plan, measured, diagnosis) for plan in _PLANS)


def _look(plan: _Plan, measured: Measured, diagnosis: Diagnosis) -> GuideStep:
    courses = tuple(
        _course(tag, window) for path in plan.tags for tag, window in measured.windows.items() if _is_of(tag, path)
    )
    layers = (_spread(tag[:-1], measured) for tag in plan.tags if tag.endswith("@"))
    spreads = tuple(spread for spread in layers if spread is not None)
    checks = tuple(
        check for check in measured.checks if check.name in plan.checks and check.standing is not Outcome.NOT_MEASURED
    )
    findings = alarms_first([finding for finding in diagnosis if _plan_of(finding.code) is plan])
    if any(finding.severity.is_alarm for finding in findings) or any(math.isnan(c.now.value) for c in courses):
        answer = Answer.WRONG
    elif any(check.standing is Outcome.NOT_OK for check in checks):
        answer = Answer.SUSPICIOUS
    else:
        answer = Answer.FINE if courses or spreads or checks else Answer.NOT_MEASURED
    missing = tuple(_missing(plan, measured, diagnosis))
    return GuideStep(plan.name, plan.question, answer, courses, spreads, missing, checks, findings)


def _plan_of(code: str) -> _Plan | None:
    """The look that a rule's findings belong to; None for those of the loop, of speed and memory, and of plugins."""
    for named in (code, code[:3]):
        for plan in _PLANS:
            if named in plan.rules:
                return plan
    return None


def alarms_first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those of severity warning or above before what is only worth knowing."""
    return tuple(sorted(findings, key=lambda finding: not finding.severity.is_alarm))


def since(finding: Finding) -> str:
    """From which step on a finding holds, and until which it did."""
    over = "" if finding.open else f", over since step {finding.last_step:,}"
    return f"since step {finding.first_step:,}{over}"


def _is_of(tag: str, path: str) -> bool:
    return tag == path or tag.startswith(f"{path}@")


def _missing(plan: _Plan, measured: Measured, diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    for tag, how in plan.needed.items():
        if tag == "act/dead@" and not any(name.startswith(_RECTIFIED) for name in measured.last):
            continue
        if tag.endswith(("@", "/")):
            is_there = any(name.startswith(tag) for name in measured.last)
        else:
            wanted = (tag, "loss/part") if tag == "loss" else (tag,)
            is_there = any(_is_of(name, path) for name in measured.windows for path in wanted)
        if not is_there:
            yield tag, _reason(tag, diagnosis) or how


def _reason(tag: str, diagnosis: Diagnosis) -> str:
    """Why a series is missing, where the run says so."""
    for said in diagnosis.not_measured:
        pattern, _, reason = said.partition(": ")
        if fnmatch.fnmatchcase(f"{tag}*", pattern):  # of all layers, not of one
            return reason
    return ""


def _course(tag: str, window: Window) -> SeriesPoints:
    def point(place: int, value: float) -> Point:
        return Point(int(window.step[place]), value, 0.0)

    means = np.where(window.finite > 0, window.mean, np.nan).astype(np.float64)
    last = len(means) - 1
    now = point(last, math.nan if window.nonfinite[last] else float(means[last]))
    is_exact = bool((window.finite + window.nonfinite <= 1).all())
    if lost := np.flatnonzero(window.nonfinite).tolist():
        worst = point(lost[0], math.nan)
    else:
        worst = point(*_worst(window.min.astype(np.float64), window.max.astype(np.float64), tag))
    return SeriesPoints(tag, point(0, float(means[0])), now, worst, is_exact)


def _worst(low: Float64, high: Float64, tag: str) -> tuple[int, float]:
    place = int(np.argmax(high))
    if tag.partition("@")[0] in _TWO_SIDED and (middle := float(np.median(high))) > 0:
        bottom = int(np.argmin(low))
        if low[bottom] <= 0 or middle / low[bottom] > high[place] / middle:
            return bottom, float(low[bottom])
    return place, float(high[place])


def _spread(path: str, measured: Measured) -> Spread | None:
    values = {
        where: point.value
        for tag, point in measured.last.items()
        if (where := tag.removeprefix(f"{path}@")) != tag and math.isfinite(point.value)
    }
    values = {where: values[where] for where in measured.matrices if where in values} or values
    if not values:
        return None
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return Spread(path, len(values), (low, values[low]), (high, values[high]))


def text_of(course: SeriesPoints) -> str:
    """A course in words.

    Example:
        >>> points = Point(1, 2.5, 0.0), Point(99, 0.5, 0.0), Point(7, float("nan"), 0.0)
        >>> text_of(SeriesPoints("loss", *points, is_exact=True))
        '2.5 at step 1, now 0.5 (step 99), NaN or infinite first at step 7'
    """
    start, now, worst = course.start, course.now, course.worst
    if start.value == now.value == worst.value:
        return f"{amount(now.value)} from step {start.step:,} to {now.step:,}"
    if not math.isfinite(start.value) and not math.isfinite(now.value):
        return f"NaN or infinite from step {start.step:,} on"
    at = "at step" if course.is_exact else "near step"
    extreme = f"{'highest' if worst.value >= max(start.value, now.value) else 'lowest'} {amount(worst.value)}"
    known = "NaN or infinite" if math.isnan(now.value) else amount(now.value)
    return (
        f"{amount(start.value)} {at} {start.step:,}, now {known} (step {now.step:,}), "
        f"{extreme if math.isfinite(worst.value) else 'NaN or infinite first'} {at} {worst.step:,}"
    )


def text_of_layers(spread: Spread) -> str:
    """The layers in words.

    Example:
        >>> text_of_layers(Spread("grad/rms", 10, ("0.weight", 1.26e-9), ("18.weight", 0.235)))
        '1.26e-9 (0.weight) to 0.235 (18.weight), of 10 layers'
        >>> text_of_layers(Spread("act/saturated", 9, ("1", 0.0), ("1", 0.0)))
        '0 in each of 9 layers'
    """
    (low, least), (high, most) = spread.lowest, spread.highest
    if least == most:
        return f"{amount(least)} ({low})" if spread.num == 1 else f"{amount(least)} in each of {spread.num:,} layers"
    return f"{amount(least)} ({low}) to {amount(most)} ({high}), of {spread.num:,} layers"
