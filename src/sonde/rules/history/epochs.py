"""The losses of whole epochs."""

import math
from typing import NamedTuple

from sonde.rules.history.evaluations import Evaluations
from sonde.rules.step_view import StepView


class Epochs(NamedTuple):
    """The validation and training loss of each epoch.

    An epoch ends where `epoch` was recorded, and its validation loss is the latest one since the epoch before; an epoch
    without one is left out. As long as no `epoch` was ever recorded, every evaluation stands for one. The first `epoch`
    of all therefore takes back what was counted before it: those were evaluations within the first epoch.

    Attributes:
        ended: Of the epochs that are over (see `Evaluations` for which training losses count).
        validation: The latest since the last `epoch`, NaN where there was none.
        number: Of the epoch that ended last, 0 before; as recorded, or counted.
        is_marked: Whether `epoch` was ever recorded.
    """

    ended: Evaluations = Evaluations()
    validation: float = float("nan")
    number: int = 0
    is_marked: bool = False

    def noted(self, view: StepView) -> "Epochs":
        """With what this step brought."""
        mark, found, loss = view.value("epoch"), view.value("val/loss"), view.value("loss")
        validation = found if math.isfinite(found) else self.validation
        if "epoch" in view:
            before = self.ended if self.is_marked else Evaluations(losses=self.ended.losses, starts=self.ended.starts)
            ended = before.taken(view.step, loss, validation)
            number = int(mark) if math.isfinite(mark) and mark >= 1 and mark == int(mark) else ended.num
            return Epochs(ended, float("nan"), number, True)
        ended = self.ended.taken(view.step, loss, float("nan") if self.is_marked else found)
        return Epochs(ended, validation, self.number if self.is_marked else ended.num, self.is_marked)

    def ended_at(self, step: int) -> bool:
        """Whether the step that was noted last ended an epoch of which both losses are known."""
        return self.ended.steps[-1:] == (step,)
