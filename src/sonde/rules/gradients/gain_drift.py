"""GRD008 gain-drift."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, share
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
from sonde.signals.drift import Drift, DriftOut, DriftState


class GainNumbers(NamedTuple):
    """What a check of the mean gain comes to, for the series `gradient_monitor/*`.

    Attributes:
        mean_gain: Geometric mean of the blocks' gains at the last check.
        moving_average: Mean of the last `window` checks.
        drift: Relative rise over the window; NaN below three checks.
    """

    mean_gain: float
    moving_average: float
    drift: float


class Drifted(NamedTuple):
    """A check at which the gain had drifted past its limit."""

    step: int = -1
    gain: float = float("nan")
    average: float = float("nan")
    message: str = ""
    where: tuple[str, ...] = ()


class GainDriftState(NamedTuple):
    """The checks of the gain, and of its inverse, which must not rise either."""

    up: DriftState
    down: DriftState
    num_beyond: int = 0
    since: int = -1
    drifted: Drifted = Drifted()
    """The last check, where the gain had drifted past its limit while the loss came down well; its step is −1 where
    there is none …"""
    num_given_back: int = 0
    """… and for how many losses since then half of what the loss had gained has been gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GainDrift:
    """Blocks amplify, or shrink, the gradient more and more as training goes on.

    What it detects:
        The gain of a block is ‖∂L/∂input‖/‖∂L/∂output‖; g is the geometric mean over the blocks, measured at every
        check. Either of:
        - Drift: g, or its inverse, rises by more than `threshold` over the last `window` checks, by more than ±0.05 of
          natural variation, and at the last `min_rises` checks in a row. It abstains below three checks. Beyond the
          limit that follows, two rises in a row are enough.
        - Beyond the limit: for three checks g is above A^(1/depth), or below its inverse. A is `budget`, the
          amplification from end to end that is still fair. The limit is 1.76 for 6 blocks, 1.33 for 12 and 1.15 for 24.

        It is information, and a warning in these cases:
        - Drift beyond the limit while the loss does not come down well. Before 100 losses that means: the loss is more
          than 10% above its best.
        - A gain beyond the limit while the training is stuck or the loss is far above its start.
        - A drift that was information while the loss came down, once half of what the loss had gained has been lost for
          `patience` losses.

        Drift within the limit is not reported while the loss comes down well. With several optimisers, or with a loss
        that does not measure progress, drift is information only.

    Why it matters:
        All blocks together amplify by g to the power of the depth. A small drift of the mean is a large drift of the
        gradient, and it shows several checks before the gradient norm does.

    Evidence:
        `gain/mean`, `gain/amplification` and `gain/block@…`. Sonde derives `gradient_monitor/mean_gain`,
        `gradient_monitor/mean_gain_ma` (mean over the window) and `gradient_monitor/mean_gain_drift` (rise over the
        window) from them.

    What to do:
        - Halve the learning rate.
        - Clip the gradient norm at its usual value.
        - Add weight decay or normalisation to the blocks with the largest gain.

    When it is wrong:
        - A jump at the end of an epoch or of a phase of the schedule is not drift, and is not reported.
        - With few blocks the limit is wide.
        - A network that has to produce large outputs needs large gains.

    References:
        Saxe, McClelland and Ganguli, Exact solutions to the nonlinear dynamics of learning, ICLR 2014.

    Example:
        >>> round(GainDrift().limit(12), 2), round(GainDrift().limit(24), 2)
        (1.33, 1.15)
    """

    code: ClassVar[str] = "GRD008"
    name: ClassVar[str] = "gain-drift"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("gain/mean",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.GAIN_DRIFT: (
            For("the mean gain of the blocks drifts"),
            For("the mean gain has drifted beyond what is fair for so many blocks", when=When.ALARM),
        ),
        Cause.EXPLODING_GRADIENTS: For(),
        Cause.MISSING_LR_DECAY: Against("what grows is the gain, not the noise", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 400
    guide: ClassVar[str] = "explosion"

    threshold: float = 0.10
    window: int = 5
    history: int = 10
    min_rises: int = 3
    budget: float = 30.0
    patience: int = 10

    def init(self) -> GainDriftState:
        """Before the first step."""
        drift = self._drift()
        return GainDriftState(drift.init(1), drift.init(1))

    def limit(self, depth: int) -> float:
        """The largest fair mean gain of `depth` blocks: A^(1/depth)."""
        return float(self.budget ** (1 / depth))

    def checked(self, checks: DriftState, gain: float) -> tuple[DriftState, DriftOut | None]:
        """The checks with one more mean gain; None where it is none, being missing, not finite or not above 0."""
        if not (math.isfinite(gain) and gain > 0):
            return checks, None
        return self._drift().step(checks, np.array([gain]))

    def numbers(self, checks: DriftState) -> GainNumbers:
        """The last check, its moving average and its drift, all NaN before the first."""
        seen = checks.history[0][np.isfinite(checks.history[0])]
        if not len(seen):
            return GainNumbers(float("nan"), float("nan"), float("nan"))
        window = seen[-self.window :]
        rise = window[-1] / window[0] - 1 if len(seen) >= self._drift().min_values else np.nan
        return GainNumbers(float(seen[-1]), float(window.mean()), float(rise))

    def waits(self, state: GainDriftState) -> bool:
        """Whether losses between two checks are looked at."""
        return state.drifted.step >= 0

    def step(self, state: GainDriftState, look: Look) -> tuple[GainDriftState, Sequence[Sighting]]:
        """Look at one more check, where there is one."""
        gain = look.view.value("gain/mean")
        up, risen = self.checked(state.up, gain)
        if risen is None:
            return self._after(state, look)
        down, fallen = self._drift().step(state.down, np.array([1 / gain]))
        blocks = look.views.latest("gain/block")
        if blocks is None:
            return GainDriftState(up, down), ()
        depth = int(np.isfinite(blocks.values).sum())
        limit = self.limit(max(depth, 1))
        beyond = depth >= 2 and not 1 / limit <= gain <= limit
        num_beyond = state.num_beyond + 1 if beyond else 0
        drifts = bool(risen.drifting[0]) or bool(fallen.drifting[0])
        # Past the limit the last rise need not be awaited: three checks, each beyond the one before.
        way = risen if gain > 1 else fallen
        steep = beyond and bool(way.rise[0] > self.threshold and way.num_rises[0] >= 2)
        drifts = drifts or steep
        since = look.view.step if not (drifts or beyond) else state.since if state.since >= 0 else look.view.step
        before = state.drifted
        state = GainDriftState(
            up, down, num_beyond, since if drifts or beyond else -1, num_given_back=state.num_given_back
        )
        if look.run.is_thriving and not beyond:  # gains change most while much is learned
            return state._replace(since=-1), ()
        if not (drifts or num_beyond >= 3):
            return state, ()
        change = float(risen.rise[0])
        drift = f" {'rose' if change > 0 else 'fell'} by {share(abs(change))} over {self.window} checks to"
        with np.errstate(over="ignore"):
            whole = float(np.float64(gain) ** depth)
        message = f"the mean gradient gain of {depth} blocks{drift if drifts else ' is'} {amount(gain)} "
        message += f"(limit {amount(limit)}); together they multiply the gradient by {amount(whole)}"
        outside = steep or (drifts and beyond and (gain > 1) == bool(risen.drifting[0]))
        past = outside and gain > 1 and look.run.is_alone
        outside = outside and look.run.is_alone and look.run.is_measure and not look.run.is_thriving
        # Before 100 losses nobody knows whether they fall, unless they have risen.
        has_risen = not look.run.loss_smooth < 1.1 * look.run.loss_best
        outside = outside and (look.run.num_losses >= 100 or has_risen)
        hurt = beyond and is_hurt(look.run)
        severity = Severity.WARNING if outside or hurt else Severity.INFO
        order = np.argsort(blocks.values if gain > 1 else -blocks.values)[::-1]
        where = tuple(blocks.names[place] for place in order[:3] if np.isfinite(blocks.values[place]))
        average = self.numbers(state.up).moving_average
        evidence = look.evidence("gain/mean", gain, average)
        sighting = Sighting(severity, message, where=where, evidence=(evidence,), since=state.since)
        if past and (look.run.is_thriving or before.step >= 0):
            state = state._replace(drifted=Drifted(look.view.step, gain, average, message, where))
        return state, (sighting,)

    def _after(self, state: GainDriftState, look: Look) -> tuple[GainDriftState, Sequence[Sighting]]:
        """Look at a loss between two checks, which may be far apart."""
        run, drifted = look.run, state.drifted
        if drifted.step < 0 or not (math.isfinite(run.loss) and run.loss_start > 0):
            return state, ()
        gone = run.loss_smooth > 0.5 * (run.loss_start + run.loss_best)
        state = state._replace(num_given_back=state.num_given_back + 1 if gone else 0)
        if state.num_given_back < self.patience:
            return state, ()
        gained = f"since then the loss rose from {amount(run.loss_best)} to {amount(run.loss_smooth)}"
        message = f"{drifted.message}; {gained}"
        evidence = Evidence(tag="gain/mean", step=drifted.step, value=drifted.gain, expected=drifted.average)
        return state, (Sighting(Severity.WARNING, message, drifted.where, (evidence,), state.since),)

    def _drift(self) -> Drift:
        return Drift(threshold=self.threshold, window=self.window, history=self.history, min_rises=self.min_rises)
