"""What the model is made of."""

from sonde.reports.document import Block, Code, Heading, Line, Paragraph, Table
from sonde.reports.model_summary import Part, parts, sentence
from sonde.reports.subject import Subject

_MOST_PARTS = 30


def model(subject: Subject) -> tuple[Block, ...]:
    """Its size, and a row a part."""
    table = subject.run.model
    if table is None or not table.parameters:
        return ()
    found = parts(table)
    rows: list[tuple[Line, ...]] = [_row(part) for part in found[:_MOST_PARTS]]
    blocks: list[Block] = [
        Heading("Model"),
        Paragraph((f"{sentence(table)}.",)),
        Table(("Part", "Class", "Modules", "Parameters", "Values", "Frozen"), tuple(rows)),
    ]
    if len(found) > _MOST_PARTS:
        blocks.append(Paragraph((f"And {len(found) - _MOST_PARTS:,} more parts.",)))
    return tuple(blocks)


def _row(part: Part) -> tuple[Line, ...]:
    frozen = part.num_values - part.num_trainable
    words = "" if not frozen else "all" if frozen == part.num_values else f"{frozen:,}"
    counts = (f"{number:,}" for number in (part.num_modules, part.num_parameters, part.num_values))
    return ((Code(part.name),), (part.type,), *((number,) for number in counts), (words,))
