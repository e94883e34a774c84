"""SCH003 lr-never-decayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting


class LrNeverDecayedState(NamedTuple):
    """Nothing is remembered beyond the run."""

    num_still: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LrNeverDecayed:
    """The learning rate has stayed at its peak, and the loss has stopped falling.

    What it detects:
        - After `least_steps` steps the learning rate is still at 95% of its peak or more.
        - For 50 steps the loss has not fallen beyond its noise.
        - It is always information.

    Why it matters:
        At a constant learning rate the loss ends at a floor that the noise of the steps makes. A lower learning rate
        lowers that floor.

    Evidence:
        `lr` against its peak.

    What to do:
        Let the learning rate fall to zero, as a cosine or a line, over the last part of the run.

    When it is wrong:
        - The decay may be planned for later: Sonde does not know when the run will end.

    References:
        Hägele et al., Scaling laws and compute-optimal training beyond fixed training durations, 2024.
    """

    code: ClassVar[str] = "SCH003"
    name: ClassVar[str] = "lr-never-decayed"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("lr", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_LR_DECAY: For("the learning rate never fell"),
        Cause.LABEL_NOISE: Against(),
        Cause.SCHEDULE_DECAYS_TOO_FAST: Against("the learning rate never fell"),
    }
    quiet_steps: ClassVar[int] = 100

    least_steps: int = 200

    def init(self) -> LrNeverDecayedState:
        """Before the first step."""
        return LrNeverDecayedState()

    def step(self, state: LrNeverDecayedState, look: Look) -> tuple[LrNeverDecayedState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        if "lr" not in look.view:
            return state, ()
        still = run.lr >= 0.95 * run.lr_peak > 0 and run.improvement_z < 2
        state = LrNeverDecayedState(state.num_still + 1 if still else max(0, state.num_still - 2))
        if state.num_still < 50 or run.num_losses < self.least_steps:
            return state, ()
        message = (
            f"after {run.num_losses:,} steps the learning rate is still at its peak of {amount(run.lr_peak)}, "
            "and the loss has stopped falling"
        )
        evidence = (look.evidence("lr", run.lr, run.lr_peak),)
        return state, (Sighting(Severity.INFO, message, evidence=evidence),)
