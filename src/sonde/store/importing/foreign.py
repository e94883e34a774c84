"""What a reader of other people's logs gives: numbers by name, step and time, as they were logged."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Logged(NamedTuple):
    """One number of a log."""

    name: str
    """As the log has it."""
    step: int
    value: float
    time: float | None = None
    """UTC, seconds since 1970; None where the log does not say."""


class Restart(NamedTuple):
    """The training began again at a step: what was logged of it and of later ones no longer counts."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log that is being read.

    Args:
        name: What the run was called.
        entries: Its numbers, read as they are asked for.
        config: Hyper-parameters; complete once all entries have been read.
        environment: Where the training was, as `sonde.store.environment` says it, as far as the log does.
        time: When it was last written, for numbers without a time of their own.
        notes: What a person should know of how it was read; complete once all entries have been read.
    """

    name: str
    entries: Iterable[Logged | Restart]
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0
    notes: list[str] = field(default_factory=list)


def number(value: object) -> float | None:
    """A logged value as a number: true is 1, "NaN" and "Infinity" are meant; None where it is no number.

    Example:
        >>> number("1e-3"), number("-Infinity"), number(True), number("sgd"), number(None)
        (0.001, -inf, 1.0, None, None)
    """
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def step(value: object) -> int | None:
    """A logged step as a whole number; None where it is none.

    Example:
        >>> step(3.0), step("7"), step(2.5), step("inf")
        (3, 7, None, None)
    """
    said = number(value)
    return int(said) if said is not None and math.isfinite(said) and said == said // 1 else None


def moment(value: object) -> float | None:
    """A logged time in UTC seconds since 1970, from seconds, milliseconds or an ISO date; None where it is neither.

    Example:
        >>> moment("1700000000.5"), moment(1700000000500), moment("2023-11-14T22:13:20+00:00"), moment("12.5")
        (1700000000.5, 1700000000.5, 1700000000.0, None)
    """
    from datetime import UTC, datetime

    seconds = number(value)
    if seconds is not None:
        if 1e8 < seconds < 1e11:  # 1973 to 5138: anything smaller is a time since the start
            return seconds
        return seconds / 1000 if 1e11 <= seconds < 1e14 else None
    if not isinstance(value, str):
        return None
    try:
        date = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
