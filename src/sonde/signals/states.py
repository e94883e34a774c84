"""States of signals, rules and summaries as plain values and back, for checkpoints."""

import base64
import enum
import math
import struct
import sys
from typing import Any, TypeVar

import numpy as np

from sonde.core.errors import FormatError
from sonde.core.strict_json import Json, number, to_number

S = TypeVar("S")


def dump(state: object) -> Json:
    """A state as values that JSON can say: `load` gives it back bit for bit, types included.

    Numbers, texts and None stand for themselves, and so do lists; everything else is an object with one key that says
    what it is: a tuple, a named tuple by its class and fields, a dict as pairs, a set, a member of an enumeration, an
    array or a number of NumPy as its bytes in base 64, a number that is not finite.

    Raises:
        TypeError: There is something in it that is no plain state, such as an array of objects.

    Example:
        >>> from sonde.rules.history.block_means import BlockMeans
        >>> dump(BlockMeans(2, (1.5, float("nan"))))["fields"]["means"]
        {'tuple': [1.5, {'float': 'NaN'}]}
    """
    match state:
        case enum.Enum():
            return {"enum": _name(type(state)), "value": dump(state.value)}
        case np.ndarray() | np.generic():
            return _array(state)
        case None | bool() | int() | str():
            return state
        case float():
            if math.isnan(state) and _bits(state) != _bits(math.nan):  # its other bits may say that it is missing
                return {"float": _bits(state)}
            return state if math.isfinite(state) else {"float": number(state)}
        case list():
            return [dump(item) for item in state]
        case tuple() if hasattr(state, "_fields"):
            fields = {name: dump(value) for name, value in zip(state._fields, state, strict=True)}
            return {"state": _name(type(state)), "fields": fields}
        case tuple():
            return {"tuple": [dump(item) for item in state]}
        case dict():
            return {"dict": [[dump(key), dump(value)] for key, value in state.items()]}
        case set() | frozenset():
            return {type(state).__name__: [dump(item) for item in sorted(state, key=repr)]}
    raise TypeError(f"a state must hold plain values, arrays and named tuples, got a {type(state).__name__}.")


def load(plain: Json, like: S) -> S:
    """The state that `dump` wrote.

    Classes are looked up by name among the modules that are loaded, and must be named tuples or enumerations: nothing
    that was written can make anything else run.

    Args:
        plain: What was written.
        like: The state before the first step, `rule.init()`: what is read must be of its kind. Only the first axis of
            arrays, the layers, may have grown.

    Raises:
        FormatError: It is not what `dump` writes, or the state of another rule, version or other settings.

    Example:
        >>> from sonde.rules.history.block_means import BlockMeans
        >>> load(dump(BlockMeans(2, (1.5,))), BlockMeans())
        BlockMeans(width=2, means=(1.5,), total=0.0, num_rest=0)
    """
    try:
        state = _read(plain)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"not a state that Sonde wrote: {error}") from error
    _check(state, like, type(like).__name__)
    return state  # type: ignore[no-any-return]


def _read(plain: Json) -> Any:
    if isinstance(plain, list):
        return [_read(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match plain:
        case {"state": str(name), "fields": dict(fields)}:
            kind = _class(name, tuple)
            if tuple(fields) != getattr(kind, "_fields", None):
                raise FormatError(f"a `{name}` of this version has other fields than {', '.join(fields)}.")
            return kind(*map(_read, fields.values()))
        case {"enum": str(name), "value": value}:
            return _class(name, enum.Enum)(_read(value))
        case {"array": str(dtype), "shape": shape, "bytes": str(text)}:
            flat = np.frombuffer(base64.b64decode(text, validate=True), np.dtype(dtype))
            # A copy: what `frombuffer` gives cannot be written to.
            return flat[0] if shape is None else flat.reshape([int(str(size)) for size in _list(shape)]).copy()
        case {"float": str(bits)} if len(bits) == 16:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
        case {"float": value}:
            return to_number(value)
        case {"tuple": items}:
            return tuple(_read(item) for item in _list(items))
        case {"set": items}:
            return {_read(item) for item in _list(items)}
        case {"frozenset": items}:
            return frozenset(_read(item) for item in _list(items))
        case {"dict": pairs}:
            return {_read(key): _read(value) for key, value in map(_list, _list(pairs))}
    raise FormatError(f"not a state that Sonde wrote: an object with {', '.join(plain) or 'nothing'}.")


def _check(state: object, like: object, name: str) -> None:
    """Whether a state is of the kind of a fresh one, as far as that says anything."""
    if isinstance(like, np.ndarray):
        kind = like.dtype, like.ndim, like.shape[1:]
        if not isinstance(state, np.ndarray) or (state.dtype, state.ndim, state.shape[1:]) != kind:
            raise FormatError(f"`{name}` is of other settings: it holds {_words(state)}, not {_words(like)}.")
    elif isinstance(like, tuple) and hasattr(like, "_fields"):
        if type(state) is not type(like):
            raise FormatError(f"`{name}` must be a {type(like).__name__}, got a {type(state).__name__}.")
        for field, value, fresh in zip(like._fields, state, like, strict=True):
            _check(value, fresh, f"{name}.{field}")


def _words(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a {type(value).__name__}"


def _array(value: np.ndarray[Any, Any] | np.generic) -> Json:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError("a state must hold arrays of numbers, got one of objects.")
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {
        "array": little.dtype.str,
        "shape": list(array.shape) if isinstance(value, np.ndarray) else None,
        "bytes": base64.b64encode(little.tobytes()).decode("ascii"),
    }


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise FormatError(f"not a state that Sonde wrote: a list was expected, got {type(value).__name__}.")
    return value


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str, base: type) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    is_plain = isinstance(found, type) and issubclass(found, base) and _name(found) == name
    if not is_plain or not (base is enum.Enum or hasattr(found, "_fields")):
        raise FormatError(f"there is no `{name}` in this version of Sonde; the state was written by another one.")
    return found
