"""Where settings come from: files, the environment."""

import difflib
import shlex
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sonde.alerts.config import ENVIRONMENT as OF_ALERTS
from sonde.config.acting import acting
from sonde.config.own_files import read
from sonde.config.places import OWN_FILE, PROJECT_FILE, own_folder, project_folder
from sonde.config.trust import Trust
from sonde.core import printable
from sonde.core.errors import FormatError, SettingError
from sonde.core.settings import Word, check_text, flat

FILE_VARIABLE = "SONDE_CONFIG"

ENVIRONMENT: Mapping[str, str] = {
    "SONDE_PRESET": "preset",
    "SONDE_RUNS": "runs",
    "SONDE_BUDGET": "budget",
    "SONDE_FLOOR_S": "floor_s",
    "SONDE_CONSOLE": "console",
    "SONDE_CONSOLE_S": "console_s",
    "SONDE_TOTAL_STEPS": "total_steps",
    "SONDE_TOTAL_EPOCHS": "total_epochs",
    "SONDE_DOCTOR": "doctor",
    "SONDE_PROFILE": "profile",
    "SONDE_CADENCE": "cadence",
    "SONDE_PROBES": "probes",
    "SONDE_LOSS": "loss",
    "SONDE_RULES": "rules",
    "SONDE_SINKS": "sinks",
    **OF_ALERTS,
}
"""Variables and the settings that they stand for."""

_PREFIX = "SONDE_"
_OTHERS = ("SONDE_RUN", FILE_VARIABLE)
_TYPO = 0.7  # less alike, a variable is somebody else's


class Source(NamedTuple):
    """Some settings, and where they are from."""

    name: str
    """In short, such as "sonde.toml"."""
    path: str
    """In full, for messages."""
    table: Mapping[str, Any]
    project: Path | None = None
    """Folder of the project that they came with; None where the user said them."""


class Ignored(NamedTuple):
    """A file that is not obeyed, or some of its settings."""

    path: str
    settings: tuple[str, ...]
    """Keys; all where empty."""
    reason: str
    advice: str

    def __str__(self) -> str:
        what = f": {', '.join(self.settings)} not obeyed: " if self.settings else " is not obeyed: it "
        return printable.one_line(f"{self.path}{what}{self.reason}; {self.advice}")


class Files(NamedTuple):
    """What the files say, the one that goes first at the end, and what of them is not obeyed."""

    sources: tuple[Source, ...] = ()
    ignored: tuple[Ignored, ...] = ()


def files(folder: Path, environment: Mapping[str, str], trust: Trust) -> Files:
    """The files that hold for a working directory.

    They are the user's own (`places.own_folder`), then those of the project (`places.project_folder`), of which
    settings that send, write or act count only where the user trusts the file; or the one file that `SONDE_CONFIG`
    names, which is as good as the user's own; `off` is none.

    Raises:
        FormatError: a file is not TOML, or the one that `SONDE_CONFIG` names cannot be used.
    """
    named = environment.get(FILE_VARIABLE, "").strip()
    if named.lower() == "off":
        return Files()
    if named:
        check_text(FILE_VARIABLE, named)
        path = folder / named
        content = read(path, follow=True)
        if content is None:
            raise FormatError(f"{path} cannot be read: No such file or directory, as {FILE_VARIABLE} says")
        if content.trouble:
            raise FormatError(f"{path} {content.trouble}, and {FILE_VARIABLE} names it; {content.advice}")
        return _joined([_clean(_source(path, content.data))])
    own = own_folder(environment)
    project = project_folder(folder, environment)
    found = []
    if own is not None:
        found.append(_own(own / OWN_FILE))
    if project is not None and (own is None or project != own.resolve()):
        found += [_of_project(project / name, folder, trust) for name in (PROJECT_FILE, OWN_FILE)]
    return _joined(found)


def project_source(path: Path) -> Source | None:
    """What a project's file says, whether it is trusted or not; None where it says nothing to us.

    Raises:
        FormatError: it is not TOML, or may not be obeyed.
    """
    content = read(path)
    if content is None:
        raise FormatError(f"{path} cannot be read: No such file or directory")
    if content.trouble:
        raise FormatError(f"{path} {content.trouble}; {content.advice}")
    source = _clean(_source(path, content.data, project=path.parent)).sources
    return source[0] if source else None


