"""Typed members of JSON objects: what is wrong becomes a `FormatError` that says which key."""

import contextlib
import difflib
import enum
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from sonde.core.errors import FormatError
from sonde.core.strict_json import Json, to_number

T = TypeVar("T")
E = TypeVar("E", bound=enum.StrEnum)

_WHOLES = 1 << 63
_YEAR_10_000 = 253_402_300_800


def member(data: Json, key: str, read: Callable[[Json], T]) -> T:
    """What `read` makes of `data[key]`; its complaints get the key in front.

    Example:
        >>> member({"step": 3}, "step", whole)
        3
        >>> member({"step": "3"}, "step", whole)
        Traceback (most recent call last):
        ...
        sonde.core.errors.FormatError: step: expected a whole number, got '3'.
    """
    if not isinstance(data, Mapping):
        raise FormatError(f"expected an object with the key {key!r}, got {reprlib.repr(data)}.")
    if key not in data:
        raise FormatError(f"{key}: missing.")
    return _read_at(key, read, data[key])


def text(value: Json) -> str:
    if not isinstance(value, str):
        raise FormatError(f"expected text, got {reprlib.repr(value)}.")
    return value


def whole(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"expected a whole number, got {reprlib.repr(value)}.")
    if not -_WHOLES <= value < _WHOLES:
        raise FormatError(f"expected a whole number of at most 64 bits, got {reprlib.repr(value)}.")
    return value


def count(value: Json) -> int:
    """A whole number that is not negative."""
    if whole(value) < 0:
        raise FormatError(f"expected 0 or more, got {value}.")
    return int(value)


def moment(value: Json) -> float:
    """A time in UTC seconds since 1970, before the year 10,000."""
    seconds = to_number(value)
    if not 0 <= seconds < _YEAR_10_000:
        raise FormatError(f"expected seconds since 1970, got {reprlib.repr(value)}.")
    return seconds


def mapping(value: Json) -> Mapping[str, Json]:
    """An object."""
    if not isinstance(value, Mapping):
        raise FormatError(f"expected an object, got {reprlib.repr(value)}.")
    return value


def flattened(value: Json, name: str = "") -> Iterator[tuple[str, Json]]:
    """Nested settings, each under its outer keys; lists are values, and what is None or empty is left out.

    Example:
        >>> dict(flattened({"lr": 0.1, "model": {"widths": [8, 4], "bias": None}, "tags": {}}))
        {'lr': 0.1, 'model.widths': [8, 4]}
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flattened(item, f"{name}.{key}" if name else str(key))
    elif value is not None:
        yield name, value


def known(
    data: Json, readers: Mapping[str, Callable[[Json], object]], problem: Callable[[str], None]
) -> dict[str, Json]:
    """An object without those of its members that are not what their reader expects; others are kept as they are.

    Args:
        data: The object.
        readers: By key; a key that is missing is no problem.
        problem: Told of each member that is left out, and why.
    """
    found = dict(mapping(data))
    for key, read in readers.items():
        if key in found:
            try:
                found[key] = member(found, key, read)
            except FormatError as error:
                problem(str(error))
                del found[key]
    return found


def flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise FormatError(f"expected true or false, got {reprlib.repr(value)}.")
    return value


def list_of(read: Callable[[Json], T]) -> Callable[[Json], tuple[T, ...]]:
    """A reader of lists; its complaints get the position in front."""

    def read_list(value: Json) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise FormatError(f"expected a list, got {reprlib.repr(value)}.")
        return tuple(_read_at(f"[{i}]", read, item) for i, item in enumerate(value))

    return read_list


def one_of(vocabulary: type[E]) -> Callable[[Json], E]:
    """A reader of a closed vocabulary; an unknown word is refused with the nearest known one."""

    def read_word(value: Json) -> E:
        words = [word.value for word in vocabulary]
        if value in words:
            return vocabulary(value)
        nearest = difflib.get_close_matches(value, words, n=1) if isinstance(value, str) else []
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(words)}."
        raise FormatError(f"expected a known {vocabulary.__name__.lower()}, got {reprlib.repr(value)}; {hint}")

    return read_word


@contextlib.contextmanager
def refusals_as_format_errors() -> Iterator[None]:
    """Turns a constructor's `ValueError` or `TypeError` into a `FormatError`: its arguments were read."""
    try:
        yield
    except FormatError:
        raise
    except (TypeError, ValueError) as error:
        raise FormatError(str(error)) from error


def _read_at(place: str, read: Callable[[Json], T], value: Json) -> T:
    try:
        return read(value)
    except FormatError as error:
        raise FormatError(f"{place}: {error}") from error
