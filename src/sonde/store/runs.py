"""The runs of a folder, at the price of two small files each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sonde.core.errors import RunNotFound, StoreError
from sonde.core.records import Ending
from sonde.store import layout, states


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in one line; `problem` says why it cannot be read, where it cannot."""

    name: str
    path: Path
    ending: Ending = Ending.DIED
    reason: str = ""
    steps: int = 0
    loss: float | None = None
    findings: int = 0
    """Each counts once, however often it was told."""
    severities: Mapping[str, int] = field(default_factory=dict)
    """Findings by severity, the worst first; empty where the run does not say."""
    created: float = 0.0
    updated: float = 0.0
    problem: str = ""


def list_runs(folder: str | os.PathLike[str] = "runs") -> list[Summary]:
    """The runs of a folder (or the folder itself, where it is a run), newest first.

    Numbers are those of the run's last flush: of a run that was killed they may be a second old.

    Raises:
        RunNotFound: there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise RunNotFound(f"{root} does not exist or is not a folder; name the folder that holds your runs.")
    if os.path.lexists(root / layout.RUN):
        return [summarise(root)]
    found = [summarise(Path(entry.path)) for entry in os.scandir(root) if os.path.lexists(f"{entry.path}/{layout.RUN}")]
    return sorted(found, key=lambda run: (-run.created, run.name))


runs = list_runs
"""Its name in `sonde`."""


def summarise(run: Path) -> Summary:
    """One run in one line."""
    try:
        info = layout.read_info(run)
    except StoreError as error:
        return Summary(name=run.name, path=run, problem=str(error))
    state = states.read(run)
    return Summary(
        name=str(info.get("name") or run.name),
        path=run,
        ending=states.ending(run, state),
        reason=str(state.get("reason") or ""),
        steps=state.get("steps", 0),
        loss=state.get("loss"),
        findings=state.get("findings", 0),
        severities=state.get("severities", {}),
        created=info.get("created", 0.0),
        updated=state.get("updated", 0.0),
    )
