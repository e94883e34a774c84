"""The health checklist of a run, in the words of its report."""

from typing import TYPE_CHECKING, Any

from sonde.core.palette import TERMINAL

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sonde.core.findings import Diagnosis
    from sonde.store.reader import Run


def table(run: "Run", diagnosis: "Diagnosis") -> "list[RenderableType]":
    """A line a question, and below them how many are in order."""
    from rich.table import Table
    from rich.text import Text

    from sonde.reports.sections.checks import HEADINGS, answers, summary, words
    from sonde.reports.subject import Subject

    subject = Subject(run=run, diagnosis=diagnosis)
    found = answers(subject)
    if not found:
        return ["Health checklist: nothing was recorded.\n"]
    lines = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in HEADINGS:
        lines.add_column(heading.lower(), overflow="fold")
    for check in found:
        standing, *others = words(check)
        lines.add_row(Text(standing, style=TERMINAL[standing]), *others)
    return ["Health checklist", lines, f"{summary(subject, found)}\n"]


def as_json(run: "Run", diagnosis: "Diagnosis") -> dict[str, Any]:
    """The same for a program to read: numbers instead of words."""
    from sonde.reports.sections.checks import answers
    from sonde.reports.subject import Subject

    found = answers(Subject(run=run, diagnosis=diagnosis))
    return {"checklist": [{**check._asdict(), "standing": check.standing.value} for check in found]}
