"""How large series are against their own beginning."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64


class SinceFirstState(NamedTuple):
    """The first value of each tag that was finite and large enough; NaN where there was none yet."""

    first: Float64


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceFirst:
    """The ratio x_t/x_first of series that are never negative, such as norms.

    What starts at zero has no ratio until it is above. NaN, infinite and missing values change nothing, and their
    ratios are NaN or infinite as they are.

    Args:
        least: Values up to this are no beginning, at least 0; larger means that more begin later.

    Example:
        >>> since = SinceFirst()
        >>> state = since.init(2)
        >>> for x in ([2.0, 0.0], [3.0, 5.0]):
        ...     state, ratio = since.step(state, np.array(x))
        >>> ratio
        array([1.5, 1. ])
    """

    least: float = 0.0

    def __post_init__(self) -> None:
        if not self.least >= 0:
            raise ValueError(f"`SinceFirst(least=...)` must be at least 0, got {self.least}.")

    def init(self, num_tags: int) -> SinceFirstState:
        """The state before the first value."""
        return SinceFirstState(np.full(num_tags, np.nan))

    def step(self, state: SinceFirstState, values: Float64) -> tuple[SinceFirstState, Float64]:
        """Take a value of each tag; the ratios, NaN where there is no beginning yet."""
        begins = np.isnan(state.first) & np.isfinite(values) & (values > self.least)
        if begins.any():
            state = SinceFirstState(np.where(begins, values, state.first))
        return state, values / state.first
