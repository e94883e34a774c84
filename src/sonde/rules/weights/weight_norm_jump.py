"""WGT002 weight-norm-jump."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.parameter_kinds import Kind
from sonde.core.quantities import amount
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.history.tracking import spread
from sonde.rules.layer_kinds import Kinds
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
from sonde.rules.step_view import Layers
from sonde.signals.medians import middle


class Jump(NamedTuple):
    """One parameter's leap."""

    step: int
    name: str
    before: float
    after: float
    loss: float
    """What was usual before it."""


class WeightNormJumpState(NamedTuple):
    """The latest RMS of each parameter, how much its logarithm usually moves between two looks, and recent jumps."""

    names: tuple[str, ...] = ()
    rms: tuple[float, ...] = ()
    moves: tuple[float, ...] = ()
    num: int = 0
    jumps: tuple[Jump, ...] = ()
    highest: tuple[float, ...] = ()
    """The largest RMS of each parameter before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightNormJump:
    """A layer's weights become much larger or smaller between two looks.

    What it detects:
        - From one measurement of the weights to the next (every 10 steps by default), the RMS of a parameter changes by
          more than a factor of `factor`.
        - Or it changes by more than 50% and by `score` times the largest change before, which is slowly forgotten.
        - Parameters below `least` of the median RMS do not count, nor do the first two measurements.
        - Biases, which may pass through zero, count only if they are 50% above their largest size before and three
          times the median RMS.
        - It is information, and a warning if the loss is 20% above its usual level within `reach` steps.

    Why it matters:
        Optimisers move weights by a thousandth or less. A jump is an accident: a step at a huge learning rate, a wrong
        reload, a layer that was overwritten.

    Evidence:
        `weight/rms@…` before and after; `loss` before and after.

    What to do:
        Find what wrote to the layer at that step. Reload the layer from the checkpoint before.

    When it is wrong:
        - Re-initialisation, pruning, and adapters that are merged on purpose.

    References:
        None; growth by 10 to 50% over a whole training is usual.
    """

    code: ClassVar[str] = "WGT002"
    name: ClassVar[str] = "weight-norm-jump"
    onset: ClassVar[Onset] = Onset.AT_A_LOOK
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WEIGHT_NORM_JUMP: (
            For("weights changed abruptly between two measurements"),
            For(when=When.ALARM),
            For("one parameter alone changed abruptly, which no step does", when=When.ONE_PLACE),
        ),
        Cause.LR_TOO_HIGH: For("weights changed abruptly"),
        Cause.BAD_BATCH: (
            For("weights changed abruptly"),
            Against("one parameter alone changed abruptly, which no batch does", when=When.ONE_PLACE),
        ),
        Cause.MISSING_CLIPPING: Against("weights changed abruptly first"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "loss-spike"

    factor: float = 10.0
    score: float = 10.0
    least: float = 0.1
    reach: int = 50

    def init(self) -> WeightNormJumpState:
        """Before the first step."""
        return WeightNormJumpState()

    def waits(self, state: WeightNormJumpState) -> bool:
        """Whether the loss after a jump is looked at."""
        return bool(state.jumps)

    def step(self, state: WeightNormJumpState, look: Look) -> tuple[WeightNormJumpState, Sequence[Sighting]]:
        """Look at the weights where they were measured, and at the loss after a jump."""
        run = look.run
        layers = look.view.layers("weight/rms")
        found: list[Jump] = []
        if layers is not None:
            state, found = self._compared(state, layers, run, look.view.kinds)
        if not state.jumps and not found:
            return state, ()
        jumps = tuple(jump for jump in (*state.jumps, *found) if run.step - jump.step <= self.reach)[-8:]
        state = state._replace(jumps=jumps)
        if not jumps:
            return state, ()
        worst = max(jumps, key=lambda jump: abs(np.log(jump.after / jump.before)))
        # Of several players no loss tells; and a loss that is all but gone jitters by more than its own size.
        worse = look.run.is_alone and (
            math.isinf(run.loss)
            # Both: the average keeps the first losses for long, and a single loss is noisy.
            or min(run.loss, run.loss_smooth) > max(1.2 * abs(worst.loss), abs(worst.loss) + 0.1 * abs(run.loss_start))
        )
        if not found and not worse:
            return state, ()
        verb = "rose" if worst.after > worst.before else "fell"
        message = f"the RMS of the weights `{worst.name}` {verb} from {amount(worst.before)} to {amount(worst.after)} "
        message += f"shortly before step {worst.step:,}"
        if worse:
            message += f", and the loss rose from {amount(worst.loss)} to {amount(run.loss_smooth)}"
        evidence = tuple(
            Evidence(tag=f"weight/rms@{jump.name}", step=jump.step, value=jump.after, expected=jump.before)
            for jump in jumps[:4]
        )
        where = (worst.name, *(jump.name for jump in jumps if jump.name != worst.name))
        severity = Severity.WARNING if worse else Severity.INFO
        return state, (Sighting(severity, message, where, evidence, min(jump.step for jump in jumps)),)

    def _compared(
        self, state: WeightNormJumpState, layers: Layers, run: RunSummary, kinds: Kinds
    ) -> tuple[WeightNormJumpState, list[Jump]]:
        """The weights of a look against those of the last one."""
        names, now = state.names, layers.values
        looked = np.ones(len(now), np.bool_)
        if layers.names != names:
            names = tuple(dict.fromkeys((*names, *layers.names)))
            now, measured = spread(layers, names), set(layers.names)
            looked = np.array([name in measured for name in names])
        num_new = len(names) - len(state.names)
        before, usual = np.array([*state.rms, *[np.nan] * num_new]), np.array([*state.moves, *[0.0] * num_new])
        both = looked & (now > 0) & (before > 0)
        highest = np.array([*state.highest, *[np.nan] * (len(names) - len(state.highest))])
        with np.errstate(divide="ignore", invalid="ignore"):
            move = np.abs(np.log(now / before))
        far = (move > np.log(self.factor)) | ((move > np.log(1.5)) & (move > self.score * usual) & (usual > 0))
        usual_size = middle(state.rms) if state.rms else 0.0
        far &= both & (before > self.least * usual_size)
        found = [
            Jump(run.step, names[place], float(before[place]), float(now[place]), run.loss_median)
            for place in np.flatnonzero(far)
            if not (kinds.of(names[place]) is Kind.BIAS and now[place] < max(1.5 * highest[place], 3 * usual_size))
        ]
        rms = np.where(looked, now, before)
        moves = np.where(both, np.fmax(0.98 * usual, move), usual)
        highest = np.fmax(highest, rms)
        new = WeightNormJumpState(
            names, tuple(rms.tolist()), tuple(moves.tolist()), state.num + 1, state.jumps, tuple(highest.tolist())
        )
        return new, found if state.num >= 2 else []
