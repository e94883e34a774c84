"""All sources laid over each other, a key at a time: the later goes before the earlier.

Defaults, the preset, the profile of rules, the user's own `sonde.toml`, the project's `pyproject.toml` and
`sonde.toml`, the environment, arguments.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sonde.config import schema
from sonde.config.own_files import read
from sonde.config.presets import PRESETS
from sonde.config.schema import Config
from sonde.config.sources import Files, Ignored, Source, files, variables
from sonde.config.trust import Trust
from sonde.core import settings
from sonde.core.errors import SettingError
from sonde.core.strict_json import Json
from sonde.store.profiles import parse_profile, read_profile

DEFAULT, ARGUMENT = "default", "argument"

_told: set[str] = set()  # a process says of each file once that it is not obeyed


@dataclass(frozen=True, kw_only=True, slots=True)
class Effective:
    """The configuration that holds, and where it is from.

    Args:
        config: The configuration.
        origins: Of each key that is not at its default: "sonde.toml", "SONDE_BUDGET", "argument".
        files: The files that were read.
        ignored: Files, and settings of files, that are not obeyed.
        sources: What it was made of, secrets and all.
    """

    config: Config
    origins: Mapping[str, str]
    files: tuple[str, ...]
    ignored: tuple[Ignored, ...] = ()
    sources: tuple[Source, ...] = field(repr=False)

    def over(self, arguments: Mapping[str, Any]) -> "Effective":
        """The same, but for what these arguments say, as tables or by dotted names; None says nothing.

        Raises:
            SettingError: a key or a value is wrong.
        """
        said = {name: item for name, item in arguments.items() if item is not None}
        if not said:
            return self
        return replace(
            _merged((*self.sources, Source(ARGUMENT, ARGUMENT, said))), files=self.files, ignored=self.ignored
        )

    def to_json(self) -> dict[str, Json]:
        """Every setting by key, with its value and where that is from; without secrets."""
        return {
            key: {"value": value, "from": _origin(self.origins, key)}
            for key, value in settings.flat(self.config.to_json())
        }


def effective(*, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Effective:
    """The configuration for a working directory. What is not obeyed is a warning, once in a process.

    Args:
        folder: Where files are looked for from; the working directory where left out.
        environment: `os.environ` where left out.

    Raises:
        SettingError: a key or a value is wrong; the message says which, where it stands and what is allowed.
        FormatError: a file is not TOML.

    Example:
        >>> found = effective(folder=Path("/"), environment={"SONDE_RULES": "GRD008.window=4"}).over({"budget": 0.05})
        >>> found.config.budget, found.config.rules, found.origins["rules.GRD008.window"]
        (0.05, {'GRD008.window': 4}, 'SONDE_RULES')
    """
    environment = os.environ if environment is None else environment
    found = files(folder or _here(), environment, Trust(environment))
    _tell(found)
    merged = _merged((*found.sources, *variables(environment)))
    return replace(merged, files=tuple(source.path for source in found.sources), ignored=found.ignored)


def check(source: Source) -> None:
    """Refuse settings that would be wrong where they are obeyed.

    Raises:
        SettingError: a key or a value is wrong.
    """
    _merged((source,))


def _tell(found: Files) -> None:
    for ignored in found.ignored:
        if (said := str(ignored)) not in _told:
            import logging  # only where there is something to say: scripts wait for it

            _told.add(said)
            logging.getLogger("sonde.config").warning("%s", said)


def _merged(sources: tuple[Source, ...]) -> Effective:
    everything = (*_named(_laid(sources), sources), *sources)
    laid = _laid(everything)
    origins = {key: name for key, (_, name) in laid.items()}
    try:
        config = schema.read(_nested({key: item for key, (item, _) in laid.items()}))
    except SettingError as error:
        full = {source.name: source.path for source in everything}
        where = ", ".join(full.get(name, name) for name in _origin(origins, error.key).split(", "))
        raise SettingError(f"{where}: {error}") from error
    return Effective(config=config, origins=origins, files=(), sources=sources)


def _named(laid: Mapping[str, tuple[Any, str]], given: Sequence[Source]) -> list[Source]:
    """The preset and the profile that the settings name; they count less than any of these."""
    sources = []
    of_projects = {source.name for source in given if source.project is not None}
    name = str(laid.get("preset", ("none", ""))[0])
    if name in PRESETS:  # else it is refused later, with its origin
        sources.append(Source(f"preset {name}", f"preset {name}", PRESETS[name]))
    path, origin = laid.get("profile", ("", ""))
    if isinstance(path, str) and path:
        try:
            rules = _profile_of_project(path) if origin in of_projects else read_profile(path)
            sources.append(Source(Path(path).name, path, {"rules": rules}))
        except OSError as error:
            raise SettingError(f"cannot be read: {path}: {error.strerror}, as {origin} says", "profile") from error
    return sources


def _profile_of_project(path: str) -> dict[str, Any]:
    """A profile that came with a project: it could be a pipe that never ends."""
    content = read(Path(path), follow=True)  # what leads out of the project needs trust
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if content.trouble:
        raise SettingError(f"is not obeyed: {path} {content.trouble}; {content.advice}.", "profile")
    return parse_profile(content.data, path)


def _opened(source: Source) -> dict[str, tuple[Any, str]]:
    """The source's values by key, each with the source's name; tables in words of the environment are opened."""
    table = dict(source.table)
    for name in ("cadence", "probes", "loss", "rules"):
        if isinstance(table.get(name), settings.Word):
            try:
                table[name] = settings.table_of(name, table[name])
            except SettingError as error:
                raise SettingError(f"{source.path}: {error}") from error
    return {_canonical(key): (value, source.name) for key, value in settings.flat(table)}


def _canonical(key: str) -> str:
    """A rule's settings by its code, so that its name elsewhere is the same setting."""
    table, _, name = key.partition(".")
    if table != "rules" or not name:
        return key
    from sonde.rules.catalogue import all_rules  # only where it is needed: see `schema`

    which, point, setting = name.partition(".")
    codes = {rule.name: rule.code for rule in all_rules()}
    return f"rules.{codes.get(which, which)}{point}{setting}"


def _laid(sources: Sequence[Source]) -> dict[str, tuple[Any, str]]:
    """One over the other; where one has a value and another a table of that name, the later counts."""
    laid: dict[str, tuple[Any, str]] = {}
    for source in sources:
        for key, value in _opened(source).items():
            for other in [other for other in laid if _is_within(other, key) or _is_within(key, other)]:
                del laid[other]
            laid[key] = value
    return laid


def _is_within(key: str, table: str) -> bool:
    # A rule can be switched and have settings.
    return key.startswith(f"{table}.") and not table.startswith("rules.")


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in values.items():
        *outer, last = key.split(".", 1 if key.startswith("rules.") else -1)
        place = table
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = value
    return table


def _origin(origins: Mapping[str, str], key: str) -> str:
    """Of a key; of a table, of all that is in it."""
    bare = key.partition("[")[0]
    if bare in origins:
        return origins[bare]
    return ", ".join(dict.fromkeys(name for k, name in origins.items() if k.startswith(f"{bare}."))) or DEFAULT


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path("/")
