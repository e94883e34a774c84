"""The last cosines between gradients of neighbouring steps, which are measured rarely."""

import statistics

from sonde.rules.rule import Look

_MOST = 8


def take_cosine(seen: tuple[float, ...], look: Look) -> tuple[float, ...]:
    """The last eight of `grad/cosine`; as they were where it was not measured at this step."""
    value = look.view.value("grad/cosine")
    return (*seen, value)[-_MOST:] if -1 <= value <= 1 else seen


def typical(seen: tuple[float, ...], least: int) -> float:
    """Their median; NaN below `least`."""
    return statistics.median(seen) if len(seen) >= least else float("nan")
