"""What was not measured, and the configuration and the machine of the run."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from sonde.core.json_fields import flattened
from sonde.core.quantities import count, moment
from sonde.reports.document import Block, Code, Fold, Heading, Items, Line, Paragraph, Table
from sonde.reports.subject import Subject

_MOST_NOTES = 50


def gaps(subject: Subject) -> tuple[Block, ...]:
    """What the verdict does not cover."""
    blocks: list[Block] = []
    if subject.diagnosis.not_measured:
        rows = tuple(
            ((Code(tag),), (reason,))
            for tag, _, reason in (said.partition(": ") for said in subject.diagnosis.not_measured)
        )
        blocks.append(Table(("Series", "Why not"), rows))
    if subject.state.dropped:
        rows_lost = ", ".join(f"{num:,} of {table}" for table, num in subject.state.dropped.items())
        blocks.append(Paragraph((f"Rows that were dropped because the disk was slow: {rows_lost}.",)))
    if problems := subject.run.problems:
        blocks.append(Paragraph(("Pieces of the run that could not be read:",)))
        blocks.append(Items(tuple((Code(problem),) for problem in problems[:_MOST_NOTES])))
    return (Heading("Not measured"), *blocks) if blocks else ()


def circumstances(subject: Subject) -> tuple[Block, ...]:
    """Configuration, environment and notes, as the run has them."""
    info = subject.run.info
    blocks: list[Block] = [Heading("Configuration and environment")]
    if config := tuple(_rows(info.get("config"))):
        blocks.append(Table(("Setting", "Value"), config))
    else:
        blocks.append(Paragraph(("No configuration was recorded.",)))
    environment = info.get("environment")
    if isinstance(environment, Mapping):
        shown = {name: value for name, value in environment.items() if name not in ("command", "process", "started")}
        rows = list(_rows(shown))
        if isinstance(words := environment.get("command"), list) and words:
            rows.append((("command",), (Code(shlex.join(map(str, words))),)))
        if rows:
            blocks.append(Fold(("Environment",), (Table(("", "Value"), tuple(rows)),)))
        else:
            blocks.append(Paragraph(("Where the training ran is not known.",)))
    if notes := [event for event in subject.run.events() if event.kind in ("note", "action")]:
        lines: list[Line] = [
            (
                f"{'' if event.step is None else f'Step {event.step:,}: '}{event.kind} ",
                Code(", ".join(f"{name}={value}" for name, value in event.data.items())),
            )
            for event in notes[:_MOST_NOTES]
        ]
        blocks.append(Fold((f"What happened ({count(len(notes), 'event')})",), (Items(tuple(lines)),)))
    num_ranks = len(subject.run.ranks())
    if num_ranks > 1:
        blocks.append(Paragraph((f"{num_ranks} processes trained together; curves are those of the first.",)))
    if len(subject.run.branches) > 1:
        begin = subject.run.branches[-1].fork_step
        blocks.append(
            Paragraph((f"The run went back and went on anew; what is shown is its newest line, from step {begin:,}.",))
        )
    return tuple(blocks)


def subtitle(subject: Subject) -> str:
    """When and where."""
    parts = [f"Run {subject.run.name}"]
    if isinstance(created := subject.run.info.get("created"), int | float):
        parts.append(f"recorded {moment(created)}")
    parts.append("read by Sonde, which watches the training of neural networks")
    return ", ".join(parts)


def _rows(settings: Any) -> Iterator[tuple[Line, ...]]:
    """Nested settings, a row each."""
    return (((Code(name),), (Code(str(value)),)) for name, value in flattened(settings))
