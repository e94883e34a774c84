"""Signals over layers, which come and go while a training runs."""

from typing import Any, NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.rules.step_view import Layers
from sonde.signals.signal import Signal, TimedSignal


class Tracked(NamedTuple):
    """A signal's state and the layers that it is about."""

    names: tuple[str, ...] = ()
    state: Any = None


def track(
    signal: Signal | TimedSignal, tracked: Tracked, layers: Layers, *, at: int | None = None
) -> tuple[Tracked, Any]:
    """One more row of values, for all layers that were ever seen: those without a value now get NaN.

    Args:
        signal: What is tracked.
        tracked: Its state so far, `Tracked()` in the beginning.
        layers: The values of this step.
        at: The step, for a `TimedSignal`.

    Returns:
        The new state, and the signal's results in the order of its `names`.
    """
    if layers.names is tracked.names or layers.names == tracked.names:
        values = layers.values
    else:
        known = set(tracked.names)
        new = tuple(name for name in layers.names if name not in known)
        if new:
            fresh = signal.init(len(tracked.names) + len(new))
            tracked = Tracked(tracked.names + new, _grown(tracked.state, fresh, len(tracked.names)))
        values = spread(layers, tracked.names)
    arguments = () if at is None else (at,)
    state, out = signal.step(tracked.state, values, *arguments)
    return Tracked(tracked.names, state), out


def spread(layers: Layers, names: tuple[str, ...]) -> Float64:
    """The values in the order of `names`, NaN where there is none."""
    by_name = dict(zip(layers.names, layers.values.tolist(), strict=True))
    return np.array([by_name.get(name, np.nan) for name in names])


def _grown(old: Any, fresh: Any, num: int) -> Any:
    """`fresh`, with the first `num` tags as they were; a state's arrays have the tags along their first axis."""
    if old is None or num == 0:
        return fresh
    if isinstance(fresh, tuple):
        return type(fresh)(*(_grown(a, b, num) for a, b in zip(old, fresh, strict=True)))
    grown = np.array(fresh)
    if grown.ndim and len(grown) >= num and np.ndim(old) and len(old) == num:
        grown[:num] = old
        return grown
    return old
