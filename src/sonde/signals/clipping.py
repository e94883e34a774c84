"""How often and how hard gradients were clipped lately."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64
from sonde.signals import windows


class ClippingState(NamedTuple):
    """The last factors of each tag, oldest first; NaN where there were fewer."""

    factors: Float64


class ClippingOut(NamedTuple):
    """Of the last steps; NaN where it cannot be said."""

    rate: Float64
    """The share of them in which a clip acted."""
    strength: Float64
    """The mean of 1 − factor over those in which one did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """Follows the factors by which clips shortened gradients: 1 where none acted, below 1 where one did.

    With f the last `window` factors: rate = |{f < 1}|/|f| and strength = mean(1 − f : f < 1). NaN, infinite and missing
    factors are left out.

    Args:
        window: Steps, at least 1; larger is calmer and later.

    Example:
        >>> clipping = Clipping(window=4)
        >>> state = clipping.init(1)
        >>> for factor in (1.0, 0.5, 1.0, 0.25):
        ...     state, out = clipping.step(state, np.array([factor]))
        >>> out
        ClippingOut(rate=array([0.5]), strength=array([0.625]))
    """

    window: int = 100

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"`Clipping(window=...)` must be at least 1, got {self.window}.")

    def init(self, num_tags: int) -> ClippingState:
        """The state before the first factor."""
        return ClippingState(windows.empty(num_tags, self.window))

    def step(self, state: ClippingState, values: Float64) -> tuple[ClippingState, ClippingOut]:
        """Take a factor of each tag."""
        state = ClippingState(windows.slide(state.factors, values))
        acted = state.factors < 1
        num, num_acted = np.isfinite(state.factors).sum(1), acted.sum(1)
        cut = np.where(acted, 1 - state.factors, 0.0).sum(1)
        with np.errstate(invalid="ignore"):
            return state, ClippingOut(num_acted / num, cut / num_acted)
