"""States of signals as JSON values and back, for checkpoints and run folders."""

from typing import Any, TypeVar

import numpy as np

from sonde.core.errors import FormatError
from sonde.core.strict_json import Json

S = TypeVar("S", bound=tuple[Any, ...])


def to_json(state: tuple[Any, ...]) -> Json:
    """A state as nested lists by field; NaN and infinities by their names, as everywhere in Sonde's JSON.

    Example:
        >>> from sonde.signals.ema import Ema
        >>> to_json(Ema().init(2))
        {'raw': [0.0, 0.0], 'num_values': [0, 0]}
    """
    fields: dict[str, Any] = state._asdict()  # type: ignore[attr-defined]
    return {name: to_json(value) if isinstance(value, tuple) else _lists(value) for name, value in fields.items()}


def from_json(fresh: S, value: Json) -> S:
    """The state that `to_json` wrote, bit for bit.

    Args:
        fresh: `signal.init(num_tags)` of the same settings and as many tags: it says what the arrays must look like.
        value: What was written.

    Raises:
        FormatError: It is not a state of that signal, or of other settings, or of another number of tags.
    """
    fields: dict[str, Any] = fresh._asdict()  # type: ignore[attr-defined]
    if not isinstance(value, dict) or value.keys() != fields.keys():
        found = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise FormatError(f"expected a {type(fresh).__name__} with {sorted(fields)}, got {found}.")
    return type(fresh)(
        *(
            from_json(like, value[name]) if isinstance(like, tuple) else _array(like, value[name], name)
            for name, like in fields.items()
        )
    )


def _lists(array: np.ndarray[Any, Any]) -> Json:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    named = array.astype(object)
    named[np.isnan(array)] = "NaN"
    named[np.isposinf(array)] = "Infinity"
    named[np.isneginf(array)] = "-Infinity"
    return named.tolist()


def _array(like: np.ndarray[Any, Any], value: Json, name: str) -> np.ndarray[Any, Any]:
    try:
        array = np.array(value, dtype=object).astype(like.dtype)  # float("NaN") and float("Infinity") read the names
    except (TypeError, ValueError) as error:
        raise FormatError(f"`{name}` of a state must hold numbers: {error}") from error
    if array.shape != like.shape and array.size + like.size > 0:
        raise FormatError(
            f"`{name}` of a state must have the shape {like.shape}, got {array.shape}; "
            "it was written with other settings or another number of tags."
        )
    return array.reshape(like.shape)
