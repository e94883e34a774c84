"""How straight the loss comes down."""

import math
from typing import NamedTuple


class Descent(NamedTuple):
    """Tells a straight, shallow descent from one that slows down: what too small steps look like.

    Its memory is 32 smoothed losses at equal distances over the whole run, of which every second one is forgotten when
    they are full.

    Attributes:
        losses: The smoothed losses.
        stride: Losses between two of them.
    """

    losses: tuple[float, ...] = ()
    stride: int = 10

    def after(self, num_losses: int, smooth: float) -> "Descent":
        """With one more step."""
        if not num_losses or num_losses % self.stride or not math.isfinite(smooth):
            return self
        losses = (*self.losses, smooth)
        return Descent(losses, self.stride) if len(losses) < 32 else Descent(losses[1::2], 2 * self.stride)

    @property
    def straightness(self) -> float:
        """The fall over the newer half of the run over that over its older half: 1 a line, near 0 a settled curve.

        NaN below eight remembered losses, or where nothing fell at first.
        """
        if len(self.losses) < 8:
            return math.nan
        middle = self.losses[len(self.losses) // 2]
        before, after = self.losses[0] - middle, middle - self.losses[-1]
        return after / before if before > 0 else math.nan
