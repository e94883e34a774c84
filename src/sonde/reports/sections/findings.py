"""What was found: each finding with its picture, its evidence, its causes and what to do."""

import inspect
import re
from collections.abc import Iterator

import numpy as np

from sonde.core.findings import Finding
from sonde.core.remedies import Remedy, Safety
from sonde.reports.charts import Band, Chart, Level, Moment, Spot
from sonde.reports.document import (
    Badge,
    Block,
    Card,
    Code,
    Figure,
    Figures,
    Fold,
    Heading,
    Items,
    Line,
    Paragraph,
    Strong,
    Table,
)
from sonde.reports.meanings import meaning
from sonde.reports.pictures import curve
from sonde.reports.problem_guides import guide_of, title
from sonde.reports.quantities import number, quantity
from sonde.reports.subject import Subject
from sonde.rules.catalogue import rule_of
from sonde.signals.medians import NORMAL_FROM_MAD, spread

_IN_FULL = 3  # alarms; those behind them are symptoms as a rule, and are folded
_SURE = 0.3  # of what is only worth knowing: guesses below this would send a healthy training to the doctor
_MOST_SPANS = 12
_PAST = 128  # values that the usual range is taken from, as the rules do
_MIN_PAST = 20
_WIDE = np.log(1e3)  # a range of more than three decades: what went before was not usual either
_SAFETIES = {
    Safety.AUTOMATIC: "harmless: it cannot change the training",
    Safety.OPT_IN: "changes the training: Sonde does it only when asked to",
    Safety.ADVICE: "yours to do",
}


def findings(subject: Subject) -> tuple[Block, ...]:
    """Alarms, the surest first, then what is only worth knowing, folded."""
    blocks: list[Block] = []
    if alarms := _by_kind(subject.alarms):
        blocks.append(Heading("What is wrong"))
        blocks += [_card(subject, alike) for alike in alarms[:_IN_FULL]]
        blocks += [_folded(subject, alike) for alike in alarms[_IN_FULL:]]
    if information := _by_kind(subject.information):
        blocks.append(Heading("Also noticed"))
        blocks.append(
            Paragraph(("Worth knowing, and no alarm: healthy trainings have such findings too.",), is_remark=True)
        )
        blocks += [_folded(subject, alike) for alike in information]
    return tuple(blocks)


def _by_kind(found: tuple[Finding, ...]) -> list[list[Finding]]:
    """Findings of one code together, in the order of the first of each: a spike may come a hundred times."""
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.code, []).append(finding)
    return list(kinds.values())


def _card(subject: Subject, alike: list[Finding]) -> Card:
    title: Line = (Badge(alike[0].severity.value), f" {_name(alike[0])}, {_when(alike[0])}")
    return Card(alike[0].severity.value, title, tuple(_told(subject, alike)))


def _folded(subject: Subject, alike: list[Finding]) -> Fold:
    times = f" ({len(alike)} times in all)" if len(alike) > 1 else ""
    summary: Line = (Badge(alike[0].severity.value), " ", Strong(_name(alike[0])), f", {_when(alike[0])}{times}")
    return Fold(summary, tuple(_told(subject, alike)))


def _told(subject: Subject, alike: list[Finding]) -> Iterator[Block]:
    """The first in full, and the steps of the others."""
    yield from _body(subject, alike[0])
    if others := alike[1:]:
        spans = "; ".join(_when(finding) for finding in others[:_MOST_SPANS])
        more = f"; and {len(others) - _MOST_SPANS} more" if len(others) > _MOST_SPANS else ""
        yield Paragraph((f"Seen at other times as well: {spans}{more}.",))


def spoken(name: str) -> str:
    """A finding's name as one would say it.

    Example:
        >>> spoken("lr-never-decayed")
        'learning rate never decayed'
    """
    words = " ".join("learning rate" if word == "lr" else word for word in name.split("-"))
    return words.replace("non finite", "non-finite")


def _name(finding: Finding) -> str:
    return spoken(finding.name).capitalize()


def _when(finding: Finding) -> str:
    if finding.open:
        return f"since step {finding.first_step:,}"
    if finding.first_step == finding.last_step:
        return f"at step {finding.first_step:,}, over"
    return f"steps {finding.first_step:,} to {finding.last_step:,}, over"


def _body(subject: Subject, finding: Finding) -> Iterator[Block]:
    yield Paragraph((f"{finding.message[:1].upper()}{finding.message[1:]}.",))
    if finding.where:
        yield Paragraph(("Where: ", *_places(finding.where)))
    figures = tuple(_figures(subject, finding))
    if figures:
        yield Figures(figures)
    sure = finding.severity.is_alarm or any(suspect.confidence >= _SURE for suspect in finding.causes)
    if finding.causes and not sure:
        yield Paragraph(("Nothing points to a particular cause.",))
    elif finding.causes:
        yield Paragraph((Strong("Likely causes, the likeliest first"),))
        yield Items(
            tuple(
                (
                    Strong(_clause(suspect.cause.meaning)),
                    f" ({quantity(suspect.confidence, 'share')} sure; ",
                    Code(suspect.cause.value),
                    f"). Here: {suspect.because}.",
                )
                for suspect in finding.causes
            ),
            is_ordered=True,
        )
    if finding.remedies and sure:
        yield Paragraph((Strong("What to do, the best first"),))
        yield Items(tuple(_remedy(remedy) for remedy in finding.remedies), is_ordered=True)
    if finding.evidence:
        rows = tuple(
            (
                (f"{meaning(item.tag).title} ", Code(item.tag)),
                (f"{item.step:,}",),
                (quantity(item.value, meaning(item.tag).unit),),
                ("not said" if item.expected is None else quantity(item.expected, meaning(item.tag).unit),),
            )
            for item in finding.evidence
        )
        yield Table(("Evidence", "Step", "Measured", "Expected"), rows)
    if guide := guide_of(finding.code):
        yield Paragraph((f"Guide: {title(guide)}, in order: ", Code(f"sonde explain {guide}")))
    yield Fold((f"About this kind of finding: {finding.code} {finding.name}",), tuple(_manual(finding.code)))


