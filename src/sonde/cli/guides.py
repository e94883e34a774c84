"""The seven looks at a run, in words and as JSON."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from sonde.core.findings import Diagnosis
    from sonde.diagnosis.looks import GuideStep
    from sonde.store.reader import Run

_COLOURS = {"fine": "green", "none": "green", "none needed": "green", "suspicious": "yellow", "wrong": "bold red"}


def text(run: "Run", diagnosis: "Diagnosis") -> "Iterator[RenderableType]":
    """A look after the other, with its answer."""
    from rich.padding import Padding
    from rich.text import Text

    from sonde.core import printable

    name = printable.one_line(diagnosis.run)
    yield "Seven looks, in the order in which a fault is found. Wrong: an alarm belongs to it, or a series ends in NaN."
    yield "Suspicious: a number is outside of its usual range, which is a hint and no alarm.\n"
    for number, look in enumerate(_looks(run, diagnosis), 1):
        yield Text.assemble(
            f"{number}. {look.name.capitalize()}: ", (str(look.answer), _COLOURS.get(look.answer, "bold"))
        )
        yield Padding(Text(look.question, style="dim"), (0, 0, 0, 3))
        for line in (*_lines(look), *_commands(look, name)):
            yield Padding(Text(printable.one_line(line)), (0, 0, 0, 3))
        yield ""
    own = diagnosis.own_settings
    judged = f", judged by the run's own settings: {own}" if own else ""
    yield f"{name}: {diagnosis.said}{judged}"
    yield f"each finding with its evidence: sonde diagnose {name}"
    for problem in run.problems:
        yield f"could not be read: {printable.one_line(problem)}"


def as_json(run: "Run", diagnosis: "Diagnosis") -> dict[str, Any]:
    """The same for a program to read."""
    return {"guide": [_json(look) for look in _looks(run, diagnosis)]}


def _looks(run: "Run", diagnosis: "Diagnosis") -> "tuple[GuideStep, ...]":
    from sonde.reports.guiding import guided
    from sonde.reports.subject import Subject

    return guided(Subject(run=run, diagnosis=diagnosis))


def _lines(look: "GuideStep") -> "Iterator[str]":
    from sonde.diagnosis.looks import since, text_of, text_of_layers
    from sonde.reports.problem_guides import guide_of
    from sonde.reports.sections.checks import words

    for course in look.courses:
        note = " (1 is guessing)" if course.tag == "loss/relative" else ""
        yield f"{course.tag}: {text_of(course)}{note}"
    for spread in look.spreads:
        yield f"{spread.path}@…: {text_of_layers(spread)}"
    for tag, how in look.missing:
        yield f"{tag}{'…' * tag.endswith(('@', '/'))}: not measured: {how}"
    for check in look.checks:
        standing, name, measured, usual, remark = words(check)
        numbers = f" ({measured}; usual: {usual})" if measured != "–" else f" ({remark})"
        yield f"{standing}: {name}{numbers}"
    yield from look.said
    for finding in look.findings:
        if finding.severity.is_alarm:
            yield f"{finding.code} {finding.name}, {finding.severity} {since(finding)}: {finding.message}"
            if guide := guide_of(finding.code):
                yield f"  guide: sonde explain {guide}"
    if quiet := [f"{finding.code} {finding.name}" for finding in look.findings if not finding.severity.is_alarm]:
        yield f"only worth knowing: {', '.join(dict.fromkeys(quiet))}"


def _commands(look: "GuideStep", name: str) -> "Iterator[str]":
    if look.name == "recovery" and look.answer != "none needed":
        yield f"then: sonde diagnose AFTER; sonde compare {name} AFTER"


def _json(look: "GuideStep") -> dict[str, Any]:
    return {
        "look": look.name,
        "question": look.question,
        "answer": str(look.answer),
        "series": [
            {
                "tag": course.tag,
                **{
                    name: {"step": point.step, "value": point.value}
                    for name, point in (("start", course.start), ("now", course.now), ("worst", course.worst))
                },
            }
            for course in look.courses
        ],
        "layers": [
            {
                "tag": spread.path,
                "num": spread.num,
                **{
                    name: {"where": where, "value": value}
                    for name, (where, value) in (("lowest", spread.lowest), ("highest", spread.highest))
                },
            }
            for spread in look.spreads
        ],
        "not_measured": [{"tag": tag, "how": how} for tag, how in look.missing],
        "checks": [{**check._asdict(), "standing": check.standing.value} for check in look.checks],
        "findings": [finding.code for finding in look.findings],
        "said": list(look.said),
    }
