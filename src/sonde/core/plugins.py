"""The plug-in door: built-ins and third parties come in the same way, and a broken one keeps nobody out."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import Any, NamedTuple

from sonde.core.errors import PluginError


class Owner(NamedTuple):
    """The package that a plug-in comes with."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What came through a door, and what did not.

    Args:
        members: The plug-ins by name, in order of name.
        owners: Of each of them that is not Sonde's own, by name.
        problems: One error for each plug-in that is broken or hidden by another of its name. They are values:
            whoever opened the door decides how to show them.
    """

    members: Mapping[str, Any]
    owners: Mapping[str, Owner] = field(default_factory=dict, hash=False)
    problems: tuple[PluginError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """Where plug-ins of one kind come in.

    A third party declares its own in its package's metadata, and needs nothing else:

    ```toml
    [project.entry-points."sonde.sinks"]
    parquet = "my_package.sinks:Parquet"
    ```

    A name belongs to the built-in, else to the distribution that comes first in the alphabet; the others
    are reported by `load_all`. Installed packages are read anew at every call.

    Args:
        group: The group of entry points, such as "sonde.sinks".
        kind: What one of them is called in messages, such as "sink".
        builtins: Sonde's own, name → "module:attribute"; imported only when loaded.
        accepts: Whether a loaded object is of the kind.

    Example:
        >>> door = Door(
        ...     group="sonde.encoders",
        ...     kind="encoder",
        ...     builtins={"json": "json:dumps", "pickle": "pickle:dumps"},
        ...     accepts=callable,
        ... )
        >>> door.names()
        ('json', 'pickle')
        >>> door.load("json")([1, None])
        '[1, null]'
        >>> door.load("jsom")
        Traceback (most recent call last):
        ...
        sonde.core.errors.PluginError: there is no encoder 'jsom'; did you mean 'json'? Known: json, pickle.
    """

    group: str
    kind: str
    builtins: Mapping[str, str] = field(default_factory=dict, hash=False)
    accepts: Callable[[object], bool]

    def names(self) -> tuple[str, ...]:
        """The names that can be asked for, sorted."""
        return tuple(sorted(self._open().entries))

    def load(self, name: str) -> Any:
        """The plug-in of that name.

        Raises:
            PluginError: there is none (the message has the nearest name), or it is broken (the message says
                whose it is and what is wrong).
        """
        entries = self._open().entries
        if name not in entries:
            nearest = difflib.get_close_matches(name, entries, n=1)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            raise PluginError(f"there is no {self.kind} {name!r}; {hint}Known: {', '.join(sorted(entries)) or 'none'}.")
        return self._load(entries[name])

    def load_all(self) -> Loaded:
        """Every plug-in that loads, and a problem for each that does not; no plug-in makes it raise."""
        found = self._open()
        members, owners, problems = {}, {}, list(found.problems)
        for name, entry in sorted(found.entries.items()):
            try:
                members[name] = self._load(entry)
            except PluginError as error:
                problems.append(error)
                continue
            if entry.dist is not None:
                owners[name] = Owner(_name(entry.dist) or "", entry.dist.version)
        return Loaded(members=members, owners=owners, problems=tuple(problems))

    def _open(self) -> "_Found":
        entries = {name: EntryPoint(name, value, self.group) for name, value in self.builtins.items()}
        installed, problems = _installed(self.group)
        for entry in sorted(installed, key=lambda entry: (_owner(entry), entry.name, entry.value)):
            if entry.name in entries:
                winner = entries[entry.name]
                problems.append(
                    PluginError(
                        f"{self._describe(entry)} is hidden by that of {_owner(winner)}, of the same name; "
                        f"uninstall one of them, or ask the author of {_owner(entry)} for another name."
                    )
                )
            else:
                entries[entry.name] = entry
        return _Found(entries, tuple(problems))

    def _load(self, entry: EntryPoint) -> Any:
        try:
            plugin = entry.load()
            accepted = self.accepts(plugin)
        # A third party's import may fail in any way; even `sys.exit` in it must not end a training.
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{self._describe(entry)} does not load: {type(error).__name__}: {error}. {_advice(entry)}"
            ) from error
        if not accepted:
            raise PluginError(
                f"{self._describe(entry)} is no {self.kind} but of type {type(plugin).__qualname__}. {_advice(entry)}"
            )
        return plugin

    def _describe(self, entry: EntryPoint) -> str:
        return f"the {self.kind} {entry.name!r} of {_owner(entry)} ({self.group}: {entry.name} = {entry.value})"


@dataclass(frozen=True, slots=True)
class _Found:
    entries: Mapping[str, EntryPoint]
    problems: tuple[PluginError, ...]


def _installed(group: str) -> tuple[list[EntryPoint], list[PluginError]]:
    try:
        return list(entry_points(group=group)), []
    except Exception:  # one package with a malformed entry_points.txt makes the standard library refuse all of them
        return _installed_one_by_one(group)


def _installed_one_by_one(group: str) -> tuple[list[EntryPoint], list[PluginError]]:
    entries: list[EntryPoint] = []
    problems: list[PluginError] = []
    for distribution in _first_of_each_name():
        try:
            entries.extend(distribution.entry_points.select(group=group))
        except Exception as error:
            problems.append(
                PluginError(
                    f"the entry points of {_title(distribution)} cannot be read: "
                    f"{type(error).__name__}: {error}. Update or uninstall it."
                )
            )
    return entries, problems


def _first_of_each_name() -> Iterator[Distribution]:
    seen = set()
    for distribution in distributions():
        name = _name(distribution)
        if name is None or name not in seen:  # as for imports, the first on the path hides the others
            seen.add(name)
            yield distribution


def _name(distribution: Distribution) -> str | None:
    try:
        return distribution.metadata["Name"]
    except Exception:  # an interrupted uninstall leaves no metadata; what Python says to that differs by version
        return None


def _title(distribution: Distribution) -> str:
    name = _name(distribution)
    return "a package without metadata" if name is None else f"{name} {distribution.version}"


def _owner(entry: EntryPoint) -> str:
    return _title(entry.dist) if entry.dist else "Sonde"


def _advice(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "This is Sonde's own: an optional package may be missing; else reinstall Sonde."
    return f"Update {_owner(entry)}, or uninstall it."
