"""The diagnosis of a run on disk."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sonde.config import effective
from sonde.core.errors import FormatError, SettingError
from sonde.core.findings import Diagnosis, Finding
from sonde.core.own_settings import OwnSettings
from sonde.diagnosis.across import ACROSS_RANKS
from sonde.diagnosis.plugin_rules import KIND, rule_problems
from sonde.diagnosis.replay import replay
from sonde.diagnosis.sufficiency import lacking
from sonde.rules.configuring import configured, departures
from sonde.rules.rule import Rule
from sonde.store.between_ranks import between_ranks
from sonde.store.profiles import read_profile
from sonde.store.reader import Run, load

_MOST_STORED = 1_000  # there are fewer


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
    recorded with, the configuration of the working directory (`sonde config`), the rule's default. What the run's own
    settings change, and which of them are ignored, is said: `Diagnosis.own_settings`.

    Where a rule of another package judged the run while it was recorded, and is missing here or of another version,
    that is said as well: `Diagnosis.rule_problems`.

    A run of which nothing, no loss or no step was recorded, or whose tables are damaged, is not called healthy: where
    no alarm was found in it the verdict is `unknown`, and `Diagnosis.not_enough` says why.

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
        SettingError: the configuration of the working directory is wrong, or contradicts that of the run.
        ValueError, TypeError: `rules` and `profile` are both given, or the profile names what is not there.

    Example:
        >>> import tempfile, sonde
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with sonde.record(folder) as writer:
        ...         for step in range(100):
        ...             writer.log({"loss": 1 / (1 + step)}, step=step)
        ...     print(diagnose(folder).verdict in ("healthy", "info"))
        True
    """
    if profile is not None and rules is not None:
        raise ValueError("`diagnose` takes `rules` or a `profile`, not both.")
    opened = run if isinstance(run, Run) else load(run)
    own = OwnSettings()
    if rules is None:
        given = {} if profile is None else _read(profile)
        held = settings_of(opened, given)
        own = own_settings(opened, held)
        try:
            rules = configured(held)
        except (TypeError, ValueError) as error:
            raise SettingError(f"the settings of {opened.path} and those given here contradict: {error}") from error
    found = replay(
        str(opened.path),
        opened.frames(),
        opened.events(),
        rules=rules,
        ranks=between_ranks(opened, ACROSS_RANKS),
        model=opened.model,
        on_finding=on_finding,
    )
    not_enough = lacking(found.steps, opened.tags(), opened.unreadable_tables)
    problems = rule_problems(opened.events(KIND))
    return replace(found, own_settings=own, not_enough=not_enough, rule_problems=problems)


def by_default(profile: str | os.PathLike[str] | None = None) -> list[Rule]:
    """All rules with their default settings, but for those of a profile.

    Raises:
        FormatError: the file is no profile.
    """
    return configured({} if profile is None else _read(profile))


def settings_of(run: Run, profile: Mapping[str, object] | None = None) -> Mapping[str, object]:
    """The settings of rules by which a run is judged, by name; what is not among them is as by default.

    Args:
        run: The run.
        profile: Settings that go before those that it was recorded with, and those of the working directory.

    Raises:
        SettingError: the configuration of the working directory is wrong.
    """
    # An empty table would take the place of all that others say.
    stored, _ = _stored(run)
    return effective().over({"rules": stored or None}).over({"rules": profile or None}).config.rules


def own_settings(run: Run, held: Mapping[str, object]) -> OwnSettings:
    """What the settings that a run was recorded with change.

    Args:
        run: The run.
        held: The settings by which it is judged, by code: what went before the run's own counts no more.
    """
    stored, ignored = _stored(run)
    off, changed = departures(stored)
    return OwnSettings(
        off=tuple(code for code in off if held.get(code) is False),
        changed={key: value for key, value in changed.items() if departures({key: held[key]})[1].get(key) == value},
        ignored=ignored,
    )


def _stored(run: Run) -> tuple[dict[str, object], dict[str, str]]:
    """The settings of rules that a run was recorded with, and those that are none, or of another version."""
    stored = run.info.get("settings")
    found: dict[str, object] = {}
    ignored: dict[str, str] = {}
    for key, setting in stored.items() if isinstance(stored, Mapping) else ():
        table, _, name = str(key).partition(".")
        if table != "rules" or not name:
            continue
        if len(found) + len(ignored) >= _MOST_STORED:
            ignored["…"] = f"a run has at most {_MOST_STORED:,} settings of rules"
            break
        if not isinstance(setting, Mapping) or "value" not in setting:
            ignored[name] = "it holds no value"
            continue
        try:
            configured({**found, name: setting["value"]})  # together: each may be right, and both be wrong
        except (TypeError, ValueError) as error:
            ignored[name] = str(error)
        else:
            found[name] = setting["value"]
    return found, ignored


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
