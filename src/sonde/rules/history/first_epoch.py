"""What the loss did in the first epoch, for a first word on the learning rate."""

import math
import statistics
from typing import NamedTuple

import numpy as np

from sonde.rules.history.block_means import BlockMeans, line_through
from sonde.rules.step_view import StepView
from sonde.signals.medians import NORMAL_FROM_MAD

_FIRST = 5
_LEAST = 16  # losses below which an epoch says nothing
_PARTS = 8
_OF_MEDIAN = 1.25  # the standard error of a median over that of a mean
_SURELY = 4  # standard errors: the highest of eight parts is high by chance


class Verdict(NamedTuple):
    """On a first epoch: by which share of its start the loss fell and rose.

    Attributes:
        start: Median of the first five losses.
        last: Median of the last eighth of the epoch.
        highest: Largest median of any eighth of it.
        fall: Of the line through all losses, as a share of the start; negative where it rises.
        hidden: What may be added to that: two standard errors of the line.
        error: Standard error of the difference between the start and an eighth.
    """

    start: float
    last: float
    highest: float
    fall: float
    hidden: float
    error: float

    def is_still(self, least_fall: float, hidden: float) -> bool:
        """Whether the loss barely moved, and its noise cannot have hidden that it did."""
        return abs(self.fall) < least_fall and self.fall + self.hidden < hidden

    def is_spiked(self, spike: float, rise: float) -> bool:
        """Whether it was far above its start, or ended above it, beyond its noise."""
        surely = self.start + _SURELY * self.error
        return self.highest > max(spike * self.start, surely) or self.last > max((1 + rise) * self.start, surely)


class FirstEpoch(NamedTuple):
    """The losses and learning rates up to the first `epoch`; later ones are not looked at.

    Example:
        >>> epoch = FirstEpoch()
        >>> for step in range(1, 41):
        ...     row = {"loss": 2.0 + 0.001 * (-1) ** step, "lr": 1e-7, **({"epoch": 1.0} if step == 40 else {})}
        ...     epoch = epoch.after(StepView(step, row, {}, ()))
        >>> epoch.verdict.is_still(0.01, 0.05), epoch.is_warming_up
        (True, False)
    """

    blocks: BlockMeans = BlockMeans(width=1)
    starts: tuple[float, ...] = ()
    lr_peak: float = float("nan")
    num_before_peak: int = 0
    """Losses that came before the rate was at its peak."""
    ended: int = -1
    """The step at which it ended, −1 before."""
    is_judged: bool = True
    """Whether it can be: the run began with it, and all losses were above zero."""

    def after(self, view: StepView) -> "FirstEpoch":
        """With what one more step tells."""
        if self.ended >= 0:
            return self
        blocks, starts, lr_peak, num_before_peak, ended, is_judged = self
        loss, lr = view.value("loss"), view.value("lr")
        if math.isfinite(loss):
            starts = starts if len(starts) == _FIRST else (*starts, loss)
            blocks, is_judged = blocks.extended(loss), is_judged and loss > 0
        if math.isfinite(lr) and not lr <= lr_peak:
            lr_peak, num_before_peak = lr, self.blocks.num_values
        if "epoch" in view:
            ended, is_judged = view.step, is_judged and view.value("epoch") == 1
        return FirstEpoch(blocks, starts, lr_peak, num_before_peak, ended, is_judged)

    @property
    def is_warming_up(self) -> bool:
        """Whether the rate was on its way up for more than half of it: what it will do is not known yet."""
        return self.num_before_peak > self.blocks.num_values / 2

    @property
    def verdict(self) -> Verdict | None:
        """What it did; None as long as it goes on, and where there is too little to say."""
        if self.ended < 0 or not self.is_judged or self.blocks.num_values < _LEAST:
            return None
        means = self.blocks.means
        parts = [float(np.median(part)) for part in np.array_split(means, _PARTS)]
        slope, error = line_through(means)
        start, num = statistics.median(self.starts), len(means)
        scatter = _OF_MEDIAN * NORMAL_FROM_MAD * float(np.median(np.abs(np.diff(means)))) / math.sqrt(2)
        of_start, of_part = math.sqrt(self.blocks.width / len(self.starts)), math.sqrt(_PARTS / num)
        noise = scatter * math.hypot(of_start, of_part)
        return Verdict(start, parts[-1], max(parts), -slope * num / start, 2 * error * num / start, noise)
