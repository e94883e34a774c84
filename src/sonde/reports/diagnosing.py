"""The diagnosis of a run on disk."""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping

from sonde.config import effective
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

    Rules have their settings, each by itself, from the first of these that has it: the `profile`, what the run was
    recorded with, the configuration of the working directory (`sonde config`), the rule's default. What a run was
    recorded with by another Sonde, and this one does not know, is left out.

    Args:
        run: The run, or its folder.
        rules: Those to apply, as they are; all of the catalogue with settings as above where left out.
        profile: Settings of rules by name (`{"LOS002.warning": 9.0}`), or a file that `sonde calibrate` wrote; instead
            of `rules`.
        on_finding: Called with each finding that is new or has got worse, information included, in the order in which
            they would have come while the training ran: `last_step` is the step at which it was known.

    Raises:
        RunNotFound, RunUnreadable: there is no run there.
        FormatError: the file is no profile.
        SettingError: the configuration of the working directory is wrong.
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
    if profile is not None and rules is not None:
        raise ValueError("`diagnose` takes `rules` or a `profile`, not both.")
    opened = run if isinstance(run, Run) else load(run)
    if rules is None:
        rules = configured(settings_of(opened, {} if profile is None else _read(profile)))
    return replay(
        str(opened.path),
        opened.frames(),
        opened.events(),
        rules=rules,
        ranks=between_ranks(opened, ACROSS_RANKS),
        on_finding=on_finding,
    )


def settings_of(run: Run, profile: Mapping[str, object] | None = None) -> Mapping[str, object]:
    """The settings of rules by which a run is judged, by name; what is not among them is as by default.

    Args:
        run: The run.
        profile: Settings that go before those that it was recorded with, and those of the working directory.

    Raises:
        SettingError: the configuration of the working directory is wrong.
    """
    # An empty table would take the place of all that others say.
    return effective().over({"rules": _stored(run) or None}).over({"rules": profile or None}).config.rules


def _stored(run: Run) -> dict[str, object]:
    stored = run.info.get("settings")
    found = {}
    for key, setting in stored.items() if isinstance(stored, Mapping) else ():
        table, _, name = str(key).partition(".")
        if table == "rules" and name and isinstance(setting, Mapping) and "value" in setting:
            with contextlib.suppress(TypeError, ValueError):  # of another version
                configured({name: setting["value"]})
                found[name] = setting["value"]
    return found


def _read(profile: Mapping[str, object] | str | os.PathLike[str]) -> Mapping[str, object]:
    """Of a profile, checked."""
    if isinstance(profile, Mapping):
        configured(profile)
        return profile
    settings = read_profile(profile)
    try:
        configured(settings)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{os.fspath(profile)}: {error}") from error
    return settings
