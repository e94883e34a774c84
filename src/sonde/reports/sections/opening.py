"""The verdict in a sentence, what to do first, and the numbers that matter."""

import math
from collections.abc import Iterator

import numpy as np

from sonde.core.groups import Group
from sonde.core.quantities import count, duration, number, share
from sonde.core.records import Ending, Window
from sonde.reports.document import Block, Card, Fact, Facts, Paragraph, Strong
from sonde.reports.pictures import smoothed, window
from sonde.reports.sections.findings import spoken
from sonde.reports.subject import Subject

_SHORT = 20  # steps: most rules have not seen enough before
_MOST_PROBLEMS = 10
_ENDINGS = {
    Ending.LIVE: "It is still running.",
    Ending.EXITED: "The process ended without closing the run.",
    Ending.CRASHED: "The process was ended by an exception.",
    Ending.INTERRUPTED: "It was interrupted by hand.",
    Ending.TERMINATED: "It was terminated from outside.",
    Ending.DIED: "The process died without a word: killed, out of memory, or a power cut.",
}


def opening(subject: Subject) -> tuple[Block, ...]:
    """The verdict and the key numbers."""
    if not subject.last:
        return (Card("info", (sentence(subject),), (), is_verdict=True),)
    kind = "info" if subject.diagnosis.not_enough or subject.diagnosis.steps < _SHORT else "ok"
    if (lead := subject.diagnosis.lead) is not None:
        kind = subject.diagnosis.verdict.value
    blocks: list[Block] = [Paragraph(("Verdict: ", Strong(subject.diagnosis.verdict.words), ". ", _course(subject)))]
    if lead and lead.remedies:
        blocks.append(Paragraph((Strong("What to do first: "), f"{lead.remedies[0].text}.")))
    if ignored := subject.diagnosis.own_settings.said_ignored:
        blocks.append(Paragraph((f"Settings of the run that are ignored: {ignored}.",), is_remark=True))
    problems = subject.diagnosis.rule_problems[:_MOST_PROBLEMS]
    blocks += [Paragraph((f"{problem.rstrip('.')}.",), is_remark=True) for problem in problems]
    if note := _scope(subject):
        blocks.append(Paragraph((note,), is_remark=True))
    return (Card(kind, (sentence(subject),), tuple(blocks), is_verdict=True), Facts(tuple(_facts(subject))))


def sentence(subject: Subject) -> str:
    """The verdict as one would say it."""
    own = subject.diagnosis.own_settings
    return f"{_verdict(subject)} (Judged by the run's own settings: {own}.)" if own else _verdict(subject)


def _verdict(subject: Subject) -> str:
    if (lead := subject.diagnosis.lead) is None:
        return _calm(subject)
    name = spoken(lead.findings[0].name)
    others = len(subject.alarms) - 1
    more = f" ({count(others, 'further alarm')} below)" if others else ""
    if lead.open:
        return f"Something is wrong since step {lead.first_step:,}: {name}{_because(lead)}{more}."
    span = f"step {lead.first_step:,}"
    if lead.last_step > lead.first_step:
        span = f"steps {lead.first_step:,} to {lead.last_step:,}"
    return f"There was trouble at {span}, which is over: {name}{_because(lead)}{more}."


def _calm(subject: Subject) -> str:
    if reasons := subject.diagnosis.not_enough:
        return f"There is not enough to judge: {'; '.join(reasons)}."
    if (steps := subject.diagnosis.steps) < _SHORT:
        return f"The training is {subject.diagnosis.verdict.words}, but {count(steps, 'step')} are few to judge by."
    healthy = subject.diagnosis.verdict.words
    if subject.state.ending is Ending.LIVE:
        return f"The training is {healthy} so far."
    if subject.state.ending is Ending.FINISHED:
        return f"The training is {healthy}."
    return f"The training was {healthy} as far as it went."


def _because(lead: Group) -> str:
    if lead.suspect is None:
        return ", and the cause is not known"
    cause = lead.suspect.cause.meaning.partition(":")[0]
    return f", {'most likely' if lead.confidence >= 0.5 else 'possibly'} because {cause}"


def _course(subject: Subject) -> str:
    parts = [f"{count(subject.num_steps, 'step')}{_duration(subject)}."]
    losses = window(subject.run, "loss", points=400)
    if losses is not None:
        parts += _moved(_first(subject, losses), losses)
    if (ended := _ENDINGS.get(subject.state.ending)) is not None:
        reason = f" ({subject.state.reason})" if subject.state.reason else ""
        parts.append(ended.removesuffix(".") + f"{reason}.")
    return " ".join(parts)


