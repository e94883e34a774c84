"""What `sonde run` says when the script has ended."""

from collections.abc import Sequence
from pathlib import Path

from sonde.core import printable
from sonde.core.errors import TagNotFound
from sonde.core.findings import Diagnosis, Finding
from sonde.diagnosis.sufficiency import lacking
from sonde.store.reader import load

_MOST_LINES = 12


def epilogue(path: Path, findings: Sequence[Finding], *, judged: bool) -> str:
    """The verdict, what was found by its causes, and what was not measured, in a few lines.

    Args:
        path: The run.
        findings: Those of the whole run, the worst first.
        judged: Whether anybody looked for them.
    """
    run = load(path)
    try:
        run.series("loss", start=run.steps)
        tags = ["loss"]
    except TagNotFound:  # listing all tags takes longer, and few runs have no loss
        tags = run.tags()
    not_enough = lacking(run.steps, tags, run.unreadable_tables)
    diagnosis = Diagnosis(run=str(path), steps=run.steps, findings=tuple(findings), not_enough=not_enough)
    said = diagnosis.said if judged else f"not judged after {run.steps:,} steps"
    lines = [f"Sonde: {said} ({run.state.ending})"]
    told = diagnosis.groups
    lines += [f"  {group.summary}" for group in told[:_MOST_LINES]]
    if len(told) > _MOST_LINES:
        lines.append(f"  and {len(told) - _MOST_LINES} more causes")
    unmeasured: dict[str, list[str]] = {}
    for event in run.events("not-measured"):
        unmeasured.setdefault(str(event.data.get("reason")), []).append(str(event.data.get("tag")))
    lines += [f"  not measured: {', '.join(tags)}: {reason}" for reason, tags in list(unmeasured.items())[:_MOST_LINES]]
    if len(unmeasured) > _MOST_LINES:
        lines.append(f"  not measured: {sum(map(len, list(unmeasured.values())[_MOST_LINES:]))} more kinds of series")
    lines.append(f"  more: sonde diagnose {path}")
    return "\n".join(map(printable.inline, lines))
