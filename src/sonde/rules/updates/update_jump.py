"""UPD004 update-jump."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, share
from sonde.rules.history.tracking import Tracked, track
from sonde.rules.rule import Cause, Claims, For, Look, Onset, Severity, Sighting
from sonde.signals.robust_z import RobustZ


class UpdateJumpState(NamedTuple):
    """The ratios of each parameter so far."""

    tracked: Tracked = Tracked()


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateJump:
    """A parameter's update is suddenly far larger than its own past.

    What it detects:
        - The logarithm of ‖Δθ‖/‖θ‖ of a parameter is more than `score` robust deviations above its last 32 values.
        - The update is at least `least` times as large as usual.
        - It can be said after eight values.
        - It is always information: it tells when something happened.

    Why it matters:
        A jump together with the learning rate comes from the schedule. A jump without it comes from the optimiser's
        state or from the gradient.

    Evidence:
        `update/ratio@…` against its own median.

    What to do:
        Look at `lr` and `grad/norm` at that step.

    When it is wrong:
        - Restarts of the schedule and layers that are thawed jump on purpose.

    References:
        Molybog et al., A theory on Adam instability in large-scale machine learning, 2023.
    """

    code: ClassVar[str] = "UPD004"
    name: ClassVar[str] = "update-jump"
    onset: ClassVar[Onset] = Onset.AT_A_LOOK
    needs: ClassVar[tuple[str, ...]] = ("update/ratio@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_SPIKE: For("updates jumped at one step"),
        Cause.OPTIMIZER_STATE_LOST: For(),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "loss-spike"

    score: float = 6.0
    least: float = 5.0

    def init(self) -> UpdateJumpState:
        """Before the first step."""
        return UpdateJumpState()

    def step(self, state: UpdateJumpState, look: Look) -> tuple[UpdateJumpState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is."""
        layers = look.view.layers("update/ratio")
        if layers is None:
            return state, ()
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = layers._replace(values=np.log(layers.values))
        tracked, out = track(_SCORE, state.tracked, logs)
        state = UpdateJumpState(tracked)
        jumps = out.z > self.score
        seen = []
        for place in np.flatnonzero(jumps):
            name, usual = tracked.names[place], float(np.exp(out.median[place]))
            value = float(layers.values[layers.names.index(name)])
            if value > self.least * usual:
                times = amount(value / usual)
                message = f"one step changed `{name}` by {share(value)} of its norm, {times} times as much as usual"
                evidence = look.evidence(f"update/ratio@{name}", value, usual)
                seen.append(Sighting(Severity.INFO, message, where=(name,), evidence=(evidence,)))
        return state, seen[:6]


_SCORE = RobustZ(window=32, min_values=8, floor=0.01)
