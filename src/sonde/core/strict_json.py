"""JSON that every parser reads: non-finite numbers are the strings "NaN", "Infinity", "-Infinity"."""

import json
import math
from collections.abc import Mapping
from typing import Any

from sonde.core.errors import FormatError

Json = Any  # what `json.loads` returns; a recursive alias would need Python 3.12

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_DEPTH = 64  # far above any configuration, far below Python's recursion limit


def number(value: float) -> float | str:
    """A number as it is written: itself where finite, else its name.

    Example:
        >>> number(0.5), number(float("nan")), number(float("-inf"))
        (0.5, 'NaN', '-Infinity')
    """
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_number(value: Json) -> float:
    """The number that `number` wrote.

    Example:
        >>> to_number("Infinity"), to_number(3)
        (inf, 3.0)
    """
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f'expected a number, "NaN", "Infinity" or "-Infinity", got {value!r}.')
    try:
        return float(value)
    except OverflowError as error:  # JSON has no limit to its integers, float64 has
        raise FormatError("expected a number of at most 1.8e308, got a larger integer.") from error


def dumps(value: Any, *, indent: int | None = None) -> str:
    """One JSON text; NaN and infinities anywhere inside become their names, numpy scalars become numbers.

    Objects that JSON does not know are written as their `str`, so that a user's configuration is never
    refused; a structure inside itself, and what is nested in such a value more than 64 levels deep, is
    written as "…".

    Example:
        >>> dumps({"loss": float("inf"), "path": [1, None]})
        '{"loss": "Infinity", "path": [1, null]}'
    """
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # the slow way only where it is needed
        return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Json:
    """What `dumps` says of a value, as JSON's own kinds; an object that cannot even say what it is, is its type's name.

    Example:
        >>> plain({1: (float("nan"), object)})
        {'1': ['NaN', "<class 'object'>"]}
    """
    return _plain(value, inside=())


def loads(text: str | bytes) -> Json:
    """The value of one strict JSON text; bare NaN and Infinity are refused, as the standard says."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not valid JSON: {error}") from error


def _refuse(constant: str) -> Json:
    raise FormatError(f"bare {constant} is not JSON; non-finite numbers are written as strings.")


def _plain(value: Any, *, inside: tuple[int, ...]) -> Json:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return number(value)
    # Ancestors are remembered, not only counted: what holds itself twice would be written 2⁶⁴ times.
    if id(value) in inside or len(inside) > _MAX_DEPTH:
        return "…"
    inside = (*inside, id(value))
    try:
        if isinstance(value, Mapping):
            return {_key(key): _plain(item, inside=inside) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, inside=inside) for item in value]
        if hasattr(value, "tolist") and callable(value.tolist):  # numpy arrays and scalars
            return _plain(value.tolist(), inside=inside)
        return str(value)
    except Exception:  # a user's object, whose fault does not cost the run its configuration
        return f"<{type(value).__name__}>"


def _key(key: Any) -> str:
    """A key as `json.dumps` writes it, so that a NaN elsewhere in the value does not rename it."""
    if isinstance(key, str):
        return key
    plain = number(key) if isinstance(key, float) else key
    return json.dumps(plain) if plain is None or isinstance(plain, bool | int | float) else str(plain)
