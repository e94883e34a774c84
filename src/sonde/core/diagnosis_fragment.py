"""A diagnosis in a notebook."""

from html import escape

from sonde.core import fragments
from sonde.core.findings import Diagnosis
from sonde.core.printable import one_line


def fragment(diagnosis: Diagnosis) -> str:
    """The verdict, each cause with all that is said of it behind its heading, and what could not be judged.

    Example:
        >>> fragment(Diagnosis(run="runs/<b>", steps=5)).count("runs/&lt;b&gt;")
        1
    """
    verdict = fragments.badge(diagnosis.verdict.value, diagnosis.said)
    parts = [f"{verdict} {escape(one_line(diagnosis.run))}"]
    for group in diagnosis.groups:
        first = group.findings[0]
        heading = one_line(f"{first.severity}: {first.code} {first.name}: {first.message}")
        parts.append(fragments.folded(fragments.badge(first.severity.value, heading), str(group)))
    parts += [
        fragments.folded(escape(one_line(f"note: {note.code} {note.name}: {note.message}")), str(note))
        for note in diagnosis.notes
    ]
    for heading, said in (("not measured", diagnosis.not_measured), ("rules", diagnosis.rule_problems)):
        if said:
            parts.append(fragments.folded(heading, "\n".join(map(one_line, said))))
    return f"<div>{''.join(f'<div>{part}</div>' for part in parts)}</div>"
