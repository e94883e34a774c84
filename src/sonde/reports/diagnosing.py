"""The diagnosis of a run on disk."""

import os
from collections.abc import Iterable

from sonde.core.findings import Diagnosis
from sonde.diagnosis.replay import replay
from sonde.rules.rule import Rule
from sonde.store.reader import Run, load


def diagnose(run: Run | str | os.PathLike[str], *, rules: Iterable[Rule] | None = None) -> Diagnosis:
    """What is wrong with a run, why, and what to do about it.

    Works on any run, finished or live, also on one that was copied here from elsewhere: torch is not needed. The rows
    are read one after the other, so that memory stays bounded.

    Args:
        run: The run, or its folder.
        rules: Those to apply; all of the catalogue with their default settings where left out.

    Raises:
        RunNotFound, RunUnreadable: there is no run there.

    Example:
        >>> import tempfile, sonde
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with sonde.record(folder) as writer:
        ...         for step in range(100):
        ...             writer.log(step, {"loss": 1 / (1 + step)})
        ...     print(diagnose(folder).verdict in ("healthy", "info"))
        True
    """
    opened = run if isinstance(run, Run) else load(run)
    return replay(str(opened.path), opened.frames(), opened.events(), rules=rules)
