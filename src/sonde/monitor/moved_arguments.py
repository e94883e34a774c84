"""Arguments that `watch` had once: where each value goes now."""

import os
import reprlib
from collections.abc import Mapping
from typing import Any

_SETTINGS = {
    "doctor": "doctor",
    "rules": "rules",
    "micro": "loss.micro",
    "floor_s": "floor_s",
    "total_steps": "total_steps",
    "total_epochs": "total_epochs",
    "console_s": "console_s",
}
"""The settings that they are, by their names."""


def refuse(given: Mapping[str, Any]) -> None:
    """Refuse keywords that `watch` does not have.

    Raises:
        TypeError: there are any; the message says where the value of the first goes, where there is such a place.

    Example:
        >>> refuse({"micro": "sum"})
        Traceback (most recent call last):
        ...
        TypeError: `watch(micro=...)` is a setting now: give `watch(..., settings={'loss.micro': 'sum'})`.
    """
    for name, value in given.items():
        if name not in _SETTINGS:
            raise TypeError(f"watch() got an unexpected keyword argument {name!r}")
        is_file = name == "rules" and isinstance(value, str | os.PathLike)
        key, shown = ("profile", os.fspath(value)) if is_file else (_SETTINGS[name], value)
        said = f"{{{key!r}: {reprlib.repr(shown)}}}"
        raise TypeError(f"`watch({name}=...)` is a setting now: give `watch(..., settings={said})`.")
