"""SCH009 first-epoch-spiked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.schedules.first_epoch import FirstEpoch


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstEpochSpiked:
    """The loss spiked in the first epoch, or ended it above its start.

    What it detects:
        - At the end of the first epoch (`epoch` is 1) of 16 losses or more, the median of any eighth of them was above
          `spike` times the start, the median of the first five: a single batch is no such spike.
        - Or the median of the last eighth is more than `rise` above the start.
        - Either by more than four standard errors, by the scatter of the losses from one to the next.
        - Not where losses are not all above zero.
        - Information only: LOS002 and LOS003 raise the alarms, each by its own test.

    Why it matters:
        A learning rate that is far too high is known after one epoch, also where the loss has come down again: what
        it was thrown to may be all that the rest of the run has to work with.

    Evidence:
        `loss` at its highest and at the end of the epoch against its start, `lr`.

    What to do:
        Divide the learning rate by 3 to 10, or warm it up over more steps.

    When it is wrong:
        Reinforcement learning, players of a game and data that become harder raise the loss at any rate.

    References:
        Smith, Cyclical learning rates for training neural networks, WACV 2017 (learning-rate range test).
    """

    code: ClassVar[str] = "SCH009"
    name: ClassVar[str] = "first-epoch-spiked"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "epoch")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("the first epoch threw the loss up"),
    }
    quiet_steps: ClassVar[int] = 1000
    guide: ClassVar[str] = "loss-spike"

    spike: float = 1.5
    rise: float = 0.1

    def init(self) -> FirstEpoch:
        """Before the first step."""
        return FirstEpoch()

    def step(self, state: FirstEpoch, look: Look) -> tuple[FirstEpoch, Sequence[Sighting]]:
        """Look at one more step."""
        state = state.after(look.scene)
        found = state.verdict if state.ended == look.scene.step else None
        if found is None or not found.is_spiked(self.spike, self.rise):
            return state, ()
        rate = f" at a learning rate of up to {state.lr_peak:.3g}" if state.lr_peak > 0 else ""
        message = (
            f"in the first epoch the loss rose from {found.start:.4g} to {found.highest:.4g}, and ended at "
            f"{found.last:.4g}{rate}"
        )
        evidence = Evidence(tag="loss", step=look.scene.step, value=found.highest, expected=found.start)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,), since=0),)