def variables(environment: Mapping[str, str]) -> list[Source]:
    """What the environment says, a source for each variable; empty ones say nothing.

    Raises:
        SettingError: a variable looks like one of ours and is none.
    """
    found = []
    for variable, value in environment.items():
        if not variable.startswith(_PREFIX) or not value.strip() or variable in _OTHERS:
            continue
        if variable in ENVIRONMENT:
            found.append(Source(variable, f"{variable} in the environment", _nested(ENVIRONMENT[variable], value)))
        elif near := _nearest(variable):
            raise SettingError(f"there is no variable {variable}; did you mean {near}?")
    return found


def _nearest(variable: str) -> str:
    known = [name.removeprefix(_PREFIX) for name in (*ENVIRONMENT, *_OTHERS)]
    near = difflib.get_close_matches(variable.removeprefix(_PREFIX), known, n=1, cutoff=_TYPO)
    return _PREFIX + near[0] if near else ""


def _nested(key: str, value: str) -> dict[str, Any]:
    table: Any = Word(value)
    for name in reversed(key.split(".")):
        table = {name: table}
    return dict(table)


def _own(path: Path) -> Files:
    content = read(path, follow=True)  # people keep their settings elsewhere, and link them
    if content is None:
        return Files()
    if content.trouble:
        return Files(ignored=(Ignored(str(path), (), content.trouble, content.advice),))
    return _clean(_source(path, content.data)._replace(name=f"user's {path.name}"))


def _of_project(path: Path, folder: Path, trust: Trust) -> Files:
    content = read(path)
    if content is None:
        return Files()
    if content.trouble:
        is_ours = path.name == OWN_FILE or _speaks_of_us(content.data or _behind_link(path))
        return Files(ignored=(Ignored(str(path), (), content.trouble, content.advice),) if is_ours else ())
    found = _clean(_source(path, content.data, project=path.parent))
    if not found.sources:
        return found
    keys = acting(found.sources[0].table, project=path.parent, folder=folder)
    if not keys or trust.holds(path, found.sources[0].table):
        return found
    reason = "what sends, writes or acts needs your trust in a file that came with a project"
    ignored = Ignored(str(path), tuple(keys), reason, f"read it, then: sonde config trust {shlex.quote(str(path))}")
    return Files((_without(found.sources[0], keys),), (*found.ignored, ignored))


def _clean(source: Source) -> Files:
    """Without settings that hold control characters: they would end up in logs, on terminals and in names of files."""
    if not source.table:
        return Files()
    bad = [key for key, item in flat(source.table) if not _is_printable(key, item)]
    if not bad:
        return Files((source,))
    ignored = Ignored(source.path, tuple(bad), "control characters are refused", "write it without them")
    return Files((_without(source, bad),), (ignored,))


def _is_printable(*items: Any) -> bool:
    return all(
        _is_printable(*item.keys(), *item.values())
        if isinstance(item, Mapping)
        else _is_printable(*item)
        if isinstance(item, list)
        else not isinstance(item, str) or printable.is_printable(item)
        for item in items
    )


def _without(source: Source, keys: Collection[str]) -> Source:
    kept = {key: item for key, item in flat(source.table) if key not in keys}
    return source._replace(table=kept)


def _joined(found: Sequence[Files]) -> Files:
    sources = tuple(source for one in found for source in one.sources if source.table)
    return Files(sources, tuple(item for one in found for item in one.ignored))


def _source(path: Path, data: bytes, *, project: Path | None = None) -> Source:
    if path.name != PROJECT_FILE:
        return Source(path.name, str(path), _toml(path, data), project)
    try:
        table = _toml(path, data).get("tool", {}).get("sonde", {})
    except FormatError:
        if _speaks_of_us(data):
            raise
        table = {}  # somebody else's trouble
    if not isinstance(table, Mapping):
        raise FormatError(f"{path}: [tool.sonde] must be a table")
    return Source(path.name, f"{path} [tool.sonde]", table, project)


def _speaks_of_us(data: bytes) -> bool:
    return b"[tool.sonde" in data


def _behind_link(path: Path) -> bytes:
    content = read(path, follow=True)
    return b"" if content is None else content.data


def _toml(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path} is not TOML: {error}") from error
