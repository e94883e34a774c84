"""How much a step has to do, where that differs from step to step."""

import math
from typing import NamedTuple

from sonde.rules.step_view import StepView

_CHANGED = 0.25


class Workload(NamedTuple):
    """The examples that went through the model in a step, over all its calls, where they were counted.

    A step that has more to do takes longer, and nothing is wrong: an episode of a game that lasts longer the better it
    is played, batches that grow, more of them to a step.

    Attributes:
        samples: The last count; NaN before the first.
        varies: Whether it ever changed by a quarter.

    Example:
        >>> steady = Workload().after(StepView(1, {"batch/samples": 8.0}, {}, ()))
        >>> steady.of(StepView(2, {}, {}, ()))
        1.0
        >>> varied = steady.after(StepView(3, {"batch/samples": 20.0}, {}, ()))
        >>> varied.of(StepView(3, {"batch/samples": 20.0}, {}, ())), varied.of(StepView(4, {}, {}, ()))
        (20.0, nan)
    """

    samples: float = math.nan
    varies: bool = False

    def after(self, view: StepView) -> "Workload":
        """With what one more step tells."""
        samples = view.value("batch/samples")
        if not samples > 0 or samples == self.samples:
            return self
        changed = abs(samples - self.samples) > _CHANGED * self.samples
        return Workload(samples, self.varies or changed)

    def of(self, view: StepView) -> float:
        """What to divide the time of a step by: 1 where all have the same to do, NaN where it is not known."""
        if not self.varies:
            return 1.0
        samples = view.value("batch/samples")
        return samples if samples > 0 else math.nan
