"""SCH009 first-epoch-spiked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import amount
from sonde.rules.rule import Cause, Claims, For, Look, Onset, Severity, Sighting


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstEpochSpiked:
    """The loss spiked in the first epoch, or ended it above its start.

    What it detects:
        It is asked at the end of the first epoch (`epoch` is 1), if the epoch had at least 16 losses and all of them
        were above zero. Either of these, by more than four standard errors:
        - The median of any eighth of the losses was above `spike` times the start, which is the median of the first
          five. A single batch is no such spike.
        - The median of the last eighth is more than `rise` above the start.

        It is always information: LOS002 and LOS003 raise the alarms, each by its own test.

    Why it matters:
        A learning rate that is far too high shows in the first epoch, even if the loss has come down again: the rest of
        the run has to work with the weights that it left.

    Evidence:
        `loss` at its highest and at the end of the epoch, against its start; `lr`.

    What to do:
        Divide the learning rate by 3 to 10, or warm it up over more steps.

    When it is wrong:
        - Reinforcement learning, players of a game and data that become harder raise the loss at any learning rate.

    References:
        Smith, Cyclical learning rates for training neural networks, WACV 2017 (learning-rate range test).
    """

    code: ClassVar[str] = "SCH009"
    name: ClassVar[str] = "first-epoch-spiked"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "epoch")
    reads: ClassVar[tuple[str, ...]] = ("epoch",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("the loss spiked in the first epoch"),
    }
    quiet_steps: ClassVar[int] = 1000
    guide: ClassVar[str] = "loss-spike"

    spike: float = 1.5
    rise: float = 0.1

    def init(self) -> tuple[()]:
        """Nothing: the run summary has the first epoch."""
        return ()

    def step(self, state: tuple[()], look: Look) -> tuple[tuple[()], Sequence[Sighting]]:
        """Look at one more step."""
        epoch = look.run.first_epoch
        found = epoch.verdict if epoch.ended == look.view.step else None
        if found is None or not found.is_spiked(self.spike, self.rise):
            return state, ()
        rate = f" (learning rate up to {amount(epoch.lr_peak)})" if epoch.lr_peak > 0 else ""
        message = (
            f"in the first epoch the loss rose from {amount(found.start)} to {amount(found.highest)}, and ended at "
            f"{amount(found.last)}{rate}"
        )
        evidence = look.evidence("loss", found.highest, found.start)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,), since=0),)
