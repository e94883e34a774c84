"""Settings out of plain tables, as TOML and the environment give them: typed, and refused by name where they are wrong.

A frozen dataclass is the table: its fields are the keys, their types what is allowed. Fields may be `str`, `Secret`,
`bool`, `int`, `float`, an enumeration of texts, a `Literal`, `tuple[X, ...]` of those, another such dataclass, or any
of these `| None` where leaving it out means something.
"""

import dataclasses
import difflib
import enum
import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, TypeVar

from sonde.core import printable
from sonde.core.errors import SettingError
from sonde.core.redaction import Redactor
from sonde.core.secret import HIDDEN, Secret
from sonde.core.strict_json import Json

T = TypeVar("T")

_SWITCH = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
_WORDS = {str: "a text", Secret: "a text", bool: "true or false", int: "a whole number", float: "a number"}
_GAP = re.compile(r"[,\s]+")
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_REDACTOR = Redactor()


class Word(str):
    """A value out of the environment: a text, of which the setting decides what it says."""

    __slots__ = ()


def read(
    kind: type[T],
    table: Mapping[str, Any],
    *,
    at: str = "",
    also: Collection[str] = (),
    hints: Mapping[str, str] = types.MappingProxyType({}),
) -> T:
    """The settings of a table.

    Args:
        kind: The dataclass.
        table: What was given, by name; the rest has its defaults.
        at: The table's own name, for messages.
        also: Names that stand in the same table and are read by somebody else.
        hints: Where else a setting could be given, by key; said where one is needed and missing.

    Raises:
        SettingError: a name or a value is wrong; the message says what is allowed, and shows no secret.

    Example:
        >>> @dataclasses.dataclass(frozen=True, kw_only=True)
        ... class Limit:
        ...     burst: int = 5
        ...     refill_s: float = 600.0
        >>> read(Limit, {"refill_s": 60})
        Limit(burst=5, refill_s=60.0)
        >>> read(Limit, {"brust": 3}, at="a")
        Traceback (most recent call last):
        ...
        sonde.core.errors.SettingError: `a.brust` is no setting; did you mean `a.burst`? Allowed: burst, refill_s.
    """
    fields = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    kinds = typing.get_type_hints(kind)
    given = {}
    for name, item in table.items():
        if name in fields:
            given[name] = value(_join(at, name), kinds[name], item)
        elif name not in also:
            raise unknown(at, name, {*fields, *also})
    for name, field in fields.items():
        if name not in given and field.default is field.default_factory is dataclasses.MISSING:
            key = _join(at, name)
            raise SettingError(f"needs `{name}`: set `{key}`{hints.get(key, '')}.", at)
    try:
        return kind(**given)
    except SettingError:
        raise
    except (TypeError, ValueError) as error:
        raise SettingError(f"is refused: {error}", at) from error


