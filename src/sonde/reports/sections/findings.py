"""What was found: each cause with what to do about it, and with what it is seen by, in pictures and numbers."""

import inspect
import re
from collections.abc import Iterator

import numpy as np

from sonde.core.findings import Finding, Suspect
from sonde.core.groups import Group, by_code
from sonde.core.quantities import number, quantity, share
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
from sonde.reports.subject import Subject
from sonde.rules.catalogue import rule_of
from sonde.signals.medians import NORMAL_FROM_MAD, spread

_IN_FULL = 3  # alarms of a cause; those behind them are folded
_MOST_SPANS = 12
_PAST = 128  # values that the usual range is taken from, as the rules do
_MIN_PAST = 20
_WIDE = np.log(1e3)  # a range of more than three decades: what went before was not usual either
_SAFETIES = {
    Safety.AUTOMATIC: "harmless: it cannot change the training",
    Safety.OPT_IN: "opt-in: Sonde does it when asked to",
    Safety.ADVICE: "yours to do",
}


def findings(subject: Subject) -> tuple[Block, ...]:
    """Causes with their alarms, as the diagnosis has them in order, then what is only worth knowing, folded."""
    blocks: list[Block] = []
    if found := subject.diagnosis.groups:
        blocks.append(Heading("What is wrong"))
        blocks += [_card(subject, group) for group in found]
    if notes := by_code(subject.diagnosis.notes):
        blocks.append(Heading("Also noticed"))
        blocks.append(
            Paragraph(("Worth knowing, and no alarm: healthy trainings have such findings too.",), is_remark=True)
        )
        blocks += [_folded(subject, alike) for alike in notes]
    return tuple(blocks)


def _card(subject: Subject, group: Group) -> Card:
    name = "Cause not known" if group.cause is None else _clause(spoken(group.cause.value))
    place: Line = () if group.place is None else (": ", Code(group.place))
    title: Line = (Badge(group.severity.value), f" {name}, {_when(group)}", *place)
    return Card(group.severity.value, title, tuple(_cause(subject, group)))


def _cause(subject: Subject, group: Group) -> Iterator[Block]:
    if (suspect := group.suspect) is not None:
        yield Paragraph((Strong(f"{_clause(suspect.cause.meaning)}."), *_confidence(suspect)))
        yield Paragraph((f"Here: {suspect.because}.",))
    if group.others:
        head = "What may be the cause, the likeliest first" if suspect is None else "Less likely"
        yield Heading(head, 4)
        yield Items(
            tuple((f"{_clause(other.cause.meaning)}", *_confidence(other)) for other in group.others), is_ordered=True
        )
    if group.remedies:
        yield Heading("What to do, the best first", 4)
        yield Items(tuple(_remedy(remedy) for remedy in group.remedies), is_ordered=True)
    yield Heading("What it is seen by", 4)
    for place, alike in enumerate(group.by_code()):
        if place < _IN_FULL and alike[0].severity.is_alarm:
            yield Heading(f"{_name(alike[0])}, {_when(alike[0])}", 5)
            if not group.is_reason(alike[0]):
                yield _message(alike[0])
            yield from _told(subject, alike)
        else:
            yield _folded(subject, alike)


def _confidence(suspect: Suspect) -> Line:
    return (f" ({share(suspect.confidence)} sure; ", Code(suspect.cause.value), ")")


def _folded(subject: Subject, alike: list[Finding]) -> Fold:
    times = f" ({len(alike)} times in all)" if len(alike) > 1 else ""
    summary: Line = (Badge(alike[0].severity.value), " ", Strong(_name(alike[0])), f", {_when(alike[0])}{times}")
    return Fold(summary, (_message(alike[0]), *_told(subject, alike)))


def _message(finding: Finding) -> Paragraph:
    return Paragraph((f"{_clause(finding.message)}.",))


def _told(subject: Subject, alike: list[Finding]) -> Iterator[Block]:
    """Where the first was seen and by what numbers, and the steps of the others."""
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


def _when(found: Finding | Group) -> str:
    if found.open:
        return f"since step {found.first_step:,}"
    if found.first_step == found.last_step:
        return f"at step {found.first_step:,}, over"
    return f"steps {found.first_step:,} to {found.last_step:,}, over"


def _body(subject: Subject, finding: Finding) -> Iterator[Block]:
    if finding.where:
        yield Paragraph(("Where: ", *_places(finding.where)))
    figures = tuple(_figures(subject, finding))
    if figures:
        yield Figures(figures)
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
        *(Strong(piece) if isinstance(piece, str) else piece for piece in _with_code(_clause(remedy.text))),
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


def _with_code(text: str) -> tuple[str | Code, ...]:
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
