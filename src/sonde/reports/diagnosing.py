"""The diagnosis of a run on disk."""

import os
from collections.abc import Callable, Iterable, Mapping

from sonde.core.errors import FormatError
from sonde.core.findings import Diagnosis, Finding
from sonde.diagnosis.across import ACROSS_RANKS
from sonde.diagnosis.replay import replay
from sonde.rules.configuring import configured
from sonde.rules.rule import Rule
from sonde.store.between_ranks import between_ranks
from sonde.store.profiles import read_profile
from sonde.store.reader import Run, load


def diagnose(
    run: Run | str | os.PathLike[str],
    *,
    rules: Iterable[Rule] | None = None,
    profile: Mapping[str, object] | str | os.PathLike[str] | None = None,
    on_finding: Callable[[Finding], None] | None = None,
) -> Diagnosis:
    """What is wrong with a run, why, and what to do about it.

    Works on any run, finished or live, also on one that was copied here from elsewhere: torch is not needed. The rows
    are read one after the other, so that memory stays bounded. Of several processes that trained together the rows of
    the first are judged, and those series in which ranks should agree are compared between all of them.

    Args:
        run: The run, or its folder.
        rules: Those to apply; all of the catalogue with their default settings where left out.
        profile: Settings of rules by name (`{"LOS002.warning": 9.0}`), or a file that `sonde calibrate` wrote; instead
            of `rules`.
        on_finding: Called with each finding that is new or has got worse, information included, in the order in which
            they would have come while the training ran: `last_step` is the step at which it was known.

    Raises:
        RunNotFound, RunUnreadable: there is no run there.
        FormatError: the file is no profile.
        ValueError, TypeError: `rules` and `profile` are both given, or the profile names what is not there.

    Example:
        >>> import tempfile, sonde
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with sonde.record(folder) as writer:
        ...         for step in range(100):
        ...             writer.log(step, {"loss": 1 / (1 + step)})
        ...     print(diagnose(folder).verdict in ("healthy", "info"))
        True
    """
    if profile is not None:
        if rules is not None:
            raise ValueError("`diagnose` takes `rules` or a `profile`, not both.")
        rules = _rules(profile)
    opened = run if isinstance(run, Run) else load(run)
    return replay(
        str(opened.path),
        opened.frames(),
        opened.events(),
        rules=rules,
        ranks=between_ranks(opened, ACROSS_RANKS),
        on_finding=on_finding,
    )


def _rules(profile: Mapping[str, object] | str | os.PathLike[str]) -> list[Rule]:
    if isinstance(profile, Mapping):
        return configured(profile)
    settings = read_profile(profile)
    try:
        return configured(settings)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{os.fspath(profile)}: {error}") from error
