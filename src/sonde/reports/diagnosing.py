"""The diagnosis of a run on disk."""

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from sonde.core.errors import FormatError, TagNotFound
from sonde.core.findings import Diagnosis, Finding
from sonde.core.records import Float64, Int64
from sonde.diagnosis.replay import ACROSS_RANKS, replay
from sonde.rules.configuring import configured
from sonde.rules.ranks.rank_series import RankSeries
from sonde.rules.rule import Rule
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
        ranks=_between_ranks(opened),
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


def _between_ranks(run: Run) -> dict[str, RankSeries]:
    """What is compared between ranks, by tag; nothing where there was only one."""
    ranks = run.ranks()
    if len(ranks) < 2:
        return {}
    parameters = {tuple(one.tags("weight/norm@*")) for one in ranks.values()}
    # Stages of a pipeline hold other parameters each: only their times can be compared.
    tags = ACROSS_RANKS if len(parameters) == 1 else [tag for tag in ACROSS_RANKS if tag.startswith("time/")]
    return {tag: {rank: _points(one, tag) for rank, one in ranks.items()} for tag in tags}


def _points(run: Run, tag: str) -> tuple[Int64, Float64]:
    """Steps and values of a series, none where a rank did not record it."""
    try:
        series = run.series(tag)
    except TagNotFound:
        return np.empty(0, np.int64), np.empty(0)
    return series.step, series.value.astype(np.float64)
