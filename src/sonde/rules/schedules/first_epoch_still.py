"""SCH008 first-epoch-still."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.schedules.first_epoch import FirstEpoch


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstEpochStill:
    """The loss barely moved in the first epoch.

    What it detects:
        - At the end of the first epoch (`epoch` is 1) of 16 losses or more, the line through all of them fell or rose
          by less than `least_fall` of the start, the median of the first five.
        - Their noise cannot have hidden a fall by `hidden` (two standard errors of the line).
        - Not where the learning rate was on its way up for more than half of the epoch, where losses are not all above
          zero, nor where the model knew its task when the run began.
        - Information only: LOS004 raises the alarm, by its own test over more steps.

    Why it matters:
        A learning rate that is far too low is known after one epoch: the others need not be waited for.

    Evidence:
        `loss` at the end of the epoch against its start, `lr`.

    What to do:
        Raise the learning rate by a factor of 3 to 10, as long as the loss stays calm. Where that changes nothing, see
        that gradients arrive (`grad/norm`) and that labels belong to their inputs.

    When it is wrong:
        Some tasks stay at the loss of guessing for long before they break through. A small epoch is few steps.

    References:
        Smith, Cyclical learning rates for training neural networks, WACV 2017 (learning-rate range test).
    """

    code: ClassVar[str] = "SCH008"
    name: ClassVar[str] = "first-epoch-still"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "epoch")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_LOW: For("the first epoch moved nothing"),
    }
    quiet_steps: ClassVar[int] = 1000

    least_fall: float = 0.01
    hidden: float = 0.05

    def init(self) -> FirstEpoch:
        """Before the first step."""
        return FirstEpoch()

    def step(self, state: FirstEpoch, look: Look) -> tuple[FirstEpoch, Sequence[Sighting]]:
        """Look at one more step."""
        state = state.after(look.scene)
        found = state.verdict if state.ended == look.scene.step else None
        if found is None or state.is_warming_up or look.picture.came_trained:
            return state, ()
        if not found.is_still(self.least_fall, self.hidden):
            return state, ()
        rate = f" at a learning rate of up to {state.lr_peak:.3g}" if state.lr_peak > 0 else ""
        message = f"the first epoch brought the loss from {found.start:.4g} to {found.last:.4g} only{rate}"
        evidence = Evidence(tag="loss", step=look.scene.step, value=found.last, expected=found.start)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,), since=0),)
