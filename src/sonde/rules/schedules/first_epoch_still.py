"""SCH008 first-epoch-still."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import amount, share
from sonde.rules.rule import Cause, Claims, For, Look, Onset, Severity, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstEpochStill:
    """The loss barely moved in the first epoch.

    What it detects:
        It is asked at the end of the first epoch (`epoch` is 1), if the epoch had at least 16 losses and all of them
        were above zero.
        - The line through all losses fell or rose by less than `least_fall` of the start, which is the median of the
          first five.
        - The noise of the losses cannot have hidden a fall by `hidden`, by two standard errors of the line.
        - The learning rate was not on its way up for more than half of the epoch.
        - The model did not know its task when the run began.

        It is always information: LOS004 raises the alarm, by its own test over more steps.

    Why it matters:
        A learning rate that is far too low shows in the first epoch: there is no need to wait for the others.

    Evidence:
        `loss` at the end of the epoch, against its start; `lr`.

    What to do:
        Raise the learning rate by a factor of 3 to 5, as long as the loss stays calm. If that changes nothing, check
        that gradients arrive (`grad/norm`) and that labels belong to their inputs.

    When it is wrong:
        - Some tasks stay at the cost of guessing for long before they break through.
        - An epoch of few steps says little.

    References:
        Smith, Cyclical learning rates for training neural networks, WACV 2017 (learning-rate range test).
    """

    code: ClassVar[str] = "SCH008"
    name: ClassVar[str] = "first-epoch-still"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "epoch")
    reads: ClassVar[tuple[str, ...]] = ("epoch",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_LOW: For("the loss barely moved in the first epoch"),
    }
    quiet_steps: ClassVar[int] = 1000

    least_fall: float = 0.01
    hidden: float = 0.05

    def init(self) -> tuple[()]:
        """Nothing: the run summary has the first epoch."""
        return ()

    def step(self, state: tuple[()], look: Look) -> tuple[tuple[()], Sequence[Sighting]]:
        """Look at one more step."""
        epoch = look.run.first_epoch
        found = epoch.verdict if epoch.ended == look.view.step else None
        if found is None or epoch.is_warming_up or look.run.came_trained:
            return state, ()
        if not found.is_still(self.least_fall, self.hidden):
            return state, ()
        rate = f" (learning rate up to {amount(epoch.lr_peak)})" if epoch.lr_peak > 0 else ""
        way = "fell" if found.fall >= 0 else "rose"
        change = f"{way} by only {share(abs(found.fall))} in the first epoch"
        message = f"the loss, {amount(found.start)} at first, {change}{rate}"
        evidence = look.evidence("loss", found.last, found.start)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,), since=0),)
