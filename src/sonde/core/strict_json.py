"""JSON that every parser reads: non-finite numbers are the strings "NaN", "Infinity", "-Infinity"."""

import json
import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from sonde.core.errors import FormatError

Json = Any  # what `json.loads` returns; a recursive alias would need Python 3.12

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_DEPTH = 64  # far above any configuration, far below Python's recursion limit
_MAX_READ_DEPTH = 2 * _MAX_DEPTH  # what is written is put into something else before
_MAX_DIGITS = 308  # an integer with more is beyond float64, and past 4,300 Python reads none
_LONG_INTEGER = re.compile(rf"\d{{{_MAX_DIGITS + 1}}}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


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

    Objects that JSON does not know, and integers beyond float64, are written as their `str`, so that a user's
    configuration is never refused; a structure inside itself, and what is nested in such a value more than 64
    levels deep, is written as "…".

    Example:
        >>> dumps({"loss": float("inf"), "path": [1, None]})
        '{"loss": "Infinity", "path": [1, null]}'
    """
    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
        if not _is_deep(text, value, _MAX_DEPTH) and not _LONG_INTEGER.search(text):
            return text
    except (TypeError, ValueError, RecursionError):  # the slow way only where it is needed
        pass
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Json:
    """What `dumps` says of a value, as JSON's own kinds; an object that cannot even say what it is, is its type's name.

    Example:
        >>> plain({1: (float("nan"), object)})
        {'1': ['NaN', "<class 'object'>"]}
    """
    return _plain(value, inside=())


def loads(text: str | bytes, *, bare: bool = False) -> Json:
    """The value of one strict JSON text, of which every number is finite and every string can be written again.

    Bare NaN and Infinity are refused, as the standard says, and so are numbers beyond float64 (`1e999`), which Python
    would read as infinite, and what is nested more than 128 levels deep. Half of a surrogate pair, which no encoding
    can write, becomes U+FFFD.

    Args:
        text: The text, or its bytes in UTF-8.
        bare: Whether bare NaN and Infinity, which other programs write, are read.

    Raises:
        FormatError: the text is something else.
    """
    try:
        told = text if isinstance(text, str) else text.decode()
        value = json.loads(
            told, parse_constant=_NON_FINITE.__getitem__ if bare else _refuse, parse_float=_finite, parse_int=_whole
        )
        if _is_deep(told, value, _MAX_READ_DEPTH):
            raise FormatError(f"it is nested more than {_MAX_READ_DEPTH} levels deep.")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not valid JSON: {error}") from error
    return _writable(value) if "\\ud" in told or "\\uD" in told or _SURROGATE.search(told) else value


def _refuse(constant: str) -> Json:
    raise FormatError(f"bare {constant} is not JSON; non-finite numbers are written as strings.")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise FormatError(f"{reprlib.repr(digits)} is beyond float64; non-finite numbers are written as strings.")
    return value


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise FormatError(f"{reprlib.repr(digits)} is an integer beyond float64.")
    return int(digits)


def _is_deep(text: str, value: Json, most: int) -> bool:
    """Whether a value is nested deeper than that; the text shows at little cost that it is not, as a rule."""
    if text.count("[") + text.count("{") <= most:
        return False
    level = [value]
    for _ in range(most + 1):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, Mapping):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
        level = inner
        if not level:
            return False
    return any(isinstance(item, Mapping | list | tuple) for item in level)


def _writable(value: Json) -> Json:
    """The value with U+FFFD for each half of a surrogate pair."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_SURROGATE.sub("\ufffd", key): _writable(item) for key, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any, *, inside: tuple[int, ...]) -> Json:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**_MAX_DIGITS:
        return _digits(value)
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


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes at most 4,300 digits
        return hex(value)


def _key(key: Any) -> str:
    """A key as `json.dumps` writes it, so that a NaN elsewhere in the value does not rename it."""
    if isinstance(key, str):
        return key
    plain = number(key) if isinstance(key, float) else key
    return json.dumps(plain) if plain is None or isinstance(plain, bool | int | float) else str(plain)