def _first(subject: Subject, losses: Window) -> float:
    """The first loss that is finite; NaN where there is none. Buckets are means, in which a rise at once hides it."""
    known = np.flatnonzero(losses.finite > 0)
    if not len(known):
        return math.nan
    place = int(known[0])
    end = int(losses.step[place + 1]) if place + 1 < len(losses.step) else None
    values = subject.run.series("loss", start=int(losses.step[place]), end=end).value
    return float(values[np.isfinite(values)][0])


def _moved(first: float, losses: Window) -> Iterator[str]:
    """How the loss went from its first value to where it is, a mean of the last fiftieth."""
    known = np.flatnonzero(np.isfinite(losses.mean))
    if not len(known):
        yield "The training loss was never finite."
        return
    finite = losses.mean[known].astype(np.float64)
    last = float(finite[-max(1, len(finite) // 50) :].mean())
    if abs(last - first) <= 0.02 * abs(first):
        yield f"The training loss stayed at about {number(last)}."
    else:
        yield f"The training loss {'fell' if last < first else 'rose'} from {number(first)} to {number(last)}."
    course = smoothed(finite, length=len(finite) / 50)
    best, worst = float(course.min()), float(course.max())
    if worst > max(first, last) + max(abs(first), abs(last)):
        yield f"In between it had risen to {number(worst)}."
    if last - best > 0.1 * abs(first - best) and last - best > 0.02 * abs(best):
        yield f"At its best it had been {number(best)}."
    if (end := int(known[-1]) + 1) < len(losses.step):
        yield f"Since step {int(losses.step[end]):,} it is NaN or infinite."
    elif lost := int(losses.nonfinite.sum()):
        yield "One loss was NaN or infinite." if lost == 1 else f"{lost:,} losses were NaN or infinite."


def _duration(subject: Subject) -> str:
    created = subject.run.info.get("created")
    times = [point.time for point in subject.last.values()]
    if not isinstance(created, int | float) or not times or max(times) <= created:  # a log without times
        return ""
    return f" in {duration(max(times) - created)}"


def _scope(subject: Subject) -> str:
    if num := len(subject.diagnosis.not_measured):
        kinds, shown = ("One kind of series was", "it") if num == 1 else (f"{num} kinds of series were", "they")
        return (
            f"{kinds} not measured, and the verdict does not cover what {shown} would show; see “Not measured” below."
        )
    return ""


def _facts(subject: Subject) -> Iterator[Fact]:
    yield Fact("Steps", f"{subject.num_steps:,}", subject.state.ending.value)
    if took := _duration(subject):
        yield Fact("Duration", took.removeprefix(" in "), "wall clock")
    yield from _losses(subject)
    for tag, unit in (("throughput/tokens_per_s", "tokens/s"), ("throughput/samples_per_s", "samples/s")):
        if math.isfinite(speed := _median(subject, tag)):
            yield Fact("Throughput", number(speed), f"{unit}, median")
            break
    if math.isfinite(step_time := _median(subject, "time/step")):
        yield Fact("Time a step", duration(step_time), "median")
    # Means, since few steps are looked at in detail and cost the most.
    own, of_all = _mean(subject, "monitor/time"), _mean(subject, "time/step")
    if math.isfinite(own):
        of_step = f", {share(own / of_all)} of its time" if of_all > 0 else ""
        yield Fact("Cost of watching", duration(own), f"a step{of_step}")


def _losses(subject: Subject) -> Iterator[Fact]:
    raw = window(subject.run, "loss", points=2000)
    value = np.empty(0) if raw is None else smoothed(raw.mean.astype(np.float64), length=len(raw.step) / 50)
    if raw is not None and np.isfinite(value).any():
        best = int(np.nanargmin(value))
        remark = f"best {number(float(value[best]))} at step {int(raw.step[best]):,}, smoothed"
        last = subject.last.get("loss")
        shown = float(value[np.isfinite(value)][-1]) if last is None or math.isfinite(last.value) else last.value
        yield Fact("Training loss", number(shown), remark)
    elif raw is not None:
        yield Fact("Training loss", "NaN", "never finite")
    checks = window(subject.run, "val/loss", points=2000)
    if checks is not None and np.isfinite(checks.mean).any():
        best = int(np.nanargmin(checks.min))
        remark = f"best {number(float(checks.min[best]))} at step {int(checks.step[best]):,}"
        yield Fact("Validation loss", number(subject.last["val/loss"].value), remark)


def _median(subject: Subject, tag: str) -> float:
    found = window(subject.run, tag, points=500)
    if found is None or not np.isfinite(found.mean).any():
        return math.nan
    return float(np.nanmedian(found.mean))


def _mean(subject: Subject, tag: str) -> float:
    found = window(subject.run, tag, points=500)
    if found is None or not found.finite.sum():
        return math.nan
    return float(np.nansum(found.mean.astype(np.float64) * found.finite) / found.finite.sum())