def value(key: str, kind: Any, given: Any) -> Any:
    """One value as the setting holds it.

    Example:
        >>> value("codes", tuple[str, ...], "GRD*, LOS*"), value("budget", float, Word("0.02"))
        (('GRD*', 'LOS*'), 0.02)
        >>> value("budget", float, "0.02")
        Traceback (most recent call last):
        ...
        sonde.core.errors.SettingError: `budget` must be a number, got '0.02'.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return value(key, arguments[0], given)
    if origin is tuple:
        return _several(key, arguments[0], given)
    if origin is Literal:
        return _one_of(key, arguments, given)
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return kind(_one_of(key, [member.value for member in kind], given))
    if dataclasses.is_dataclass(kind):
        return read(typing.cast("type[Any]", kind), table_of(key, given), at=key)
    if kind not in _WORDS:
        raise SettingError(f"cannot be given here: it is of type {kind}.", key)
    found = _parsed(kind, given) if isinstance(given, Word) else given
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        found = float(found)
    if isinstance(found, str) and kind in (str, Secret):
        check_text(key, found, is_secret=kind is Secret)
    if kind is Secret and isinstance(found, str):
        return Secret(str(found))
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise SettingError(f"must be {_WORDS[kind]}, got {_told(kind, given)}.", key)
    return found


def check_text(key: str, given: str, *, is_secret: bool = False) -> None:
    r"""Refuse a text that would steer a terminal or break a line where it is printed, logged or sent.

    Bytes of a path that are in no encoding are no such thing: they are shown as escapes wherever they are printed.

    Raises:
        SettingError: it holds control characters.

    Example:
        >>> check_text("run", "runs/a\nb")
        Traceback (most recent call last):
        ...
        sonde.core.errors.SettingError: `run` must not hold control characters, got "runs/a\nb".
    """
    if not printable.is_printable(_UNDECODABLE.sub("", given)):
        shown = "a secret that does" if is_secret else f'"{printable.escaped(given)}"'
        raise SettingError(f"must not hold control characters, got {shown}.", key)


def table_of(key: str, given: Any) -> Mapping[str, Any]:
    """A table; in the environment `name=value` pairs, separated by commas or blanks.

    Example:
        >>> table_of("cadence", Word("layers=20, blocks=50"))
        {'layers': '20', 'blocks': '50'}
    """
    if isinstance(given, Word):
        pairs = [pair.partition("=") for pair in _GAP.split(given.strip(", \t\n")) if pair]
        if all(name and equals for name, equals, _ in pairs):
            return {name: Word(text) for name, _, text in pairs}
        raise SettingError("must be written as name=value,name=value.", key)
    if not isinstance(given, Mapping):
        raise SettingError(f"must be a table, got {type(given).__name__}.", key)
    return given


def literal(given: Any) -> Any:
    """What a word says where no setting has a type for it: a number, a list, true or false, else itself.

    Example:
        >>> literal(Word("50")), literal(Word("false")), literal(Word("[1, 2]")), literal(Word("GRD001"))
        (50, False, [1, 2], 'GRD001')
    """
    if not isinstance(given, Word):
        return given
    try:
        return tomllib.loads(f"it = {given}")["it"]
    except (tomllib.TOMLDecodeError, KeyError):
        return str(given)


def unknown(at: str, name: str, allowed: Collection[str]) -> SettingError:
    """The error for a name that nobody has, with the nearest that somebody has."""
    nearest = difflib.get_close_matches(name, allowed, n=1)
    hint = f"; did you mean `{_join(at, nearest[0])}`?" if nearest else "."
    key = printable.escaped(_join(at, name))
    return SettingError(f"is no setting{hint} Allowed: {', '.join(sorted(allowed))}.", key)


def shown(given: Any) -> Json:
    """Settings for a file or a screen: complete, but for secrets.

    Example:
        >>> shown({"url": Secret("xoxb"), "uri": "http://me:word@host/x", "sizes": (1, 2)})
        {'url': '•••', 'uri': 'http://•••@host/x', 'sizes': [1, 2]}
    """
    if isinstance(given, Secret):
        return HIDDEN if given else ""
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {item.name: shown(getattr(given, item.name)) for item in dataclasses.fields(given)}
    if isinstance(given, Mapping):
        return {str(key): shown(item) for key, item in given.items()}
    if isinstance(given, tuple | list):
        return [shown(item) for item in given]
    if given is None or isinstance(given, bool | int | float):
        return given
    return _REDACTOR.text(str(given))


def flat(table: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and values of tables within tables; an empty one is a value.

    Example:
        >>> dict(flat({"alerts": {"log": {"file": "a"}, "mail": {}}}))
        {'alerts.log.file': 'a', 'alerts.mail': {}}
    """
    for name, item in table.items():
        key = _join(at, str(name))
        if isinstance(item, Mapping) and item:
            yield from flat(item, key)
        else:
            yield key, item


def _several(key: str, kind: Any, given: Any) -> tuple[Any, ...]:
    items = given
    if isinstance(given, str):
        items = [type(given)(item) for item in _GAP.split(given.strip(", \t\n")) if item]
    if not isinstance(items, list | tuple):
        raise SettingError(f"must be a list, got {_told(kind, given)}.", key)
    return tuple(value(f"{key}[{index}]", kind, item) for index, item in enumerate(items))


def _one_of(key: str, allowed: Collection[Any], given: Any) -> Any:
    if given not in allowed:
        raise SettingError(f"must be one of {', '.join(map(str, allowed))}, got {given!r}.", key)
    return str(given)


def _parsed(kind: Any, word: Word) -> Any:
    """What a word says to a setting of this kind; itself where that is nothing."""
    text = str(word).strip()
    if kind is bool:
        return _SWITCH.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _told(kind: Any, given: Any) -> str:
    return type(given).__name__ if kind is Secret else repr(given)


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