def _clause(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _places(where: tuple[str, ...]) -> Iterator[str | Code]:
    for i, name in enumerate(where[:5]):
        if i:
            yield ", "
        yield Code(name)
    if len(where) > 5:
        yield f" and {len(where) - 5} more"


def _remedy(remedy: Remedy) -> Line:
    args = " ".join(f"{name}={value}" for name, value in remedy.args.items())
    return (
        Strong(f"{_clause(remedy.text)}"),
        f" ({_SAFETIES[remedy.safety]}; ",
        Code(f"{remedy.action.value} {args}".strip()),
        ")",
    )


def _manual(code: str) -> Iterator[Block]:
    """The rule's page: a sentence, then paragraphs under headings."""
    first, _, rest = (inspect.getdoc(rule_of(code)) or "").partition("\n")
    if first:
        yield Paragraph((first,))
    for head, body in re.findall(r"^(\S[^\n]*):\n((?:[ \t]+[^\n]*\n?|\n)+)", rest, flags=re.MULTILINE):
        yield Paragraph((Strong(f"{head}. "), *_with_code(" ".join(body.split()))))
    yield Paragraph(("On a terminal: ", Code(f"sonde explain {code}")), is_remark=True)


def _with_code(text: str) -> Line:
    """Text in which `…` is code."""
    return tuple(Code(part) if i % 2 else part for i, part in enumerate(text.split("`")) if part)


def _figures(subject: Subject, finding: Finding) -> Iterator[Figure]:
    start, end = _span(subject, finding)
    told = next((item for item in finding.evidence if subject.has(item.tag)), None)
    if told is not None and (figure := _figure(subject, finding, told.tag, start, end)) is not None:
        yield figure
    if (told is None or told.tag != "loss") and subject.has("loss"):
        figure = _figure(subject, finding, "loss", start, end)
        if figure is not None:
            yield figure


def _span(subject: Subject, finding: Finding) -> tuple[int, int]:
    """The steps to show: from well before the onset, to after what was measured."""
    first, last = subject.first_step, subject.state.steps
    pad = max(100, last // 20)
    shown = [item.step for item in finding.evidence if item.step <= finding.first_step + 8 * pad]
    end = max(finding.first_step + 3 * pad, *(step + pad for step in shown), 0)
    start = finding.first_step - 2 * pad
    if end - start > 0.7 * last:  # nearly all of it: then all of it
        return first, last
    return max(first, start), min(last, end)


def _figure(subject: Subject, finding: Finding, tag: str, start: int, end: int) -> Figure | None:
    said = meaning(tag)
    line = curve(subject.run, tag, said.title, start=start, end=end)
    if line is None:
        return None
    items = [item for item in finding.evidence if item.tag == tag]
    band = _usual(subject, tag, finding.first_step, start, end) if items else None
    expected = [item for item in items if item.expected is not None and np.isfinite(item.expected)][:1]
    alarm = finding.severity.is_alarm
    chart = Chart(
        y_label=said.axis,
        curves=(line,),
        bands=() if band is None else (band,),
        levels=tuple(
            Level(label=f"expected {quantity(item.expected or 0.0, said.unit)}", value=item.expected or 0.0)
            for item in expected
        ),
        moments=(Moment(label=f"begins: step {finding.first_step:,}", step=finding.first_step, is_alarm=alarm),),
        spots=tuple(
            Spot(label=quantity(item.value, said.unit), step=item.step, value=item.value)
            for item in items[:1]
            if np.isfinite(item.value)
        ),
        span=(start, end),
    )
    explained = f": {said.explained}" if said.explained else ""
    usual = f" The usual range is three robust deviations about the median of up to {_PAST} values before."
    return Figure(chart, (Strong(said.title), f"{explained}.", usual if band else ""))


def _usual(subject: Subject, tag: str, onset: int, start: float, end: float) -> Band | None:
    """The robust range of the values before the onset, on the logarithm where all are positive; None where too few."""
    past = subject.run.series(tag, start=max(0, onset - 2_000), end=onset - 1).value.astype(np.float64)
    past = past[np.isfinite(past)][-_PAST:]
    if len(past) < _MIN_PAST:
        return None
    is_log = bool((past > 0).all())
    middle, mad = spread(np.log(past) if is_log else past)
    reach = 3 * NORMAL_FROM_MAD * float(mad)
    low, high = float(middle) - reach, float(middle) + reach
    if is_log:
        if high - low > _WIDE:
            return None
        low, high = float(np.exp(low)), float(np.exp(high))
    label = f"usual before: {number(low)} to {number(high)}"
    return Band(label=label, step=np.array([start, end]), low=np.array([low, low]), high=np.array([high, high]))
